//! Inputs of training on vertices of several types, and the options that are refused there.

use std::ops::Range;
use std::sync::Arc;

use gsplit_kernels::RowLayout;
use gsplit_store::Dataset;

use crate::config::{Config, Device, DrawKind, ModelKind};
use crate::job::hooks::Hooks;
use crate::model::{Embeddings, Typed};
use crate::{Error, Result};

/// The rows of the vertices of `dataset`, if they have several types.
pub fn layout(dataset: &Dataset) -> Result<Option<RowLayout>> {
    Ok(dataset.types().map(|types| RowLayout::new(types.shapes())).transpose()?)
}

/// The types of `dataset` with their learnt rows, if there are several. Processes have a copy of
/// these each.
pub fn typed(dataset: &Dataset, config: &Config, hooks: &Hooks) -> Option<Typed> {
    let types = dataset.types()?;
    let shards = if hooks.process.is_some() { 1 } else { config.num_ranks() };
    let embeddings = Arc::new(Embeddings::new(types, config, shards));
    Some(Typed { types: types.clone(), embeddings })
}

/// The vertices of the type that the splits of `dataset` are of, if there are several types.
///
/// # Errors
/// [`Error::Data`] if the splits are of several types, or there are none.
pub fn target(dataset: &Dataset) -> Result<Option<Range<u32>>> {
    let Some(types) = dataset.types() else { return Ok(None) };
    let mut ends = Vec::new();
    for split in dataset.manifest().splits() {
        let vertices = dataset.split(split)?;
        ends.extend([vertices.first(), vertices.last()].into_iter().flatten().copied());
    }
    let ranges = types.rows().into_iter().map(|of| {
        let [start, end] = [of.vertices.start, of.vertices.end].map(|end| end as u32);
        start..end
    });
    let mut ranges = ranges.filter(|range| ends.iter().any(|v| range.contains(v)));
    match (ranges.next(), ranges.next()) {
        (Some(range), None) => Ok(Some(range)),
        (found, _) => {
            let path = dataset.path().to_path_buf();
            let what = if found.is_some() { "vertices of several types" } else { "no vertices" };
            let problem = format!("its splits have {what}: infer predicts one type of vertices");
            Err(Error::Data { path, problem })
        }
    }
}

/// Refuses options that vertices of several types cannot have.
pub fn check(dataset: &Dataset, config: &Config, hooks: &Hooks) -> Result<()> {
    if dataset.types().is_none() {
        return Ok(());
    }
    let parallelism = config.system.parallelism;
    let own_layer = hooks.layer.is_some();
    let refused = [
        (config.data.task.is_link(), "--task link", "choose --task node or regression"),
        (
            !matches!(config.model.kind, ModelKind::Sage | ModelKind::Gat) && !own_layer,
            "--model",
            "choose sage or gat",
        ),
        (
            parallelism.slices_columns() || parallelism.cooperates(),
            "--parallelism push-pull and cooperative",
            "choose single, data or split",
        ),
        (config.system.device == Device::Cuda, "--device cuda", "choose cpu"),
        (config.data.draw.kind == DrawKind::Locality, "--draw locality", "leave it out"),
    ];
    match refused.into_iter().find(|(is_refused, ..)| *is_refused) {
        None => Ok(()),
        Some((_, option, remedy)) => Err(Error::Option(format!(
            "{option}: {} has several types of vertices, for which this is not possible yet: \
             {remedy}",
            dataset.path().display()
        ))),
    }
}
