//! Contents of a dataset, as `convert`, `generate` and `inspect` print them.

use gsplit_store::{
    Columns, Dataset, DatasetManifest, FeatureEncoding, FeatureInfo, GraphTypes, LinkNegatives,
    Recipe, Split,
};
use serde_json::{Map, Value, json};

use crate::ui::{Ui, peak_rss_mb};

/// The splits of the dataset with their sizes.
pub fn split_sizes(dataset: &Dataset) -> gsplit_store::Result<Vec<(Split, usize)>> {
    dataset
        .manifest()
        .splits()
        .into_iter()
        .map(|split| Ok((split, dataset.split(split)?.len())))
        .collect()
}

/// The splits as a JSON object.
pub fn splits_json(splits: &[(Split, usize)]) -> Value {
    splits
        .iter()
        .map(|(split, size)| (split.name().to_string(), json!(size)))
        .collect::<Map<_, _>>()
        .into()
}

/// A value as on the command line: lists have commas.
pub fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(as_text).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

/// A score, or a dash if there is none.
pub fn score(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |value| format!("{value:.4}"))
}

/// `count` followed by the word for `one` or for `several`.
pub fn number_of(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Prints the size of the graph, then features, labels and splits, one line each.
pub fn say_content(dataset: &Dataset, splits: &[(Split, usize)], ui: &Ui) {
    let manifest = dataset.manifest();
    let facts = &manifest.provenance.facts;
    let counted = |key: &str, words: &str| match facts.get(key) {
        Some(&count) if count > 0 => format!(", {count} {words}"),
        _ => String::new(),
    };
    let changes = counted("duplicates_merged", "duplicates merged")
        + &counted("self_loops_dropped", "self-loops dropped")
        + &counted("weights_missing", "edges without a weight (NaN)");
    ui.say(format_args!(
        "{}: {}, {}{changes}",
        dataset.name(),
        number_of(manifest.num_vertices, "vertex", "vertices"),
        number_of(manifest.num_edges, "edge", "edges")
    ));
    if let Some(shard) = dataset.shard() {
        let origin = dataset.fingerprint();
        let held = match (dataset.owned(), shard.columns()) {
            (Some(owned), _) => format!("features and labels of {} vertices", owned.len()),
            (None, columns) => {
                let (held, dim) = columns.unwrap_or_default();
                format!(
                    "columns {} to {} of {dim} of the features",
                    held.start,
                    held.end.saturating_sub(1)
                )
            }
        };
        ui.say(format!("  shard     {}", shard.to_string().trim_start_matches("the shard ")));
        ui.say(format!("            {held}; the whole dataset is {origin}"));
    }
    if let Some(types) = dataset.types() {
        for of in &types.vertices {
            let features =
                of.features.as_ref().map_or("no features".to_string(), describe_features);
            let count = number_of(of.count, "vertex", "vertices");
            ui.say(format_args!("  type      {}: {count}, {features}", of.name));
        }
        for (relation, edges) in types.relations.iter().zip(relation_sizes(dataset, types)) {
            ui.say(format_args!("  relation  {relation}: {}", number_of(edges, "edge", "edges")));
        }
    }
    ui.say(match &manifest.features {
        _ if dataset.types().is_some() => "  features  by type".into(),
        Some(features) => format!("  features  {}", describe_features(features)),
        None => "  features  none".into(),
    });
    ui.say(match manifest.num_classes {
        Some(classes) if manifest.multi_label => {
            format!(
                "  labels    {classes} classes, any number of them a vertex{}{}",
                counted("label_cells_missing", "cells without a value"),
                counted("unlabelled", "vertices unlabelled")
            )
        }
        Some(classes) => {
            format!("  labels    {classes} classes{}", counted("unlabelled", "vertices unlabelled"))
        }
        None if manifest.numeric_label => {
            format!("  labels    a number a vertex{}", counted("unlabelled", "vertices unlabelled"))
        }
        None => "  labels    none".into(),
    });
    if let Some(names) = &manifest.class_names {
        ui.say(format_args!("  classes   {}", first_of(names)));
    }
    if let Some(recipe) = &manifest.recipe {
        say_recipe(recipe, ui);
    }
    say_columns(manifest, ui);
    let sizes: Vec<String> =
        splits.iter().map(|(split, size)| format!("{} {size}", split.name())).collect();
    ui.say(format!(
        "  splits    {}",
        if sizes.is_empty() { "none".into() } else { sizes.join(", ") }
    ));
    if let Some(links) = &manifest.links {
        let negatives = match links.negatives {
            Some(LinkNegatives::Pairs) => "the same negative pairs for all edges",
            Some(LinkNegatives::Targets) => "negative targets for each edge",
            None => "no negatives",
        };
        ui.say(format_args!(
            "  links     train, valid and test, with {negatives}; scored by {}",
            links.metric
        ));
    }
}

/// Number of edges of each relation.
fn relation_sizes(dataset: &Dataset, types: &GraphTypes) -> Vec<u64> {
    let mut sizes = vec![0; types.relations.len()];
    let mut lengths =
        dataset.topology().rows().unwrap_or_default().windows(2).map(|ends| ends[1] - ends[0]);
    for (at, of) in types.vertices.iter().enumerate() {
        let relations = types.into_type(at);
        for _ in 0..of.count {
            relations.iter().zip(&mut lengths).for_each(|(&place, length)| sizes[place] += length);
        }
    }
    sizes
}

/// Columns of the vertex table: name, use, and how they were converted.
fn recipe_rows(recipe: &Recipe) -> Vec<[String; 3]> {
    let row = |column: &String, role: &str, how: String| [column.clone(), role.to_string(), how];
    let mut rows = vec![row(&recipe.id, "id", String::new())];
    let classes = first_of(&recipe.classes);
    rows.extend(recipe.label.iter().map(|column| row(column, "label", classes.clone())));
    rows.extend(recipe.splits.iter().map(|column| row(column, "split", String::new())));
    for feature in &recipe.features {
        let mut how = match &feature.encoding {
            FeatureEncoding::Number { shift: 0.0, scale: 1.0 } => "as it is".to_string(),
            FeatureEncoding::Number { shift, scale } => {
                let (sign, shift) = if *shift < 0.0 { ("+", -shift) } else { ("-", *shift) };
                format!("scaled: (value {sign} {}) / {}", digits(shift, 4), digits(*scale, 4))
            }
            FeatureEncoding::Code { categories } => {
                format!("the place among {} values", categories.len())
            }
            FeatureEncoding::OneHot { categories, other } => {
                format!(
                    "one-hot: {}{}",
                    first_of(categories),
                    if *other { ", and other" } else { "" }
                )
            }
            FeatureEncoding::List { width } => format!("a list of {width}"),
        };
        if let (Some(fill), FeatureEncoding::Number { .. }) = (feature.fill, &feature.encoding) {
            let is_mean = matches!(feature.encoding, FeatureEncoding::Number { shift, .. } if shift != 0.0 && fill == shift as f32);
            let fill = if is_mean { "the mean".to_string() } else { digits(fill.into(), 4) };
            let indicator = match feature.indicator {
                true => format!(", and a column \"{} is missing\"", feature.column),
                false => String::new(),
            };
            how += &format!("; missing: {fill}{indicator}");
        }
        rows.push(row(&feature.column, "feature", how));
    }
    rows.extend(recipe.left_out.iter().map(|out| row(&out.column, "left out", out.why.clone())));
    rows
}

/// Prints the columns of the vertex table; only the first ones if there are many.
fn say_recipe(recipe: &Recipe, ui: &Ui) {
    let rows = recipe_rows(recipe);
    let width =
        rows.iter().take(SHOWN).map(|[column, ..]| column.chars().count()).max().unwrap_or(0);
    for (at, [column, role, how]) in rows.iter().take(SHOWN).enumerate() {
        let head = if at == 0 { "table" } else { "" };
        ui.say(format!("  {head:<9} {column:<width$}  {role:<8}  {how}").trim_end());
    }
    if rows.len() > SHOWN {
        ui.say(format!("            ... and {} more columns", rows.len() - SHOWN));
    }
}

/// The feature column on one line.
fn describe_features(features: &FeatureInfo) -> String {
    let origin =
        features.generated.as_ref().map(|how| format!(", generated by {how}")).unwrap_or_default();
    let (dim, dtype) = (features.dim, features.dtype);
    match &features.narrowing {
        None => format!("{dim} a vertex, {dtype}{origin}"),
        Some(loss) => {
            let [largest, mean, value] = [loss.max_abs_error, loss.rms_error, loss.max_abs_value]
                .map(|loss| digits(loss, 2));
            format!(
                "{dim} a vertex{origin}, stored as {dtype}: largest error {largest}, root mean \
                 square {mean}, \
                 of values up to {value}"
            )
        }
    }
}

/// Maximum number of names shown.
const SHOWN: usize = 20;

/// The first classes of `names`, each with its number.
pub fn numbered_classes(names: &[String]) -> String {
    first_of(
        &names
            .iter()
            .take(SHOWN + 1)
            .enumerate()
            .map(|(class, name)| format!("{class} {name}"))
            .collect::<Vec<_>>(),
    )
}

/// The first of `names`.
fn first_of(names: &[String]) -> String {
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

/// Formats a number with `significant` digits, or with all digits before the point.
pub fn digits(value: f64, significant: i32) -> String {
    match value.abs() {
        0.0 => "0".into(),
        magnitude @ 1e-4..1e15 => {
            let places = (significant - 1 - magnitude.log10().floor() as i32).max(0) as usize;
            let text = format!("{value:.places$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_string()
            } else {
                text
            }
        }
        _ => format!("{value:.*e}", significant as usize - 1),
    }
}

/// Prints the columns beyond features and labels, and whether the ids were strings; nothing if
/// neither applies.
fn say_columns(manifest: &DatasetManifest, ui: &Ui) {
    for (what, columns) in
        [("columns   ", &manifest.columns), ("edge data ", &manifest.edge_columns)]
    {
        if !columns.is_empty() {
            ui.say(format!("  {what}{}", describe_columns(columns)));
        }
    }
    if manifest.string_ids {
        ui.say("  ids       strings in the input, kept");
    }
    if manifest.first_id > 0 {
        ui.say(format!("  ids       count from {}, as in the input", manifest.first_id));
    }
}

fn describe_columns(columns: &Columns) -> String {
    let described = columns.iter().map(|(name, column)| match column.width {
        1 => format!("{name} ({})", column.descr),
        width => format!("{name} ({width} of {})", column.descr),
    });
    described.collect::<Vec<_>>().join(", ")
}

/// Prints a dataset that `convert` or `generate` just made or reused.
pub fn report(dataset: &Dataset, reused: bool, seconds: f64, ui: &Ui) -> anyhow::Result<()> {
    let manifest = dataset.manifest();
    let splits = split_sizes(dataset)?;
    ui.json(&json!({
        "name": dataset.name(),
        "path": dataset.path().display().to_string(),
        "num_vertices": manifest.num_vertices,
        "num_edges": manifest.num_edges,
        "num_classes": manifest.num_classes,
        "class_names": manifest.class_names,
        "multi_label": manifest.multi_label,
        "numeric_label": manifest.numeric_label,
        "features": manifest.features,
        "columns": manifest.columns,
        "edge_columns": manifest.edge_columns,
        "string_ids": manifest.string_ids,
        "first_id": manifest.first_id,
        "links": manifest.links,
        "recipe": manifest.recipe,
        "splits": splits_json(&splits),
        "facts": manifest.provenance.facts,
        "decisions": manifest.provenance.decisions,
        "reused": reused,
        "seconds": seconds,
        "stages": ui.stage_times(),
        "peak_rss_mb": peak_rss_mb(),
    }));
    say_content(dataset, &splits, ui);
    let place = dataset.path().display();
    ui.say(match reused {
        false => format!("written to {place} in {seconds:.1} s"),
        true => format!("already there, made the same way: {place}"),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use gsplit_store::{ColumnInfo, FeatureDtype, Narrowing};

    use super::*;

    #[test]
    fn losses_are_said_in_two_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.003_12, "0.0031"),
            (0.000_94, "0.00094"),
            (4.0, "4"),
            (97.4, "97"),
            (65504.0, "65504"),
            (1e-9, "1.0e-9"),
            (3e38, "3.0e38"),
        ] {
            assert_eq!(digits(value, 2), text);
        }
        let narrowing =
            Some(Narrowing { max_abs_error: 0.003_12, rms_error: 0.0009, max_abs_value: 1.0 });
        let features = FeatureInfo {
            dim: 8,
            dtype: FeatureDtype::I8,
            generated: None,
            narrowing,
            names: None,
        };
        assert_eq!(
            describe_features(&features),
            "8 a vertex, stored as i8: largest error 0.0031, root mean square 0.0009, of values up \
             to 1"
        );
    }

    #[test]
    fn columns_are_said_with_type_and_width() {
        let column = |descr: &str, width| ColumnInfo { descr: descr.into(), width };
        let columns =
            [("year".to_string(), column("<i2", 1)), ("embedding".to_string(), column("<f4", 64))];
        assert_eq!(describe_columns(&columns.into()), "embedding (64 of <f4), year (<i2)");
    }
}
