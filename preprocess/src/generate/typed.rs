//! Graphs of several types of vertices, of the shapes of OGB's MAG graphs.
//!
//! Returns: papers with features and classes, and authors, institutions and fields of study with
//! neither. Idea: vertex v of a type with enough vertices belongs to class v mod C; an edge joins
//! vertices of one class with probability 0.6, and its source is drawn by the square of a
//! random number, so a few vertices have most edges. Reverses are relations of their own, except
//! the reverses of citations. Numbers of vertices and edges: Hu et al., "Open Graph Benchmark",
//! NeurIPS 2020, section 5.1 (ogbn-mag), and "OGB-LSC", 2021, section 3.1 (MAG240M). Cost: O(1) an
//! edge, O(feature dimension) a paper.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use gsplit_kernels::Draws;
use gsplit_store::{
    Dataset, DatasetWriter, FeatureDtype, Progress, Provenance, Relation, Split, dataset_target,
    staging,
};
use serde::Serialize;

use super::{DrawnEdges, Purpose, edge_key, finished};
use crate::convert::RandomSplit;
use crate::csc::{Build, BuildOptions};
use crate::embed::{fill_normal, write_rows};
use crate::memory::Memory;
use crate::read::typed::{self, RawRelation, RawType, RawTypes};
use crate::{Error, Result};

/// Share of the edges that join vertices of one class.
const WITHIN: f32 = 0.6;
/// Noise of the features, in standard deviations of the centres of classes.
const NOISE: f32 = 2.0;

/// Options of `generate typed`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct TypedOptions {
    /// Types, relations, features and classes of this graph
    #[cfg_attr(feature = "cli", arg(long, value_enum))]
    pub shape: TypedShape,
    /// Share of its vertices and edges
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0.01))]
    pub scale: f64,
    /// Seed of all draws
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0))]
    pub seed: u64,
    /// Type of the stored feature values: f32, f16, bf16, or i8 (bytes with a scale for each row)
    #[cfg_attr(feature = "cli", arg(long, value_name = "TYPE", default_value_t = FeatureDtype::F32))]
    pub feature_dtype: FeatureDtype,
    /// Shares of the papers for training, validation and testing, chosen at random
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "TRAIN,VALID,TEST", default_value = "0.5,0.25,0.25")
    )]
    pub random_split: RandomSplit,
    /// Memory limit for the edges, e.g. 4GiB or 50% [default: half of the machine's]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE"))]
    #[serde(skip)]
    pub memory: Option<Memory>,
}

/// A graph whose shape is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum TypedShape {
    /// 1.9 million vertices of four types, 21 million edges without reverses
    #[serde(rename = "ogbn-mag")]
    #[cfg_attr(feature = "cli", value(name = "ogbn-mag"))]
    OgbnMag,
    /// 244 million vertices of three types, 1.7 billion edges without reverses
    #[serde(rename = "mag240m")]
    #[cfg_attr(feature = "cli", value(name = "mag240m"))]
    Mag240m,
}

/// A shape: the first type has features and labels.
struct MagShape {
    types: &'static [(&'static str, u64)],
    relations: &'static [(&'static str, &'static str, &'static str, u64)],
    dim: usize,
    classes: u32,
}

impl TypedShape {
    fn shape(self) -> MagShape {
        match self {
            Self::OgbnMag => MagShape {
                types: &[
                    ("paper", 736_389),
                    ("author", 1_134_649),
                    ("institution", 8_740),
                    ("field_of_study", 59_965),
                ],
                relations: &[
                    ("author", "affiliated_with", "institution", 1_043_998),
                    ("author", "writes", "paper", 7_145_660),
                    ("paper", "cites", "paper", 5_416_271),
                    ("paper", "has_topic", "field_of_study", 7_505_078),
                ],
                dim: 128,
                classes: 349,
            },
            Self::Mag240m => MagShape {
                types: &[("paper", 121_751_666), ("author", 122_383_112), ("institution", 25_721)],
                relations: &[
                    ("author", "affiliated_with", "institution", 44_592_586),
                    ("author", "writes", "paper", 386_022_720),
                    ("paper", "cites", "paper", 1_297_748_926),
                ],
                dim: 768,
                classes: 153,
            },
        }
    }
}

