//! Notes on deficiencies of a graph for link prediction.

use gsplit_kernels::Graph;
use gsplit_kernels::schedule::HeldOutLinks;
use gsplit_store::{Dataset, WITHOUT_LINKS};

use super::LinkSplit;
use crate::config::TaskConfig;

/// Notes on learning `split` of `dataset`, whose whole graph is `graph`.
pub fn notes(
    dataset: &Dataset,
    split: &LinkSplit,
    graph: &Graph<'_>,
    config: &TaskConfig,
) -> Vec<String> {
    [flatters(dataset, split, config), one_way(split, graph)].into_iter().flatten().collect()
}

/// Warns if features made from the structure reveal held-out links.
fn flatters(dataset: &Dataset, split: &LinkSplit, config: &TaskConfig) -> Option<String> {
    let generated = dataset.manifest().features.as_ref()?.generated.as_ref()?;
    let wanted =
        HeldOutLinks { share: config.valid_edges + config.test_edges, seed: config.edge_seed };
    let without = generated
        .split_once(WITHOUT_LINKS)
        .and_then(|(_, links)| links.parse::<HeldOutLinks>().ok());
    let tells = generated.starts_with("fastrp") && split.links().is_none() && wanted.share > 0.0;
    (tells && !without.is_some_and(|without| without.are(&wanted))).then(|| {
        // 0.05 + 0.1 is a little more than 0.15 in binary.
        let wanted = HeldOutLinks { share: (wanted.share * 1e9).round() / 1e9, ..wanted };
        format!(
            "note: valid and test scores flatter: the features ({generated}) are of a graph with \
             the links that are held out; convert it \
             with --held-out-links {wanted} for scores to go by"
        )
    })
}

/// Warns if no edge leads to any source.
fn one_way(split: &LinkSplit, graph: &Graph<'_>) -> Option<String> {
    let (kinds, first) = (split.kinds(), |v: u32| graph.indptr[v as usize]);
    let sources = kinds.sources();
    (kinds.are_two() && first(sources.start) == first(sources.end)).then(|| {
        "note: all edges lead from sources to targets, so the rows of sources are made of their \
         own features alone: convert with \
         --symmetrise for those of their targets too"
            .to_string()
    })
}
