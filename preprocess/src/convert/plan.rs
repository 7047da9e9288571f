//! Plan of a conversion, printed before it begins: memory, disk and time (`--plan`).
//!
//! Memory and disk follow from the sizes of the input, which are estimated where no header states
//! them; times from rates measured on one machine, so they are orders of magnitude. A conversion
//! that the disk cannot hold is refused before anything is written.

use std::path::{Path, PathBuf};

use gsplit_store::memory::{mapped, resident};
use gsplit_store::{Progress, ROWS_PER_BATCH};
use serde::Serialize;

use super::input::Input;
use super::rows::row_bytes;
use super::{ConvertOptions, by_all_rows};
use crate::csc::{EDGE_BYTES, num_threads, thread_bytes};
use crate::edges::{self, Estimate};
use crate::embed::GeneratedFeatures;
use crate::memory::{self, Memory};
use crate::read::raw::{Ids, element_bytes, plausible};
use crate::{Error, Result, disk};

/// Approximate number of input bytes that a thread parses per second.
const PARSED: f64 = 400e6;
/// Approximate number of edges that a thread sorts per second.
const SORTED: f64 = 40e6;
/// Approximate number of bytes that a disk reads or writes per second.
const DISK: f64 = 500e6;

/// One stage of a conversion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStage {
    /// Name in the journal of a conversion.
    pub key: &'static str,
    /// Name for the user.
    pub name: &'static str,
    /// Peak memory, in bytes.
    pub memory: u64,
    /// Bytes written that are kept.
    pub output: u64,
    /// Bytes written that are deleted again.
    pub scratch: u64,
    /// Approximate time in seconds.
    pub seconds: f64,
}

/// Plan of a conversion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Name of the format.
    pub format: String,
    /// Approximate number of vertices.
    pub num_vertices: u64,
    /// Approximate number of edges, before duplicates are merged.
    pub num_edges: u64,
    /// The budget, in bytes.
    pub memory_budget: u64,
    /// Maximum resident bytes of mapped files, including the program itself. They belong to the
    /// page cache and to no budget.
    pub mapped: u64,
    /// The stages, in order.
    pub stages: Vec<PlannedStage>,
    /// Bytes free on the disk of the output.
    pub disk_free: u64,
    /// The folder on that disk.
    pub disk: PathBuf,
}

/// The plan of [`super::convert`] with the same arguments. Nothing is written.
pub fn plan(
    source: &Path,
    out: &Path,
    options: &ConvertOptions,
    progress: &dyn Progress,
) -> Result<Plan> {
    by_all_rows(options, progress, |options, progress| {
        let input = Input::open(source, options, progress)?;
        of(&input, out, &input.options)
    })
}

