//! The input of a conversion: which format it is, and how a dataset records it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::{Dataset, DatasetWriter, Progress, Provenance, SourceFile, Stamp};
use serde::Serialize;
use serde_json::Value;

use super::{ConvertOptions, sources};
use crate::read::archive::{self, Unpacked};
pub use crate::read::detect::Format;
use crate::read::detect::detect;
use crate::read::listed::ListedEnds;
use crate::read::options::{Fill, MissingRows};
use crate::read::pick::pick;
use crate::read::raw::Raw;
use crate::{Error, Result, read};

/// Refuses options that would have no effect on what is in the input. Its format refused others before it was opened.
fn check_options(format: Format, raw: &Raw, options: &ConvertOptions) -> Result<()> {
    let of_node_table = options.read.node_table.first_given();
    let fill = options.read.node_table.fill;
    let is_table = matches!(format, Format::Csv | Format::Parquet | Format::Arrow);
    let fills_edges = is_table && !raw.edges.columns().is_empty() && fill != Some(Fill::Mean);
    let weighted = raw.edges.columns().iter().any(|column| column.name == "weight");
    let refused = [
        (
            of_node_table.unwrap_or(""),
            of_node_table.is_some() && raw.node_ids.is_none(),
            "is for a table of vertices, as --nodes names one",
        ),
        (
            "--fill",
            fill.is_some() && raw.node_ids.is_none() && !fills_edges,
            "is for a table of vertices, and a number for columns of a table of edges",
        ),
        ("--sum-weights", options.build.sum_weights && !weighted, "adds up edge weights, and the input has none"),
    ];
    match refused.iter().find(|(_, refused, _)| *refused) {
        Some((option, _, why)) => Err(Error::Option(format!("{option} {why}; the input is {}", format.name()))),
        None => Ok(()),
    }
}

/// Opens the graph at `path`, a file or a folder, or the one among the files of that folder. `is_unpacked`: it is an archive's.
fn open_graph(
    path: &Path,
    is_unpacked: bool,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<(Format, Raw)> {
    let text = options.read.text();
    let look = |path: &Path| options.format.map_or_else(|| detect(path, text), Ok);
    let found = look(path);
    let picked = match path.is_dir() && (is_unpacked || found.is_err()) {
        true => pick(path, options.format, text)?,
        false => None,
    };
    let (format, path) = match picked {
        Some(picked) => (look(&picked)?, picked),
        None => (found?, path.to_path_buf()),
    };
    let path = &path;
    if options.format.is_none() {
        progress.decide(&format!("{}: found {} ({})", path.display(), format.what(), format.name()));
    }
    let mut read = options.read.clone();
    if options.features.is_some() {
        read.node_table = read.node_table.beside_features();
    }
    let mut raw = read::open(path, format, &read, options.random_split.is_none(), progress)?;
    if let Some(nodes) = &read.nodes {
        read::attach_nodes(nodes, &mut raw, &read, progress)?;
    }
    if read.node_table.missing_rows == Some(MissingRows::Drop)
        && let Some(table) = &raw.node_ids
    {
        raw.edges = Box::new(ListedEnds::of(raw.edges, table.as_ref())?);
    }
    raw.columns.retain(|column| {
        let reserved = ["feat", "label", "original_id"].contains(&column.name());
        if reserved {
            let (path, name) = (column.path().display(), column.name());
            progress.note(&format!("note: {path}: the column {name} is left out: datasets use that name themselves"));
        }
        !reserved
    });
    check_options(format, &raw, options)?;
    Ok((format, raw))
}

/// An opened input.
pub struct Input {
    /// The path that the user named.
    path: PathBuf,
    /// Its format.
    pub format: Format,
    /// The opened graph.
    pub raw: Raw,
    /// The members of an archive. They are removed when the graph is closed.
    pub unpacked: Option<Unpacked>,
}

impl Input {
    /// Opens the raw graph at `path`, and says what it is. An archive is unpacked beside `out`.
    pub fn open(path: &Path, out: &Path, options: &ConvertOptions, progress: &dyn Progress) -> Result<Self> {
        if options.read.split.is_some() && options.random_split.is_some() {
            return Err(Error::Option("--split-name and --random-split exclude each other".into()));
        }
        read::foreign::refuse_address(path)?;
        options.read.nodes.as_deref().map_or(Ok(()), read::foreign::refuse_address)?;
        let path = &read::named(path);
        std::fs::metadata(path).map_err(Error::io(path))?;
        let member = options.read.member.as_deref();
        let unpacked = match archive::packing(path, options.format)? {
            Some(packing) => Some(Unpacked::of(path, packing, out, member, progress)?),
            None if member.is_some() => {
                let problem = "--member names a file in an archive, and the input is none: name the path of the file";
                return Err(Error::Option(problem.into()));
            }
            None => None,
        };
        let root = unpacked.as_ref().map(Unpacked::root);
        let (format, mut raw) = open_graph(root.as_deref().unwrap_or(path), unpacked.is_some(), options, progress)?;
        if let Some(root) = root {
            // The archive is what is recorded.
            raw.files.retain(|file| !file.starts_with(&root));
            raw.files.insert(0, path.clone());
        }
        Ok(Self { path: path.to_path_buf(), format, raw, unpacked })
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
            let found = std::fs::metadata(file).map_err(Error::io(file))?;
            let path = base.and_then(|base| file.strip_prefix(base).ok()).unwrap_or(file);
            let path = path.to_string_lossy().into_owned();
            Ok(SourceFile { path, bytes: found.len(), stamp: Stamp::of(&found), checksum: None })
        });
        Ok(Provenance {
            tool_version: env!("CARGO_PKG_VERSION").into(),
            command: "convert".into(),
            options,
            sources: sources.collect::<Result<_>>()?,
            facts: BTreeMap::new(),
            decisions: Vec::new(),
        })
    }

    /// Identity of the dataset at `out`: all that decides its bytes, as `provenance` says. Where an unfinished run left the same
    /// identity, that one is returned, so that it is resumed; else the user is told the difference.
    pub fn identity(&self, out: &Path, provenance: &mut Provenance, progress: &dyn Progress) -> Result<Value> {
        let left = DatasetWriter::left(out).and_then(|left| serde_json::from_value(left).ok());
        if let Some(left) = left {
            match sources::difference(&self.raw.files, &left, provenance)? {
                None => return sources::as_identity(&left),
                Some(difference) => progress.note(&format!(
                    "note: {}: what an unfinished conversion left is of no use: {difference}",
                    out.display()
                )),
            }
        }
        sources::as_identity(provenance)
    }

    /// The dataset at `out` if there is one, made as `wanted` says. One that was made otherwise is an error that says how.
    pub fn reusable(&self, out: &Path, wanted: &mut Provenance) -> Result<Option<Dataset>> {
        if !out.join("dataset.json").exists() {
            return Ok(None);
        }
        let dataset = Dataset::open(out)?;
        match sources::difference(&self.raw.files, &dataset.manifest().provenance, wanted)? {
            None => Ok(Some(dataset)),
            Some(difference) => {
                let remedy = "choose another path, or pass --force to rebuild it";
                Err(Error::input(out, format!("already there, but {difference}: {remedy}")))
            }
        }
    }
}
