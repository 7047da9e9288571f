//! Figures of the graph.

use anyhow::Result;
use gsplit::ui::bytes;
use gsplit_store::Dataset;

use super::page::Page;
use crate::describe::{describe_features, recipe_rows, split_sizes};
use crate::figures::Figures;
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
    let facts: Vec<_> = facts.into_iter().map(|(name, fact)| [name.to_string(), fact]).collect();
    page.section("Graph", |page| {
        page.table("Figures of gsplit inspect", &["figure", "value"], &facts);
        page.table("Quantiles of the degrees", &words::DEGREE_HEAD, &words::degree_rows(figures));
        if let Some(recipe) = &manifest.recipe {
            page.table("Columns of the table", &["column", "taken for", "as"], &recipe_rows(recipe));
        }
    });
    Ok(())
}