/// The plan of a conversion whose input is open.
pub(super) fn of(input: &Input, out: &Path, options: &ConvertOptions) -> Result<Plan> {
    let raw = &input.raw;
    let mut estimate = raw.edges.estimate()?;
    match raw.ids.num_vertices() {
        Some(n) => estimate.vertices = n,
        // Ids may be any numbers; each vertex is one of the two ends of an edge, or a row.
        None if raw.ids == Ids::Sparse => {
            estimate.vertices = estimate.vertices.min(estimate.edges.saturating_mul(2))
        }
        None => {}
    }
    // The number of edges is an estimate, but not wrong by a factor of 4.
    if raw.node_ids.is_none()
        && plausible(estimate.vertices, estimate.edges.saturating_mul(4)).is_err()
    {
        plausible(estimate.vertices, estimate.edges)
            .map_err(|problem| input.name(Error::Graph(problem)))?;
    }
    // Headers may claim anything; larger graphs are refused when the edges are read.
    estimate.vertices = estimate.vertices.min(1 << 33);
    estimate.edges = estimate.edges.min(1 << 48);
    let types = raw.types.as_ref();
    let n = types.map_or(estimate.vertices, |raw| raw.types.num_vertices());
    let copies = if options.build.symmetrise { 2 } else { 1 };
    let edges = estimate.edges * copies;
    let mut columns: Vec<_> = raw.columns.iter().collect();
    columns.extend(&raw.labels);
    let row: u64 = columns.iter().map(|column| row_bytes(column.as_ref()) as u64).sum();
    let widest = columns.iter().map(|column| row_bytes(column.as_ref()) as u64).max().unwrap_or(0);
    let node_bytes = n.saturating_mul(row);
    let with_rows = !columns.is_empty() || raw.node_ids.is_some();
    let with_splits = raw.splits.is_some() || options.random_split.is_some();
    // The order of a table's rows, classes, and owners of splits; also the ids, if any are looked
    // up.
    let per_vertex = if with_rows || with_splits { 10 } else { 0 };
    let table = if raw.ids == Ids::Sparse && (raw.node_ids.is_some() || raw.splits.is_some()) {
        25
    } else {
        0
    };
    let nodes = PlannedStage {
        key: super::nodes::STAGE,
        name: "labels, columns, splits",
        // A row is read as a whole, and converted to the written form.
        memory: resident() + (per_vertex + table) * n + 8 * widest,
        output: node_bytes,
        scratch: 0,
        seconds: 2.0 * node_bytes as f64 / DISK,
    };
    let walked = match options.features {
        Some(GeneratedFeatures::FastRp { .. }) => {
            n.saturating_mul(8).saturating_add(edges.saturating_mul(4))
        }
        _ => 0,
    };
    let stages = vec![
        graph(input, options.budget(), estimate, edges),
        nodes,
        features(input, options, n, edges),
    ];
    let (disk, disk_free) = disk::room(out)?;
    Ok(Plan {
        format: input.format.to_string(),
        num_vertices: n,
        num_edges: edges,
        memory_budget: options.budget().total(),
        mapped: mapped().saturating_add(walked),
        stages,
        disk_free,
        disk,
    })
}

fn graph(input: &Input, budget: Memory, estimate: Estimate, edges: u64) -> PlannedStage {
    let raw = &input.raw;
    let values = edges::row_bytes(raw.edges.columns());
    let threads = num_threads(budget.total(), values) as u64;
    let waiting = edges.saturating_mul(EDGE_BYTES + values as u64);
    let ids = if raw.ids == Ids::Sparse { estimate.vertices * 8 } else { 0 };
    let output =
        edges.saturating_mul(4 + values as u64).saturating_add(estimate.vertices * 8 + ids);
    let fixed = threads * thread_bytes(values) + estimate.vertices / 5 + (48 << 20);
    let wanted = waiting.saturating_add(resident() + fixed);
    let spilled = if wanted > budget.total() { waiting } else { 0 };
    let parallel = threads as f64;
    PlannedStage {
        key: super::GRAPH,
        name: "graph",
        memory: wanted.min(budget.total()).max(resident() + fixed),
        output,
        scratch: spilled,
        seconds: estimate.bytes as f64 / PARSED / parallel
            + edges as f64 / SORTED / parallel
            + (output as f64 + 2.0 * spilled as f64) / DISK,
    }
}

