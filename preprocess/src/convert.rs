//! A raw graph becomes a dataset directory.
//!
//! ```text
//! reuse, or refuse early ─▶ read ─▶ build_csc ─▶ write topology, labels, splits ─▶ write features ─▶ finish
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::staging::Staging;
use gsplit_store::{Dataset, DatasetWriter, FeatureDtype, Progress, Provenance, SourceFile, Split, check_target};
use serde::Serialize;

use crate::csc::{BuildOptions, Built, build_csc};
use crate::embed::GeneratedFeatures;
pub use crate::read::{OgbSource, RandomSplit, SnapSource};
use crate::read::{Raw, RawFeatures, ogb, snap};
use crate::{Error, Result};

#[cfg(test)]
mod tests;

/// Options of every raw format.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct ConvertOptions {
    /// What happens to the edges.
    #[command(flatten)]
    #[serde(flatten)]
    pub build: BuildOptions,
    /// Draw splits at random: fractions of the (labelled) vertices for training, validation and test, as 0.6,0.2,0.2
    #[arg(long, value_name = "TRAIN,VALID,TEST")]
    pub random_split: Option<RandomSplit>,
    /// Seed of the random split and of generated features
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Type to store features in: f32, f16 or bf16
    #[arg(long, value_name = "TYPE", default_value_t = FeatureDtype::F32)]
    pub feature_dtype: FeatureDtype,
    /// Generate features, in place of the input's own: random:D (noise) or fastrp:D (an embedding of the structure by
    /// random projections: Chen et al., CIKM 2019), D values a vertex
    #[arg(long, value_name = "KIND:D")]
    pub features: Option<GeneratedFeatures>,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            build: BuildOptions::default(),
            random_split: None,
            seed: 0,
            feature_dtype: FeatureDtype::F32,
            features: None,
        }
    }
}

/// A raw graph on disk.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Source {
    /// A folder that OGB unpacked, in the CSV or the binary layout.
    Ogb(OgbSource),
    /// A SNAP edge list.
    Snap(SnapSource),
}

impl Source {
    /// The subcommand that names this kind of source.
    pub fn command(&self) -> &'static str {
        match self {
            Self::Ogb(_) => "convert ogb",
            Self::Snap(_) => "convert snap",
        }
    }

    /// What the user named.
    pub fn path(&self) -> &Path {
        match self {
            Self::Ogb(source) => &source.dir,
            Self::Snap(source) => &source.file,
        }
    }

    /// The source under its absolute path: the same graph is the same wherever it is named from.
    fn absolute(&self) -> Result<Self> {
        let path = self.path().canonicalize().map_err(Error::io(self.path()))?;
        let mut absolute = self.clone();
        match &mut absolute {
            Self::Ogb(source) => source.dir = path,
            Self::Snap(source) => source.file = path,
        }
        Ok(absolute)
    }
}

/// What [`convert`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The dataset was made.
    Converted,
    /// It was there already, made from the same input with the same options.
    Reused,
}

/// Turns the raw graph `source` into a dataset at `out`. A dataset there that was made from the same files with the
/// same options is reused; anything else there is refused, unless `force` and it is a dataset, which is then replaced
/// with all presamples and partitions in it.
pub fn convert(
    source: &Source,
    out: &Path,
    options: &ConvertOptions,
    force: bool,
    progress: &dyn Progress,
) -> Result<(Dataset, Outcome)> {
    let input = Input::find(source, options)?;
    let mut provenance = input.provenance(source, options)?;
    if !force && let Some(dataset) = reusable(out, &provenance, &input.files())? {
        return Ok((dataset, Outcome::Reused));
    }
    // What stands in the way of writing is better known before hours of reading.
    check_target(out, force)?;
    drop(Staging::begin(out, force)?);

    let raw = input.read(progress)?;
    let Raw { num_vertices, sources, targets, original_ids, labels, splits, features, mut facts } = raw;
    let built = build_csc(num_vertices, sources, targets, options.build, progress)?;
    facts.insert("self_loops_dropped".into(), built.self_loops_dropped);
    facts.insert("duplicates_merged".into(), built.duplicates_merged);

    let mut writer = DatasetWriter::create(out, force, &built.indptr, &built.indices)?;
    if let Some(ids) = original_ids {
        writer.add_original_ids(&ids)?;
    }
    match &labels {
        Some(labels) => {
            facts.insert("unlabelled".into(), labels.iter().filter(|&&label| label < 0).count() as u64);
            writer.add_labels(labels)?;
        }
        None => progress.note("note: no labels in the input; training needs them"),
    }
    let splits = options.random_split.map(|split| split.draw(num_vertices, labels.as_deref(), options.seed)).or(splits);
    match splits {
        Some(splits) => {
            for (split, vertices) in Split::ALL.into_iter().zip(splits) {
                writer.add_split(split, vertices)?;
            }
        }
        None => progress.note("note: no splits; presample and train need them: pass --random-split TRAIN,VALID,TEST"),
    }
    add_features(&mut writer, &built, features.as_ref(), options, progress)?;
    provenance.facts = facts;
    Ok((writer.finish(provenance)?, Outcome::Converted))
}

