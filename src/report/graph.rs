//! Figures of the graph.

use anyhow::Result;
use gsplit::chart::{Axis, Bars, Line, Lines, Scale, Series};
use gsplit::ui::bytes;
use gsplit_store::Dataset;

use super::page::Page;
use crate::describe::{describe_features, recipe_rows, split_sizes};
use crate::figures::{ClassCount, Degrees, Figures};
use crate::inspect::{origin, words};

/// Adds the section.
pub fn show(page: &mut Page, dataset: &Dataset, figures: &Figures) -> Result<()> {
    let manifest = dataset.manifest();
    let splits: Vec<String> =
        split_sizes(dataset)?.into_iter().map(|(split, size)| format!("{} {size}", split.name())).collect();
    let total: u64 = manifest.files.values().map(|record| record.bytes).sum();
    let mut facts = vec![
        ("vertices", manifest.num_vertices.to_string()),
        ("edges", manifest.num_edges.to_string()),
        ("features", manifest.features.as_ref().map_or_else(|| "none".into(), describe_features)),
        ("splits", if splits.is_empty() { "none".into() } else { splits.join(", ") }),
    ];
    facts.extend(words::facts(figures));
    facts.push(("on disk", bytes(total)));
    facts.push(("made by", origin::command_line(dataset)));
    facts.extend(manifest.provenance.decisions.iter().map(|decision| ("understood", decision.clone())));
    page.section("Graph", |page| {
        page.facts(&facts);
        if let Some(recipe) = &manifest.recipe {
            let rows: Vec<Vec<String>> = recipe_rows(recipe).into_iter().map(Vec::from).collect();
            page.table("Columns of the table", &["column", "taken for", "as"].map(String::from), &rows);
        }
        page.table("Quantiles of the degrees", &words::DEGREE_HEAD, &words::degree_rows(figures));
        page.charts(|page| {
            degrees(page, figures);
            classes(page, figures);
        });
    });
    Ok(())
}

/// The histogram of the degrees, both axes logarithmic.
fn degrees(page: &mut Page, figures: &Figures) {
    let out = figures.edges.as_ref().and_then(|edges| edges.out_degree.as_ref());
    // Those of a symmetric graph are the same.
    let names = if out == figures.in_degree.as_ref() {
        [("in and out", out), ("", None)]
    } else {
        [("in", figures.in_degree.as_ref()), ("out", out)]
    };
    let known: Vec<(&str, &Degrees)> = names.into_iter().filter_map(|(name, degrees)| Some((name, degrees?))).collect();
    // A bar of degrees from d to 2 d - 1 as a point: its middle, and the mean of its d degrees.
    let line = |(i, (name, degrees)): (usize, &(&str, &Degrees))| {
        let bars = degrees.histogram.iter().filter(|bar| bar.from > 0);
        Line::new(
            name,
            i,
            bars.map(|bar| {
                let from = f64::from(bar.from);
                [(from * (2.0 * from - 1.0)).sqrt(), bar.vertices as f64 / from]
            }),
        )
    };
    let chart = Lines {
        x: Axis::new("degree", Scale::Log),
        y: Axis::new("vertices of a degree", Scale::Log),
        lines: known.iter().enumerate().map(line).collect(),
    };
    let head: Vec<String> =
        ["degrees from"].into_iter().chain(known.iter().map(|(name, _)| *name)).map(String::from).collect();
    let most = known.iter().map(|(_, degrees)| degrees.histogram.len()).max().unwrap_or(0);
    let from = |at: usize| if at == 0 { 0 } else { 1u64 << (at - 1) };
    let rows: Vec<Vec<String>> = (0..most)
        .map(|at| {
            let count = |degrees: &Degrees| degrees.histogram.get(at).map_or(0, |bar| bar.vertices).to_string();
            [from(at).to_string()].into_iter().chain(known.iter().map(|(_, degrees)| count(degrees))).collect()
        })
        .collect();
    page.chart_with("Vertices by degree: each point the mean of the degrees from d to 2d - 1", &chart, &head, &rows);
}

/// The most frequent classes.
fn classes(page: &mut Page, figures: &Figures) {
    let Some(classes) = figures.classes.as_ref().filter(|classes| !classes.is_empty()) else { return };
    let top = words::top_classes(classes);
    let chart = Bars {
        label: "vertices".into(),
        floor: 0.0,
        groups: top.iter().map(ClassCount::shown).collect(),
        series: vec![Series::new("vertices", 0, top.iter().map(|count| count.vertices as f64))],
        stacked: false,
    };
    let head = ["class", "vertices"].map(String::from);
    let rows: Vec<Vec<String>> = classes.iter().map(|count| vec![count.shown(), count.vertices.to_string()]).collect();
    page.chart_with("The most frequent classes", &chart, &head, &rows);
}
