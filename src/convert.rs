//! `gsplit convert`.

use std::path::PathBuf;
use std::time::Instant;

use gsplit_preprocess::convert::{ConvertOptions, Outcome, Plan, convert, plan};
use gsplit_preprocess::memory::shown;
use gsplit_store::{Dataset, Progress, Split, shell_path};
use serde_json::json;

use crate::describe::{number_of, report};
use crate::outputs::Outputs;
use crate::ui::Ui;

/// Turn a raw graph into a dataset directory
///
/// This is done once: presample, partition and train read the directory in place. Converting the
/// same input again with the same options reuses the directory; after a conversion that was killed,
/// the next one resumes at the last finished stage. gsplit schema prints all decisions on the columns
/// and cells of the input, as a file for --schema.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    gsplit convert dataset/ogbn_arxiv --out arxiv --features fastrp:128\n  \
    gsplit convert dataset/ogbn_products --out products --symmetrise\n  \
    gsplit convert com-lj.ungraph.txt.gz --out lj --symmetrise --features random:64 --random-split \
    0.6,0.2,0.2\n  \
    gsplit convert dataset/ogbn_papers100M --out papers --memory 8GiB --feature-dtype f16 --plan\n  \
    \
    \
    gsplit convert payments.csv --nodes customers.csv --out customers --label-column churned \
    --random-split 0.6,0.2,0.2\n  \
    gsplit convert calls.csv --nodes hosts.csv --out calls --schema vertex-weights=cpu,memory \
    --schema edge-weights=bytes\n\n\
    OGB lists some undirected graphs with each edge once (ogbn-products: `add_inverse_edge` in its \
    master table): pass\n\
    --symmetrise for those.")]
pub struct Args {
    /// The raw graph: a file, or a folder as it was downloaded
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// The dataset directory to make
    #[arg(long, short, value_name = "DATASET")]
    out: PathBuf,
    #[command(flatten)]
    options: ConvertOptions,
    /// Only print the expected memory, disk and time of every stage. No dataset is written
    #[arg(long)]
    plan: bool,
    /// Replace the dataset at --out, its presamples and partitions included
    #[arg(long)]
    force: bool,
}

/// Runs the subcommand.
pub fn run(args: Args, ui: &Ui) -> anyhow::Result<()> {
    if args.plan {
        let plan = plan(&args.input, &args.out, &args.options, ui)?;
        show(&plan, ui);
        return Ok(plan.check(|_| false)?);
    }
    let start = Instant::now();
    let mut outputs = Outputs::new(args.force).reads("INPUT", &args.input);
    if let Some(nodes) = &args.options.read.nodes {
        outputs = outputs.reads("--nodes", nodes);
    }
    outputs.artifact("--out", &args.out)?;
    let (dataset, outcome) = convert(&args.input, &args.out, &args.options, args.force, ui)?;
    if outcome != Outcome::Reused {
        let one_way = if args.options.directed { None } else { one_way_note(&dataset, &args) };
        let notes = [one_way, two_kinds_note(&dataset, &args)];
        notes.into_iter().flatten().chain(lacks_notes(&dataset)).for_each(|note| ui.note(&note));
    }
    report(&dataset, outcome == Outcome::Reused, start.elapsed().as_secs_f64(), ui)
}

/// Runs of edges whose reverse is looked for, and edges per run: few, since each touches other
/// pages of the mapped graph.
const RUNS: usize = 16;
const RUN: usize = 8;
/// Percentage of reciprocal edges below which a graph may be an undirected one that lists each edge
/// once.
const FEW_RECIPROCAL: usize = 2;

/// A note on a graph with hardly any edge in both directions.
fn one_way_note(dataset: &Dataset, args: &Args) -> Option<String> {
    let topology = dataset.topology();
    let (indptr, indices) = (topology.indptr(), topology.indices());
    let runs = (0..indices.len()).step_by(indices.len().div_ceil(RUNS).max(RUN));
    let positions: Vec<usize> = runs.flat_map(|run| run..(run + RUN).min(indices.len())).collect();
    let sampled = positions.len();
    let reciprocal = |&at: &usize| {
        let target = indptr.partition_point(|&start| start <= at as u64) - 1;
        topology.has_edge(target as u32, indices[at])
    };
    let found = positions.iter().filter(|at| reciprocal(at)).count();
    (found * 100 < sampled * FEW_RECIPROCAL).then(|| {
        let (input, out) = (shell_path(&args.input), shell_path(&args.out));
        let edges = number_of(sampled as u64, "edge", "edges");
        format!(
            "note: {} % of {edges} looked at have a reverse. If the graph is undirected, convert \
             it again: `gsplit convert {input} --out {out} \
             --symmetrise --force`, with the options given now",
            found * 100 / sampled
        )
    })
}

