//! The input of a conversion: which format it is, and how a dataset records it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use gsplit_store::{Dataset, Progress, Provenance, SourceFile};
use serde::Serialize;
use serde_json::{Value, json};

use super::ConvertOptions;
use crate::read;
pub use crate::read::detect::Format;
use crate::read::raw::Raw;
use crate::{Error, Result};

/// Refuses options that would have no effect.
fn check_options(format: Format, raw: &Raw, options: &ConvertOptions) -> Result<()> {
    let read = &options.read;
    let table = matches!(format, Format::Csv | Format::Parquet | Format::Arrow);
    let arrays = matches!(format, Format::Ogb | Format::Npy | Format::Npz);
    let weighted = raw.edges.columns().iter().any(|column| column.name == "weight");
    let refused = [
        ("--source-column", read.source_column.is_some() && !table, "is for tables of edges with named columns"),
        ("--target-column", read.target_column.is_some() && !table, "is for tables of edges with named columns"),
        (
            "--id-column",
            read.id_column.is_some() && raw.node_ids.is_none(),
            "is for a table of vertices, as --nodes names one",
        ),
        (
            "--split",
            read.split.is_some() && !arrays && read.nodes.is_none(),
            "chooses among the splits of ogb, npy and npz",
        ),
        ("--sum-weights", options.build.sum_weights && !weighted, "adds up edge weights, and the input has none"),
    ];
    match refused.iter().find(|(_, refused, _)| *refused) {
        Some((option, _, why)) => Err(Error::Option(format!("{option} {why}; the input is {}", format.name()))),
        None => Ok(()),
    }
}

/// An opened input.
pub struct Input {
    /// What the user named.
    path: PathBuf,
    /// What it is.
    pub format: Format,
    /// What is in it.
    pub raw: Raw,
}

impl Input {
    /// Opens the raw graph at `path`, and says what it is.
    pub fn open(path: &Path, options: &ConvertOptions, progress: &dyn Progress) -> Result<Self> {
        if options.read.split.is_some() && options.random_split.is_some() {
            return Err(Error::Option("--split and --random-split exclude each other".into()));
        }
        let path = &read::named(path);
        std::fs::metadata(path).map_err(Error::io(path))?;
        let format = match options.format {
            Some(format) => format,
            None => {
                let format = read::detect::detect(path)?;
                progress.note(&format!(
                    "{}: found {}",
                    path.display(),
                    format_args!("{} ({})", format.what(), format.name())
                ));
                format
            }
        };
        let mut raw = read::open(path, format, &options.read, options.random_split.is_none(), progress)?;
        if let Some(nodes) = &options.read.nodes {
            read::attach_nodes(nodes, &mut raw, &options.read, progress)?;
        }
        raw.columns.retain(|column| {
            let reserved = ["feat", "label", "original_id"].contains(&column.name());
            if reserved {
                let (path, name) = (column.path().display(), column.name());
                progress
                    .note(&format!("note: {path}: the column {name} is left out: datasets use that name themselves"));
            }
            !reserved
        });
        check_options(format, &raw, options)?;
        Ok(Self { path: path.to_path_buf(), format, raw })
    }

    /// Names the input where only the graph as a whole is known to be wrong.
    pub fn name(&self, error: Error) -> Error {
        match error {
            Error::Graph(problem) => Error::input(&self.path, problem),
            error => error,
        }
    }

    /// How the dataset came to be, but for what is counted on the way.
    pub fn provenance(&self, options: &ConvertOptions) -> Result<Provenance> {
        #[derive(Serialize)]
        struct Recorded<'a> {
            input: PathBuf,
            found: String,
            #[serde(flatten)]
            options: &'a ConvertOptions,
        }
        // The same graph is the same wherever it is named from.
        let input = self.path.canonicalize().map_err(Error::io(&self.path))?;
        let mut options = options.clone();
        if let Some(nodes) = &mut options.read.nodes {
            *nodes = nodes.canonicalize().map_err(Error::io(&*nodes))?;
        }
        let recorded = Recorded { input, found: self.format.to_string(), options: &options };
        let unnamed = |_| Error::input(&self.path, "expected a name in UTF-8, so that it can be recorded: rename it");
        let options = serde_json::to_value(recorded).map_err(unnamed)?;
        let base = if self.path.is_dir() { Some(self.path.as_path()) } else { self.path.parent() };
        let sources = self.raw.files.iter().map(|file| {
            let bytes = std::fs::metadata(file).map_err(Error::io(file))?.len();
            let path = base.and_then(|base| file.strip_prefix(base).ok()).unwrap_or(file);
            Ok(SourceFile { path: path.to_string_lossy().into_owned(), bytes })
        });
        Ok(Provenance {
            tool_version: env!("CARGO_PKG_VERSION").into(),
            command: "convert".into(),
            options,
            sources: sources.collect::<Result<_>>()?,
            facts: BTreeMap::new(),
        })
    }

    /// What decides the bytes of the dataset: a run that has the same may go on with what this one leaves.
    pub fn identity(&self, provenance: &Provenance) -> Result<Value> {
        let modified = self.raw.files.iter().map(|file| {
            let time = std::fs::metadata(file).and_then(|data| data.modified()).map_err(Error::io(file))?;
            Ok(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64))
        });
        let modified = modified.collect::<Result<Vec<u64>>>()?;
        let Provenance { tool_version, command, options, sources, .. } = provenance;
        Ok(json!({
            "tool_version": tool_version, "command": command, "options": options, "sources": sources, "modified": modified,
        }))
    }

    /// The dataset at `out` if there is one that was made as `wanted` says, from files that have not been touched since.
    pub fn reusable(&self, out: &Path, wanted: &Provenance) -> Result<Option<Dataset>> {
        if !out.join("dataset.json").exists() {
            return Ok(None);
        }
        let dataset = Dataset::open(out)?;
        let found = &dataset.manifest().provenance;
        let modified = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).map_err(Error::io(path));
        let made = modified(&out.join("dataset.json"))?;
        let mut same =
            (&found.command, &found.options, &found.sources) == (&wanted.command, &wanted.options, &wanted.sources);
        for file in &self.raw.files {
            same &= modified(file)? <= made;
        }
        Ok(same.then_some(dataset))
    }
}
