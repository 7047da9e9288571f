//! Converts a raw graph to a dataset directory.
//!
//! ```text
//! reuse, or refuse early ─▶ open the input ─▶ graph (csc) ─▶ nodes (labels, columns, splits) ─▶ features ─▶ finish
//! ```
//! Each of `graph`, `nodes` and `features` is a stage: a later run reuses the stages that a killed
//! run finished.

mod direction;
mod features;
mod input;
mod join;
mod links;
mod nodes;
mod plan;
mod random_split;
mod rows;
mod sources;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Mutex;

use gsplit_kernels::schedule::HeldOutLinks;
use gsplit_store::{
    Dataset, DatasetWriter, FeatureDtype, NoProgress, Progress, Provenance, Stage, Unit,
    dataset_target, staging,
};
use serde::Serialize;

use crate::csc::{Build, BuildOptions};
use crate::edges::lock;
use crate::embed::GeneratedFeatures;
use crate::memory::Memory;
use crate::read::options::ReadOptions;
use crate::read::raw::Raw;
pub use crate::read::schema::Decided;
use crate::{Error, Result};
pub use input::Format;
use input::Input;
pub use join::{NewRows, Older, join};
pub use plan::{Plan, PlannedStage, plan};
pub use random_split::RandomSplit;

/// Options of every raw format.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct ConvertOptions {
    /// Format of the input [default: detected]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FORMAT"))]
    pub format: Option<Format>,
    /// How the input is read.
    #[cfg_attr(feature = "cli", command(flatten))]
    #[serde(flatten)]
    pub read: ReadOptions,
    /// Options of the CSC build.
    #[cfg_attr(feature = "cli", command(flatten))]
    #[serde(flatten)]
    pub build: BuildOptions,
    /// Tables: keep the direction of the edges, where hardly any has its reverse
    #[cfg_attr(feature = "cli", arg(long, conflicts_with = "symmetrise"))]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub directed: bool,
    /// Draw splits at random: fractions of the labelled vertices of each class (of all vertices
    /// without classes) for training, validation and test, e.g. 0.6,0.2,0.2; auto does so only if
    /// the input has labels and no splits
    #[cfg_attr(feature = "cli", arg(long, value_name = "TRAIN,VALID,TEST|auto"))]
    pub random_split: Option<RandomSplit>,
    /// Seed of the random split and of generated features
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub seed: u64,
    /// Type to store features in: f32, f16, bf16, or i8 with a scale for every row
    #[cfg_attr(feature = "cli", arg(long, value_name = "TYPE", default_value_t = FeatureDtype::F32))]
    pub feature_dtype: FeatureDtype,
    /// Generate features, in place of the input's own: random:D (noise) or fastrp:D (an embedding
    /// of the structure by random projections: Chen et al., CIKM 2019), D values per vertex
    #[cfg_attr(feature = "cli", arg(long, value_name = "KIND:D"))]
    pub features: Option<GeneratedFeatures>,
    /// Compute fastrp without the links that train --task link holds out for its scores, which
    /// would be too good otherwise: the share of links (--valid-edges plus --test-edges), and after
    /// a comma its --edge-seed [default: 0.15, from train's defaults, with --bipartite; otherwise
    /// 0]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SHARE[,SEED]"))]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub held_out_links: Option<HeldOutLinks>,
}

fn as_text<S: serde::Serializer>(
    held_out: &Option<HeldOutLinks>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&held_out.map(|held_out| held_out.to_string()).unwrap_or_default())
}

impl ConvertOptions {
    /// The memory budget.
    pub fn budget(&self) -> Memory {
        self.read.budget()
    }
}

/// Result of [`convert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The dataset was made.
    Converted,
    /// The dataset existed already, made from the same input with the same options.
    Reused,
}

/// Converts the raw graph at `source` to a dataset at `out`. A dataset at `out` that was made from
/// files of the same content with the same options is reused. Anything else there is refused,
/// unless it is a dataset and `force` is set: then it is replaced, with all its presamples and
/// partitions. A killed run is resumed after its last finished stage.
pub fn convert(
    source: &Path,
    out: &Path,
    options: &ConvertOptions,
    force: bool,
    progress: &dyn Progress,
) -> Result<(Dataset, Outcome)> {
    by_all_rows(options, progress, |options, progress| {
        convert_once(source, out, options, force, progress)
    })
}