fn features(input: &Input, options: &ConvertOptions, n: u64, edges: u64) -> PlannedStage {
    let (dim, read) = match (options.features, &input.raw.features) {
        (Some(generated), _) => (generated.dim() as u64, 0),
        (None, Some(column)) => {
            let dim = column.width() as u64;
            (dim, n.saturating_mul(dim * element_bytes(column.descr()) as u64))
        }
        (None, None) => (0, 0),
    };
    let of_types =
        input.raw.types.iter().flat_map(|raw| raw.types.vertices.iter().zip(&raw.features));
    let of_types: u64 = of_types
        .map(|(of, rows)| rows.as_ref().map_or(0, |rows| of.count * rows.width() as u64))
        .sum();
    let values = n.saturating_mul(dim).saturating_add(of_types);
    let output = values.saturating_mul(options.feature_dtype.bytes() as u64);
    // A batch of rows as stored, and as written.
    let batch = 3 * n.clamp(4, ROWS_PER_BATCH as u64) * dim * 4;
    let held = match options.features {
        // Two matrices, the reversed graph, and the graph without held-out links; then one of the
        // matrices is written.
        Some(generated @ GeneratedFeatures::FastRp { .. }) => {
            let embedding = n.saturating_mul(8 * dim + 16).saturating_add(edges.saturating_mul(4));
            let two_kinds = input.raw.edges.has_two_kinds();
            let held_out = super::features::held_out(generated, options, two_kinds);
            let kept =
                held_out.map_or(0, |_| n.saturating_mul(8).saturating_add(edges.saturating_mul(4)));
            embedding.saturating_add(kept).max(n.saturating_mul(4 * dim).saturating_add(batch))
        }
        _ => batch,
    };
    PlannedStage {
        key: super::features::STAGE,
        name: "features",
        memory: if dim == 0 { 0 } else { held.saturating_add(resident() + (16 << 20)) },
        output,
        scratch: if input.raw.node_ids.is_some() { read } else { 0 },
        seconds: (read as f64 + output as f64) / DISK,
    }
}

impl Plan {
    /// Largest memory of any stage, in bytes.
    pub fn memory(&self) -> u64 {
        self.stages.iter().map(|stage| stage.memory).max().unwrap_or(0)
    }

    /// Maximum number of bytes on disk at one time.
    pub fn disk(&self) -> u64 {
        self.disk_beside(|_| false)
    }

    /// Maximum number of bytes on disk at one time, without the files of the stages that are done.
    fn disk_beside(&self, done: impl Fn(&str) -> bool) -> u64 {
        let mut written = 0u64;
        let mut most = 0;
        for stage in self.stages.iter().filter(|stage| !done(stage.key)) {
            written = stage.output.saturating_add(written);
            most = most.max(stage.scratch.saturating_add(written));
        }
        most
    }

    /// Approximate seconds of all stages.
    pub fn seconds(&self) -> f64 {
        self.stages.iter().map(|stage| stage.seconds).sum()
    }

    /// Fails if the disk or the budget cannot hold the stages that are not `done` yet.
    pub fn check(&self, done: impl Fn(&str) -> bool) -> Result<()> {
        let disk = self.disk_beside(&done);
        if disk > self.disk_free {
            let (needed, free) = (memory::shown(disk), memory::shown(self.disk_free));
            let problem = format!(
                "the dataset takes about {needed} here, {free} are free: free some space or write \
                 elsewhere"
            );
            return Err(Error::input(&self.disk, problem));
        }
        match self.stages.iter().find(|stage| !done(stage.key) && stage.memory > self.memory_budget)
        {
            None => Ok(()),
            Some(stage) => Err(Error::Option(format!(
                "--memory: {} takes about {}, the budget is {}: raise it, or generate features of \
                 fewer values",
                stage.name,
                memory::shown(stage.memory),
                memory::shown(self.memory_budget)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_early() {
        let stage = |memory, output, scratch| PlannedStage {
            key: "graph",
            name: "graph",
            memory,
            output,
            scratch,
            seconds: 1.0,
        };
        let plan = |stages: Vec<PlannedStage>| Plan {
            format: "snap".into(),
            num_vertices: 1,
            num_edges: 1,
            memory_budget: 100,
            mapped: 0,
            stages,
            disk_free: 1000,
            disk: "/somewhere".into(),
        };
        let fits = plan(vec![stage(100, 400, 600), stage(50, 600, 0)]);
        assert_eq!((fits.disk(), fits.memory(), fits.seconds()), (1000, 100, 2.0));
        fits.check(|_| false).unwrap();
        let message = plan(vec![stage(1, 400, 601)]).check(|_| false).unwrap_err().to_string();
        assert!(message.contains("/somewhere: the dataset takes about 1001 B"), "{message}");
        let message = plan(vec![stage(101, 0, 0)]).check(|_| false).unwrap_err().to_string();
        assert!(
            message.contains("--memory: graph takes about 101 B, the budget is 100 B"),
            "{message}"
        );
    }
}
