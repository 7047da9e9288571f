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
    /// The maps in the order in which they were given, then a random partition for each number of
    /// parts.
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
    /// Number of servers that the parts are on.
    pub servers: u32,
    /// Over all layers.
    pub all: LayerEvaluation,
    /// Layers from the seeds' downwards. The last one exchanges feature rows.
    pub layers: Vec<LayerEvaluation>,
    /// Most feature rows that a rank loads over the mean.
    pub input_imbalance: f64,
    /// Work of data parallelism on as many ranks.
    pub data: Work,
    /// Work of `--split-layers`, from 0 (`--parallelism owned`) to all layers (split parallelism,
    /// which does everything once).
    pub split_layers: Vec<Work>,
    /// Expectation compared with the measurement, where there is a presample of such mini-batches.
    pub expectation: Option<Expectation>,
}

impl MapEvaluation {
    /// Work of split parallelism.
    pub fn split(&self) -> &Work {
        &self.split_layers[self.layers.len()]
    }
}

/// Effect of a map on one layer, or on all together, as means over mini-batches (GSplit's Figure
/// 5).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerEvaluation {
    /// Share of the sampled edges whose ends are in different parts; 0 of a layer without edges.
    pub cross_share: f64,
    /// Share of the sampled edges whose ends are on different servers, where the map has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_server_share: Option<f64>,
    /// Most sampled edges of a rank over the mean; an edge is charged to the owner of its
    /// destination.
    pub edge_imbalance: f64,
    /// Most vertices that a rank computes over the mean.
    pub vertex_imbalance: f64,
    /// Rows that ranks receive from others in one forward pass.
    pub rows_exchanged: f64,
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
    /// Edges computed over all layers.
    pub fn edges(&self) -> f64 {
        self.layers.iter().map(|layer| layer.edges).sum()
    }

    /// Rows that ranks receive from others in one forward pass, over all layers.
    pub fn rows_exchanged(&self) -> f64 {
        self.layers.iter().map(|layer| layer.rows_exchanged).sum()
    }

    /// Means over the mini-batches of `counts`, each the work of `parts` ranks.
    pub(super) fn of<'a>(counts: impl Iterator<Item = &'a Counts> + Clone, parts: u32) -> Self {
        let batches = counts.clone().count() as u64;
        let mean =
            |each: &dyn Fn(&Counts) -> u64| ratio(counts.clone().map(each).sum(), batches, 0.0);
        let over =
            |most: f64, all: f64| if all > 0.0 { most * f64::from(parts) / all } else { 1.0 };
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
    let over =
        |of: &dyn Fn(&Record) -> u64| mean(measured.records.iter().map(|record| of(record) as f64));
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
fn map(
    setting: &Setting,
    candidate: &MeasuredMap<'_>,
    records: &[Record],
    i: usize,
) -> MapEvaluation {
    let (parts, servers) = (candidate.layout.parts(), candidate.layout.servers());
    let work = |of: &dyn Fn(&Record) -> &Counts| Work::of(records.iter().map(of), parts);
    MapEvaluation {
        key: candidate.key.map(str::to_string),
        parts,
        servers,
        all: LayerEvaluation::of(records, candidate.layout, &|record| {
            let (counts, whole) = (&record.split[i], record.whole(i));
            let layer = SplitLayer {
                cross: record.cross(i),
                cross_servers: counts.layers.iter().map(|layer| layer.cross_servers).sum(),
                max_edges: whole.most_edges,
                max_vertices: counts.max_vertices,
            };
            (layer, whole.layers.iter().map(|layer| layer.exchanged).sum(), record.size())
        }),
        layers: (0..setting.fanouts.len())
            .map(|layer| {
                LayerEvaluation::of(records, candidate.layout, &|record| {
                    (
                        record.split[i].layers[layer],
                        record.whole(i).layers[layer].exchanged,
                        record.layers[layer],
                    )
                })
            })
            .collect(),
        input_imbalance: mean(
            records.iter().map(|record| imbalance(record.whole(i).most_rows, record.input, parts)),
        ),
        data: work(&|record| &record.data[i]),
        split_layers: (0..=setting.fanouts.len())
            .map(|layers| work(&|record| &record.in_part[i][layers]))
            .collect(),
        expectation: None,
    }
}

impl LayerEvaluation {
    /// `of` returns a layer's counts, the rows that it exchanges, and its size.
    fn of(
        records: &[Record],
        layout: Layout,
        of: &dyn Fn(&Record) -> (SplitLayer, u64, Size),
    ) -> Self {
        let over = |measure: &dyn Fn(SplitLayer, u64, Size) -> f64| {
            mean(records.iter().map(|record| {
                let (counts, exchanged, size) = of(record);
                measure(counts, exchanged, size)
            }))
        };
        let parts = layout.parts();
        Self {
            cross_server_share: (layout.servers() > 1)
                .then(|| over(&|counts, _, size| ratio(counts.cross_servers, size.edges, 0.0))),
            cross_share: over(&|counts, _, size| ratio(counts.cross, size.edges, 0.0)),
            edge_imbalance: over(&|counts, _, size| imbalance(counts.max_edges, size.edges, parts)),
            vertex_imbalance: over(&|counts, _, size| {
                imbalance(counts.max_vertices, size.vertices, parts)
            }),
            rows_exchanged: over(&|_, exchanged, _| exchanged as f64),
        }
    }
}