/// Calls `act` with `options`, and once more if a cell is unlike the first rows of its column: then
/// with the types of all rows.
fn by_all_rows<T>(
    options: &ConvertOptions,
    progress: &dyn Progress,
    act: impl Fn(&ConvertOptions, &Decisions<'_>) -> Result<T>,
) -> Result<T> {
    let told = Mutex::default();
    let decisions = || Decisions { shown: progress, told: &told, lines: Mutex::default() };
    let unlike = match act(options, &decisions()) {
        Err(Error::FirstRows(unlike)) => unlike,
        done => return done,
    };
    let place = match *unlike {
        Error::Input { path, line: Some(line), .. } => format!("{}, line {line},", path.display()),
        other => other.to_string(),
    };
    progress.note(&format!(
        "note: {place} is unlike the first rows: all rows are read for the types of the columns"
    ));
    let mut options = options.clone();
    options.read.scans = true;
    act(&options, &decisions())
}

fn convert_once(
    source: &Path,
    out: &Path,
    options: &ConvertOptions,
    force: bool,
    progress: &Decisions<'_>,
) -> Result<(Dataset, Outcome)> {
    let input = Input::open(source, options, progress)?;
    let options = &input.options;
    let mut provenance = input.provenance(options)?;
    if !force && let Some(dataset) = input.reusable(out, &mut provenance)? {
        staging::tidy(&dataset_target(out));
        return Ok((dataset, Outcome::Reused));
    }
    // Fail on an unwritable output before hours of reading.
    dataset_target(out).check(force)?;
    let identity = input.identity(out, &mut provenance, progress)?;
    let mut writer = DatasetWriter::resume(out, force, &identity)?;
    progress.resume(writer.decisions());
    // The stages that a killed run finished need no more space.
    plan::of(&input, out, options)?.check(|stage| writer.is_done(stage))?;
    match write(&input, options, &mut writer, &mut provenance, progress) {
        Ok(()) => {
            provenance.decisions = progress.lines();
            Ok((writer.finish(provenance)?, Outcome::Converted))
        }
        Err(error) => {
            // The stages of a refused input cannot be reused: another input, or other options,
            // start anew.
            if matches!(
                error,
                Error::Input { .. }
                    | Error::NoRow { .. }
                    | Error::FirstRows(_)
                    | Error::Graph(_)
                    | Error::Option(_)
            ) {
                writer.discard();
            }
            Err(error)
        }
    }
}

/// The decisions of [`convert`] on the columns and cells of `source`. Nothing is written.
pub fn decide(
    source: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<(Format, Decided)> {
    by_all_rows(options, progress, |options, progress| {
        let input = Input::open(source, options, progress)?;
        Ok((input.format, input.decided()))
    })
}

/// The first difference between the dataset at `out` and the one that [`convert`] would make of
/// `source`, as a clause. `None` if they do not differ or there is no dataset at `out`.
pub fn outdated(source: &Path, out: &Path, options: &ConvertOptions) -> Result<Option<String>> {
    if !out.join("dataset.json").exists() {
        return Ok(None);
    }
    by_all_rows(options, &NoProgress, |options, progress| {
        let input = Input::open(source, options, progress)?;
        let mut provenance = input.provenance(&input.options)?;
        input.difference(&Dataset::open(out)?, &mut provenance)
    })
}

/// Shows decisions and keeps them.
struct Decisions<'a> {
    shown: &'a dyn Progress,
    /// Lines that were shown, here or in an attempt before.
    told: &'a Mutex<Vec<String>>,
    lines: Mutex<Vec<String>>,
}

impl Decisions<'_> {
    fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    /// Continues the list of decisions of the run that is resumed. It includes the decisions of
    /// opening the input, which this run has just repeated.
    fn resume(&self, decisions: &[String]) {
        if !decisions.is_empty() {
            *lock(&self.lines) = decisions.to_vec();
        }
    }
}

