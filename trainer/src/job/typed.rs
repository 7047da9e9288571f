//! Inputs of training on vertices of several types, and the options that are refused there.

use std::ops::Range;
use std::sync::Arc;

use gsplit_kernels::{Graph, RowLayout};
use gsplit_sample::links::LinkRelation;
use gsplit_store::{Dataset, Relation};

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
pub fn typed(dataset: &Dataset, config: &Config, hooks: &Hooks) -> Result<Option<Typed>> {
    let Some(types) = dataset.types() else { return Ok(None) };
    let shards = if hooks.process.is_some() { 1 } else { config.num_ranks() };
    let moments = config.run.optimizer.moments().len();
    let embeddings = Arc::new(Embeddings::new(types, config, shards, moments)?);
    Ok(Some(Typed { types: types.clone(), embeddings }))
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

/// The relation of `graph` that links are learnt of, if vertices have several types.
///
/// # Errors
/// [`Error::Option`] if --relation does not name one relation.
pub fn relation(
    dataset: &Dataset,
    graph: &Graph<'_>,
    config: &Config,
) -> Result<Option<LinkRelation>> {
    let name = config.data.task.relation.as_deref();
    let refused = |problem: String| Err(Error::Option(format!("--relation: {problem}")));
    let (Some(types), Some(layout)) = (dataset.types(), graph.layout()) else {
        return match name {
            None => Ok(None),
            Some(_) => {
                refused("vertices have one type and edges no relations: leave it out".into())
            }
        };
    };
    let named = |text: &str| {
        let is_it = move |of: &&Relation| {
            name.is_none_or(|name| name == of.name || name == of.to_string())
                && of.to_string() == text
        };
        types.relations.iter().find(is_it)
    };
    let found: Vec<(usize, &Relation)> = (0..)
        .zip(layout.relations())
        .filter_map(|(place, text)| Some((place, named(text)?)))
        .collect();
    let &[(place, of)] = &found[..] else {
        let candidates = match found.is_empty() {
            true => layout.relations().to_vec(),
            false => found.iter().map(|(_, of)| of.to_string()).collect(),
        };
        let several = "the dataset has several relations";
        let problem = name.map_or(several.into(), |name| format!("`{name}` is not one relation"));
        return refused(format!("{problem}: choose one of {}", candidates.join(", ")));
    };
    let rows = types.rows();
    let vertices = |name: &str| {
        let of = types.position(name).map_or(0..0, |at| rows[at].vertices.clone());
        of.start as u32..of.end as u32
    };
    let is_back = |text: &&String| {
        let back = types.relations.iter().find(|other| other.to_string() == ***text);
        back.is_some_and(|back| back.source == of.target && back.target == of.source && back != of)
    };
    let back = (0..).zip(layout.relations()).filter(|(_, text)| is_back(text));
    let back: Vec<usize> = back.map(|(place, _)| place).collect();
    let ends = [&of.source, &of.target].map(|name| vertices(name));
    Ok(Some(LinkRelation::new(graph, layout, place, ends, &back)))
}

/// Refuses options that vertices of several types cannot have.
pub fn check(dataset: &Dataset, config: &Config, hooks: &Hooks) -> Result<()> {
    if dataset.types().is_none() {
        return Ok(());
    }
    let parallelism = config.system.parallelism;
    let own_layer = hooks.layer.is_some();
    let refused = [
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