/// A note on a graph whose sources and targets both count from the same small number without a gap,
/// but up to different numbers: they may be of two kinds, e.g. users and items.
fn two_kinds_note(dataset: &Dataset, args: &Args) -> Option<String> {
    let read = &args.options.read;
    if read.schema.bipartite.is_some()
        || args.options.build.symmetrise
        || dataset.manifest().string_ids
        || dataset.types().is_some()
    {
        return None;
    }
    let (topology, n) = (dataset.topology(), dataset.num_vertices());
    let first = dataset.original_ids().ok()?.filter(|_| n > 0).map_or(0, |ids| ids.get(0));
    let is_target = |v: usize| !topology.in_neighbours(v as u32).is_empty();
    let targets = (0..n).take_while(|&v| is_target(v)).count();
    if first > 1 || targets < 2 || (targets..n).any(is_target) {
        return None;
    }
    let mut is_source = vec![false; n];
    topology.indices().iter().for_each(|&source| is_source[source as usize] = true);
    let sources = is_source.iter().take_while(|is| **is).count();
    (sources > 1 && sources != targets && !is_source[sources..].contains(&true)).then(|| {
        let last = |count: usize| first + count as u64 - 1;
        format!(
            "note: sources count from {first} to {}, targets from {first} to {}: if these are two \
             kinds of vertices, as users and items, \
             convert it again with --bipartite --force",
            last(sources),
            last(targets)
        )
    })
}

/// Notes on the parts that training will miss.
fn lacks_notes(dataset: &Dataset) -> Vec<String> {
    let manifest = dataset.manifest();
    let labelled = manifest.num_classes.is_some() || manifest.numeric_label;
    let has_train = dataset.split(Split::Train).is_ok_and(|train| !train.is_empty());
    // Types without features have learnt rows.
    let is_typed = dataset.types().is_some();
    let lacks = [
        (
            manifest.features.is_none() && !is_typed,
            "this dataset has no features. Generate them from the structure with --features \
             fastrp:64",
        ),
        (
            !labelled && is_typed,
            "this dataset has no labels of any type, so only `train --task link` can use it",
        ),
        (
            !labelled && manifest.links.is_none() && !is_typed,
            "this dataset has no labels, so only `train --task link` can use it. Add labels with \
             --nodes TABLE",
        ),
        (
            !has_train && (labelled || (manifest.links.is_none() && !is_typed)),
            "this dataset has no training split, which presample and train need. Draw one with \
             --random-split 0.6,0.2,0.2",
        ),
    ];
    lacks.into_iter().filter(|(lacks, _)| *lacks).map(|(_, note)| format!("note: {note}")).collect()
}

fn show(plan: &Plan, ui: &Ui) {
    ui.json(&json!({ "plan": plan, "memory": plan.memory(), "disk": plan.disk(), "seconds": plan.seconds() }));
    let edges = number_of(plan.num_edges, "edge", "edges");
    ui.say(format_args!(
        "{}: about {}, {edges}",
        plan.format,
        number_of(plan.num_vertices, "vertex", "vertices")
    ));
    let rows = plan.stages.iter().map(|stage| {
        let [memory, output, scratch] = [stage.memory, stage.output, stage.scratch].map(shown);
        vec![format!("  {}", stage.name), memory, output, scratch, format!("{:.1}", stage.seconds)]
    });
    ui.columns("  stage, memory, output, scratch, seconds", rows);
    let [memory, budget, mapped, disk, free] =
        [plan.memory(), plan.memory_budget, plan.mapped, plan.disk(), plan.disk_free].map(shown);
    ui.say(format_args!(
        "peak memory {memory} of {budget}, and {mapped} of mapped files; on disk at most {disk} of \
         {free} free; about {:.0} s",
        plan.seconds()
    ));
}
