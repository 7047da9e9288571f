//! Report of the measurements, averaged over the mini-batches.

use gsplit_store::Presample;
use serde::Serialize;

use super::expectation::Expected;
use super::schedule::{Measured, Record, Size};
use super::split::SplitLayer;
use super::volume::Counts;
use super::{Expectation, MeasuredMap, Setting, imbalance, mean, ratio};
use crate::Layout;

/// Several maps, measured on the same mini-batches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// The mini-batches.
    #[serde(flatten)]
    pub setting: Setting,
    /// Key of the presample that expectations come from.
    pub presample: Option<String>,
    /// Contents of a mini-batch, whoever computes it.
    pub batch: BatchSize,
    /// The maps in the order in which they were given, then a random partition for each number of parts.
    pub maps: Vec<MapEvaluation>,
}

/// Size of a mini-batch, as means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchSize {
    /// Seeds.
    pub seeds: f64,
    /// Sampled edges over all layers.
    pub edges: f64,
    /// Distinct vertices whose features are loaded.
    pub input_rows: f64,
    /// Layers from the seeds' downwards.
    pub layers: Vec<LayerSize>,
}

/// Size of one layer of a mini-batch, as means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerSize {
    /// Vertices that it computes.
    pub vertices: f64,
    /// Sampled edges.
    pub edges: f64,
}

/// One map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MapEvaluation {
    /// Key of the map; `None` for the random partition.
    pub key: Option<String>,
    /// Number of parts, and so of ranks.
    pub parts: u32,
    /// Number of servers that the parts lie on.
    pub servers: u32,
    /// Over all layers.
    pub all: LayerEvaluation,
    /// Layers from the seeds' downwards. What the last one exchanges are feature rows.
    pub layers: Vec<LayerEvaluation>,
    /// Most feature rows that a rank loads over the mean.
    pub input_imbalance: f64,
    /// Work of split parallelism in a mini-batch, all ranks together: everything once.
    pub split: Volume,
    /// Work of data parallelism on as many ranks.
    pub data: Volume,
    /// The same by layer.
    pub data_work: Work,
    /// Data parallelism over split parallelism (GSplit's Table 1).
    pub redundancy: Volume,
    /// Work of `--split-layers` in a mini-batch, all ranks together: of 0 (`--parallelism owned`) to all layers.
    pub split_layers: Vec<InPart>,
    /// Expected beside measured, where there is a presample of such mini-batches.
    pub expectation: Option<Expectation>,
}

/// Effect of a map on one layer, or on all together, as means over mini-batches (GSplit's Figure 5).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerEvaluation {
    /// Share of the sampled edges whose ends lie in different parts; 0 of a layer without edges.
    pub cross_share: f64,
    /// Share of those whose ends lie on different servers, where the map has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_server_share: Option<f64>,
    /// Most sampled edges of a rank over the mean; an edge is charged to the owner of its destination.
    pub edge_imbalance: f64,
    /// Most vertices that a rank computes over the mean.
    pub vertex_imbalance: f64,
    /// Rows that ranks receive from others in one forward pass.
    pub rows_exchanged: f64,
}

/// Work of a mini-batch over all ranks, as means; or a ratio of two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Volume {
    /// Feature rows loaded.
    pub rows_loaded: f64,
    /// Sampled edges computed.
    pub edges: f64,
}

/// Work of a mini-batch over all ranks with some layers split, as means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InPart {
    /// Work done, some of it several times.
    #[serde(flatten)]
    pub volume: Volume,
    /// Rows that ranks receive from others in one forward pass.
    pub rows_exchanged: f64,
    /// The same by layer.
    pub work: Work,
}

/// Work of a mini-batch over all ranks by layer, as means.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// From the seeds' layer downwards.
    pub layers: Vec<LayerWork>,
    /// Feature rows loaded.
    pub rows_loaded: f64,
    /// Most edges that a rank computes over the mean.
    pub edge_imbalance: f64,
    /// Most feature rows that a rank loads over the mean.
    pub row_imbalance: f64,
}

/// Work of a layer over all ranks, as means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LayerWork {
    /// Vertices computed.
    pub vertices: f64,
    /// Edges computed.
    pub edges: f64,
    /// Rows that ranks receive from others in one forward pass.
    pub rows_exchanged: f64,
    /// Received rows that come from another server, where the map has several.
    pub rows_abroad: f64,
}

impl Work {
    /// Means over mini-batches, of which all ranks, so many as `parts`, do what `counts` say.
    pub(super) fn of<'a>(counts: impl Iterator<Item = &'a Counts> + Clone, parts: u32) -> Self {
        let batches = counts.clone().count() as u64;
        let mean = |each: &dyn Fn(&Counts) -> u64| ratio(counts.clone().map(each).sum(), batches, 0.0);
        let over = |most: f64, all: f64| if all > 0.0 { most * f64::from(parts) / all } else { 1.0 };
        let layers = counts.clone().next().map_or(0, |first| first.layers.len());
        let layer = |layer: usize| LayerWork {
            vertices: mean(&|counts| counts.layers[layer].vertices),
            edges: mean(&|counts| counts.layers[layer].edges),
            rows_exchanged: mean(&|counts| counts.layers[layer].exchanged),
            rows_abroad: mean(&|counts| counts.layers[layer].abroad),
        };
        Self {
            layers: (0..layers).map(layer).collect(),
            rows_loaded: mean(&|counts| counts.rows),
            edge_imbalance: over(mean(&|counts| counts.most_edges), mean(&Counts::edges)),
            row_imbalance: over(mean(&|counts| counts.most_rows), mean(&|counts| counts.rows)),
        }
    }
}