/// A source whose files are found.
enum Input<'a> {
    Ogb(&'a OgbSource, ogb::Layout),
    Snap(&'a SnapSource),
}

impl<'a> Input<'a> {
    fn find(source: &'a Source, options: &ConvertOptions) -> Result<Self> {
        match source {
            Source::Ogb(source) if source.split.is_some() && options.random_split.is_some() => {
                Err(Error::Option("--split and --random-split exclude each other".into()))
            }
            Source::Ogb(source) => Ok(Self::Ogb(source, ogb::Layout::find(source, options.random_split.is_none())?)),
            Source::Snap(source) => Ok(Self::Snap(source)),
        }
    }

    fn read(&self, progress: &dyn Progress) -> Result<Raw> {
        match self {
            Self::Ogb(_, layout) => layout.read(progress),
            Self::Snap(source) => snap::read(source, progress),
        }
    }

    /// Every file that is read.
    fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Ogb(_, layout) => layout.files().into_iter().map(Path::to_path_buf).collect(),
            Self::Snap(source) => vec![source.file.clone()],
        }
    }

    fn provenance(&self, source: &Source, options: &ConvertOptions) -> Result<Provenance> {
        #[derive(Serialize)]
        struct Options<'a> {
            #[serde(flatten)]
            source: Source,
            #[serde(flatten)]
            options: &'a ConvertOptions,
        }
        let all = Options { source: source.absolute()?, options };
        let unnamed =
            |_| Error::input(source.path(), "expected a name in UTF-8, so that it can be recorded: rename it");
        let options = serde_json::to_value(all).map_err(unnamed)?;
        let base = match self {
            Self::Ogb(source, _) => source.dir.as_path(),
            Self::Snap(source) => source.file.parent().unwrap_or(Path::new("")),
        };
        let sources = self.files().into_iter().map(|file| {
            let bytes = std::fs::metadata(&file).map_err(Error::io(&file))?.len();
            let path = file.strip_prefix(base).unwrap_or(&file).to_string_lossy().into_owned();
            Ok(SourceFile { path, bytes })
        });
        Ok(Provenance {
            tool_version: env!("CARGO_PKG_VERSION").into(),
            command: source.command().into(),
            options,
            sources: sources.collect::<Result<_>>()?,
            facts: BTreeMap::new(),
        })
    }
}

/// The dataset at `out` if there is one that was made as `wanted` says, from files that have not been touched since.
fn reusable(out: &Path, wanted: &Provenance, files: &[PathBuf]) -> Result<Option<Dataset>> {
    if !out.join("dataset.json").exists() {
        return Ok(None);
    }
    let dataset = Dataset::open(out)?;
    let found = &dataset.manifest().provenance;
    let modified = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).map_err(Error::io(path));
    let made = modified(&out.join("dataset.json"))?;
    let mut same =
        (&found.command, &found.options, &found.sources) == (&wanted.command, &wanted.options, &wanted.sources);
    for file in files {
        same &= modified(file)? <= made;
    }
    Ok(same.then_some(dataset))
}

fn add_features(
    writer: &mut DatasetWriter,
    built: &Built,
    raw: Option<&RawFeatures>,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<()> {
    let dtype = options.feature_dtype;
    let num_vertices = built.indptr.len() - 1;
    match (options.features, raw) {
        (Some(generated), raw) => {
            if raw.is_some() {
                progress.note(&format!("note: the input's own features are left out for --features {generated}"));
            }
            let mut rows = writer.feature_writer(dtype, generated.dim())?;
            generated.generate_rows(&built.indptr, &built.indices, options.seed, &mut rows, progress)?;
            writer.add_features(rows, dtype, Some(generated.to_string()))?;
        }
        (None, Some(raw)) => {
            let mut rows = writer.feature_writer(dtype, raw.dim)?;
            raw.write(num_vertices, dtype, &mut rows, progress)?;
            writer.add_features(rows, dtype, None)?;
        }
        (None, None) => {
            progress.note("note: no features in the input; training needs them: pass --features fastrp:128")
        }
    }
    Ok(())
}
