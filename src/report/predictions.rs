//! Counts of the classes that `gsplit infer` predicted, from the files that it wrote.

use gsplit_preprocess::read::{PredictedClasses, predicted_classes};

use super::found::Found;
use super::page::Page;
use crate::inspect::words::percent;

/// Number of classes shown, the most frequent ones.
const SHOWN: usize = 100;

/// Adds the section, if a Parquet file of `found` has predictions of classes.
pub fn show(page: &mut Page, found: &Found) {
    let mut tables = Vec::new();
    for (name, path) in &found.tables {
        match predicted_classes(path) {
            Ok(Some(predicted)) => tables.push((name, predicted)),
            Ok(None) => {}
            Err(error) => page.leave_out(&format!("Predictions {name}"), error.to_string()),
        }
    }
    if tables.is_empty() {
        let learnt = found.runs.iter().filter_map(|run| run.scores()).any(|scores| !scores.splits.is_empty());
        let why = "no Parquet file with predicted classes is here: gsplit infer DATASET --checkpoint DIR --out predictions.parquet";
        return if learnt {
            page.leave_out("Predictions", why)
        };
    }
    page.section("Predictions", |page| {
        for (name, PredictedClasses { rows: all, classes: mut counts }) in tables {
            counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let row = |(class, count): &(String, u64)| {
                [class.clone(), count.to_string(), percent(*count as f64 / all.max(1) as f64)]
            };
            let rows: Vec<_> = counts.iter().take(SHOWN).map(row).collect();
            let most = if counts.len() > SHOWN { ", the most frequent" } else { "" };
            page.table(
                &format!("{name}: classes predicted for {all} vertices{most}"),
                &["class", "vertices", "portion"],
                &rows,
            );
        }
    });
}