/// Averages `measured`; `expected` is of the same candidates.
pub(super) fn report(
    setting: &Setting,
    presample: Option<&Presample>,
    candidates: &[MeasuredMap<'_>],
    expected: Option<&Expected>,
    measured: &Measured,
) -> Evaluation {
    let over = |of: &dyn Fn(&Record) -> u64| mean(measured.records.iter().map(|record| of(record) as f64));
    let layers = (0..setting.fanouts.len()).map(|layer| LayerSize {
        vertices: over(&|record| record.layers[layer].vertices),
        edges: over(&|record| record.layers[layer].edges),
    });
    let maps = candidates.iter().enumerate().map(|(i, candidate)| MapEvaluation {
        expectation: expected.map(|expected| expected.beside(measured, i)),
        ..map(setting, candidate, &measured.records, i)
    });
    Evaluation {
        setting: setting.clone(),
        presample: presample.map(|presample| presample.key().to_string()),
        batch: BatchSize {
            seeds: over(&|record| record.seeds),
            edges: over(&Record::edges),
            input_rows: over(&|record| record.input),
            layers: layers.collect(),
        },
        maps: maps.collect(),
    }
}

/// Map `i`, without its expectation.
fn map(setting: &Setting, candidate: &MeasuredMap<'_>, records: &[Record], i: usize) -> MapEvaluation {
    let (parts, servers) = (candidate.layout.parts(), candidate.layout.servers());
    let sum = |of: &dyn Fn(&Record) -> u64| records.iter().map(of).sum::<u64>();
    let volume = |[rows, edges]: [f64; 2]| Volume { rows_loaded: rows, edges };
    let (split, data) = (
        [sum(&|record| record.input), sum(&Record::edges)],
        [sum(&|record| record.data[i].rows), sum(&|record| record.data[i].edges())],
    );
    let of_batch = |sum: u64| ratio(sum, records.len() as u64, 0.0);
    MapEvaluation {
        key: candidate.key.map(str::to_string),
        parts,
        servers,
        all: LayerEvaluation::of(records, candidate.layout, &|record| {
            let counts = &record.split[i];
            let total = |of: &dyn Fn(&SplitLayer) -> u64| counts.layers.iter().map(of).sum();
            let layer = SplitLayer {
                cross: total(&|layer| layer.cross),
                cross_servers: total(&|layer| layer.cross_servers),
                exchanged: total(&|layer| layer.exchanged),
                max_edges: counts.max_edges,
                max_vertices: counts.max_vertices,
            };
            (layer, record.size())
        }),
        layers: (0..setting.fanouts.len())
            .map(|layer| {
                LayerEvaluation::of(records, candidate.layout, &|record| {
                    (record.split[i].layers[layer], record.layers[layer])
                })
            })
            .collect(),
        input_imbalance: mean(records.iter().map(|record| imbalance(record.split[i].max_input, record.input, parts))),
        split: volume(split.map(of_batch)),
        data: volume(data.map(of_batch)),
        data_work: Work::of(records.iter().map(|record| &record.data[i]), parts),
        split_layers: (0..=setting.fanouts.len())
            .map(|layers| {
                let mean_of = |of: &dyn Fn(&Counts) -> u64| of_batch(sum(&|record| of(&record.in_part[i][layers])));
                InPart {
                    volume: volume([mean_of(&|counts| counts.rows), mean_of(&Counts::edges)]),
                    rows_exchanged: mean_of(&Counts::exchanged),
                    work: Work::of(records.iter().map(|record| &record.in_part[i][layers]), parts),
                }
            })
            .collect(),
        redundancy: volume([0, 1].map(|kind| ratio(data[kind], split[kind], 1.0))),
        expectation: None,
    }
}

impl LayerEvaluation {
    /// `of` tells a layer's counts and its size.
    fn of(records: &[Record], layout: Layout, of: &dyn Fn(&Record) -> (SplitLayer, Size)) -> Self {
        let over = |measure: &dyn Fn(SplitLayer, Size) -> f64| {
            mean(records.iter().map(|record| {
                let (counts, size) = of(record);
                measure(counts, size)
            }))
        };
        let parts = layout.parts();
        Self {
            cross_server_share: (layout.servers() > 1)
                .then(|| over(&|counts, size| ratio(counts.cross_servers, size.edges, 0.0))),
            cross_share: over(&|counts, size| ratio(counts.cross, size.edges, 0.0)),
            edge_imbalance: over(&|counts, size| imbalance(counts.max_edges, size.edges, parts)),
            vertex_imbalance: over(&|counts, size| imbalance(counts.max_vertices, size.vertices, parts)),
            rows_exchanged: over(&|counts, _| counts.exchanged as f64),
        }
    }
}