impl Progress for Decisions<'_> {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) -> Box<dyn Stage> {
        self.shown.stage(name, total, unit)
    }

    fn note(&self, line: &str) {
        self.shown.note(line);
    }

    fn decide(&self, line: &str) {
        let add = |lines: &Mutex<Vec<String>>| {
            let (mut lines, line) = (lock(lines), line.to_string());
            let is_new = !lines.contains(&line);
            lines.extend(Some(line).filter(|_| is_new));
            is_new
        };
        // An attempt before, or a run that is resumed, may have made the same decision.
        if add(self.told) {
            self.shown.note(line);
        }
        add(&self.lines);
    }
}

/// Runs the stages of a conversion that `writer` has not completed yet.
fn write(
    input: &Input,
    options: &ConvertOptions,
    writer: &mut DatasetWriter,
    provenance: &mut Provenance,
    progress: &Decisions<'_>,
) -> Result<()> {
    if !writer.is_done(GRAPH) {
        let written = || {
            write_graph(&input.raw, options, writer, progress).map_err(|error| input.name(error))
        };
        sources::digest_beside(&input.raw.files, &mut provenance.sources, progress, written)?;
        writer.identify(sources::as_identity(provenance)?);
        complete(GRAPH, writer, progress)?;
    }
    if !writer.is_done(nodes::STAGE) {
        nodes::write(&input.raw, options, writer, progress).map_err(|error| input.name(error))?;
        complete(nodes::STAGE, writer, progress)?;
    }
    if !writer.is_done(features::STAGE) {
        features::write(&input.raw, options, writer, progress)?;
        complete(features::STAGE, writer, progress)?;
    }
    if let Some(difference) =
        sources::difference(&input.raw.files, provenance, &mut input.provenance(options)?)?
    {
        let problem = format!("was changed while it was read: {difference}: run it again");
        return Err(input.name(Error::Graph(problem)));
    }
    Ok(())
}

/// Completes `stage`, with the decisions made so far.
fn complete(stage: &str, writer: &mut DatasetWriter, progress: &Decisions<'_>) -> Result<()> {
    writer.decide(progress.lines());
    Ok(writer.complete(stage)?)
}

/// Name of the first stage in the journal.
const GRAPH: &str = "graph";

/// The first stage: topology, edge columns and original ids.
fn write_graph(
    raw: &Raw,
    options: &ConvertOptions,
    writer: &mut DatasetWriter,
    progress: &dyn Progress,
) -> Result<()> {
    let build = Build {
        source: raw.edges.as_ref(),
        ids: raw.ids,
        types: raw.types.as_ref().map(|raw| &raw.types),
        node_ids: raw.node_ids.as_deref().or(raw.alone.as_deref()),
        // The reader of a graph of several types adds reverses itself.
        options: match raw.types {
            Some(_) => BuildOptions { symmetrise: false, drop_self_loops: false, ..options.build },
            None => options.build,
        },
        are_costs: options.read.schema.edge_weights.is_some(),
        memory: options.budget(),
        scratch: writer.scratch().join("edges"),
    };
    let built = build.run(writer, progress)?;
    build.clean_up()?;
    if built.num_vertices == 0 {
        return Err(Error::Graph(
            "no edges and no vertices: expected at least one edge; was the file cut?".into(),
        ));
    }
    if raw.lists_once && !options.build.symmetrise {
        progress.note(
            "note: edges of this dataset have no direction, and each is stored once: OGB adds the \
             reverses; so does --symmetrise",
        );
    }
    if built.edges_read == 0 {
        progress.note("note: the input has no edges: no vertex has a neighbour");
    }
    let facts = writer.facts_mut();
    facts.extend(raw.facts.clone());
    facts.insert("edges_read".into(), built.edges_read);
    facts.insert("self_loops_dropped".into(), built.self_loops_dropped);
    facts.insert("duplicates_merged".into(), built.duplicates_merged);
    facts.insert("weights_missing".into(), built.weights_missing);
    Ok(())
}