/// Generates the dataset at `out`, as [`super::generate`] does.
pub fn generate(
    options: &TypedOptions,
    out: &Path,
    force: bool,
    progress: &dyn Progress,
) -> Result<(Dataset, bool)> {
    let TypedOptions { scale, seed, .. } = *options;
    if !(scale > 0.0 && scale <= 1.0) {
        let option = "--scale";
        return Err(Error::Option(format!("{option} {scale}: expected a number above 0, up to 1")));
    }
    let command = "generate typed";
    let recorded = serde_json::to_value(options)
        .map_err(|error| Error::Option(format!("options cannot be recorded: {error}")))?;
    if !force && let Some(dataset) = finished(out, command, &recorded)? {
        staging::tidy(&dataset_target(out));
        return Ok((dataset, true));
    }
    let MagShape { types, relations, dim, classes } = options.shape.shape();
    let scaled = |count: u64| ((count as f64 * scale) as u64).max(1);
    let count_of = |name: &str| {
        types.iter().find(|(of, _)| *of == name).map_or(0, |&(_, count)| scaled(count))
    };
    let raw_types = types.iter().map(|&(name, count)| RawType {
        name: name.into(),
        count: scaled(count),
        ..RawType::default()
    });
    let raw_relations =
        relations.iter().zip(1..).map(|(&(source, name, target, edges), number)| {
            let topics = TopicEdges {
                sources: count_of(source),
                targets: count_of(target),
                classes: classes.into(),
                seed: seed.wrapping_add(number << 32),
            };
            let edges = DrawnEdges {
                vertices: topics.sources.max(topics.targets),
                draw: move |i| topics.edge(i),
                edges: scaled(edges),
                next: AtomicU64::new(0),
            };
            let relation =
                Relation { source: source.into(), name: name.into(), target: target.into() };
            RawRelation::of(relation, edges, PathBuf::from(name), true)
        });
    let edges = BuildOptions { drop_self_loops: true, ..BuildOptions::default() };
    let raw = typed::of(out, raw_types.collect(), raw_relations.collect(), edges, Vec::new())?;
    let mut writer = DatasetWriter::begin(out, force)?;
    let build = Build {
        source: raw.edges.as_ref(),
        ids: raw.ids,
        types: raw.types.as_ref().map(|RawTypes { types, .. }| types),
        node_ids: None,
        options: BuildOptions::default(),
        are_costs: false,
        memory: options.memory.unwrap_or_default(),
        scratch: writer.scratch().join("edges"),
    };
    let built = build.run(&mut writer, progress)?;
    build.clean_up()?;
    let (papers, n) = (scaled(types[0].1) as usize, writer.num_vertices() as usize);
    let mut labels: Vec<i32> = (0..papers).map(|v| (v % classes as usize) as i32).collect();
    labels.resize(n, -1);
    writer.add_labels(&labels)?;
    let splits = options.random_split.draw(papers, None, seed);
    for (split, vertices) in Split::ALL.into_iter().zip(splits) {
        if !vertices.is_empty() {
            writer.add_split(split, vertices)?;
        }
    }
    let mut rows = writer.feature_writer_of(0, options.feature_dtype, dim)?;
    let (centre_key, noise_key) = (Purpose::Centroids.key(seed), Purpose::Noise.key(seed));
    let mut centres = vec![0.0; classes as usize * dim];
    for (class, centre) in centres.chunks_mut(dim).enumerate() {
        fill_normal(&centre_key, class as u32, centre);
    }
    write_rows(&mut rows, papers, progress, |v, row| {
        fill_normal(&noise_key, v, row);
        let centre = &centres[(v % classes) as usize * dim..][..dim];
        row.iter_mut().zip(centre).for_each(|(value, centre)| *value = *value * NOISE + centre);
    })?;
    writer.add_features_of(0, rows)?;
    let provenance = Provenance {
        tool_version: env!("CARGO_PKG_VERSION").into(),
        command: command.into(),
        options: recorded,
        facts: BTreeMap::from([("duplicates_merged".to_string(), built.duplicates_merged)]),
        ..Provenance::default()
    };
    Ok((writer.finish(provenance)?, false))
}

/// The edges of a relation.
struct TopicEdges {
    sources: u64,
    targets: u64,
    classes: u64,
    seed: u64,
}

impl TopicEdges {
    /// Edge number `i`.
    fn edge(&self, i: u64) -> (u64, u64) {
        let (key, item) = edge_key(self.seed, i);
        let mut draws = Draws::new(&key, item);
        let unit = f64::from(draws.unit_f32());
        let source = ((unit * unit * self.sources as f64) as u64).min(self.sources - 1);
        let is_within = draws.unit_f32() < WITHIN;
        let target = u64::from(draws.below(self.targets as u32));
        let of_class = target - target % self.classes + source % self.classes;
        (source, if is_within && of_class < self.targets { of_class } else { target })
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::{NoProgress, verify};

    use super::*;

    #[test]
    fn a_small_mag_has_its_shape() {
        let folder = tempfile::tempdir().unwrap();
        let options = TypedOptions {
            shape: TypedShape::OgbnMag,
            scale: 0.001,
            seed: 3,
            feature_dtype: FeatureDtype::F32,
            random_split: "0.5,0.25,0.25".parse().unwrap(),
            memory: None,
        };
        let out = folder.path().join("mag");
        let (dataset, _) = generate(&options, &out, false, &NoProgress).unwrap();
        assert!(verify(&out).unwrap().iter().all(|finding| finding.problem.is_none()));
        let types = dataset.types().unwrap();
        let counts: Vec<u64> = types.vertices.iter().map(|of| of.count).collect();
        assert_eq!((counts, types.relations.len()), (vec![736, 1134, 8, 59], 7));
        let features = dataset.features_of(0).unwrap().unwrap();
        assert_eq!((features.dim(), dataset.split(Split::Train).unwrap().len()), (128, 368));
        assert!(generate(&options, &out, false, &NoProgress).unwrap().1, "reused");
        let wrong = TypedOptions { scale: 1.5, ..options };
        let error = generate(&wrong, &out, false, &NoProgress).unwrap_err().to_string();
        assert!(error.contains("--scale 1.5: expected a number above 0, up to 1"), "{error}");
    }
}
