//! Degree-corrected planted partition: communities to be recognised, with power-law degrees.
//!
//! Returns: any edge by its number; labels, and features that become telling only when neighbours
//! are averaged. Input: at least two communities, and no more than vertices. Idea: an edge picks a
//! community, stays in it or, with probability `mixing`, leads to another, and picks its ends by
//! their propensity, the expected degree. The propensity of a community's vertex at relative rank x
//! is (x + r)^-a with a = 1/(exponent - 1), which gives a power law of degrees; its distribution
//! function has a closed inverse, so no table is needed. The offset r caps the largest expected
//! degree at √(community size · mean degree), where two hubs of a community are joined about once:
//! more would only be merged as duplicates. Source: Karrer, Newman, "Stochastic blockmodels and
//! community structure in networks", Phys. Rev. E 83, 2011, section II. Cost: O(1) an edge,
//! O(feature dimension) a vertex.

use std::ops::Range;

use gsplit_kernels::Draws;
use gsplit_store::{FeatureWriter, Progress};
use rayon::prelude::*;
use serde::Serialize;

use super::{GraphOptions, Model, Purpose, edge_key};
use crate::convert::RandomSplit;
use crate::embed::{MAX_DIM, fill_normal, write_rows};
use crate::{Error, Result};

/// Largest number of communities.
const MAX_CLASSES: u32 = 1 << 16;

/// Options of `generate community`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct CommunityOptions {
    /// The graph.
    #[cfg_attr(feature = "cli", command(flatten))]
    #[serde(flatten)]
    pub graph: GraphOptions,
    /// Number of communities, which are the labels
    #[cfg_attr(feature = "cli", arg(long, value_name = "C", default_value_t = 16))]
    pub classes: u32,
    /// Exponent of the power law of degrees: 2.1 is very skewed, 100 nearly regular
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 2.5))]
    pub exponent: f64,
    /// Share of the edges that lead to another community
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0.2))]
    pub mixing: f64,
    /// Values of a feature row
    #[cfg_attr(feature = "cli", arg(long, value_name = "D", default_value_t = 64))]
    pub feature_dim: u32,
    /// Noise of the features: 1 is half the distance between the centres of two classes
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0.7))]
    pub noise: f64,
    /// Share of the vertices whose label is drawn at random
    #[cfg_attr(feature = "cli", arg(long, default_value_t = 0.0))]
    pub label_noise: f64,
    /// Shares of the vertices for training, validation and testing, chosen at random
    #[cfg_attr(
        feature = "cli",
        arg(long, value_name = "TRAIN,VALID,TEST", default_value = "0.5,0.25,0.25")
    )]
    pub random_split: RandomSplit,
}

impl CommunityOptions {
    pub(super) fn check(&self) -> Result<()> {
        let limit = self.graph.vertices.min(MAX_CLASSES);
        let problems = [
            ("--classes", f64::from(self.classes), 2.0..=f64::from(limit)),
            ("--exponent", self.exponent, 2.1..=100.0),
            ("--mixing", self.mixing, 0.0..=1.0),
            ("--noise", self.noise, 0.0..=1e6),
            ("--label-noise", self.label_noise, 0.0..=1.0),
            ("--feature-dim", f64::from(self.feature_dim), 1.0..=f64::from(MAX_DIM)),
        ];
        match problems.into_iter().find(|(_, got, range)| !range.contains(got)) {
            None => Ok(()),
            Some((option, got, range)) => Err(Error::Option(format!(
                "{option}: expected a number from {} to {}, got {got}",
                range.start(),
                range.end()
            ))),
        }
    }

    /// The label of every vertex.
    pub(super) fn labels(&self, communities: &[u32]) -> Vec<i32> {
        let key = Purpose::Labels.key(self.graph.seed);
        let label = |(v, &community): (usize, &u32)| {
            let mut draws = Draws::new(&key, v as u32);
            let random = f64::from(draws.unit_f32()) < self.label_noise;
            (if random { draws.below(self.classes) } else { community }) as i32
        };
        communities.par_iter().enumerate().map(label).collect()
    }

    /// Writes the feature rows: the centre of the vertex's community, a standard normal vector,
    /// plus normal noise; scaled to variance 1. Two centres are about √(2·dim) apart.
    pub(super) fn write_features(
        &self,
        communities: &[u32],
        writer: &mut FeatureWriter,
        progress: &dyn Progress,
    ) -> Result<()> {
        let dim = self.feature_dim as usize;
        let mut centres = vec![0.0; self.classes as usize * dim];
        let centre_key = Purpose::Centroids.key(self.graph.seed);
        centres
            .chunks_mut(dim)
            .enumerate()
            .for_each(|(class, centre)| fill_normal(&centre_key, class as u32, centre));

        let noise = self.noise * (f64::from(self.feature_dim) / 2.0).sqrt();
        let scale = (1.0 + noise * noise).sqrt().recip();
        let (noise, scale) = ((noise * scale) as f32, scale as f32);
        let key = Purpose::Noise.key(self.graph.seed);
        write_rows(writer, communities.len(), progress, |v, row| {
            fill_normal(&key, v, row);
            let centre = &centres[communities[v as usize] as usize * dim..][..dim];
            row.iter_mut()
                .zip(centre)
                .for_each(|(value, centre)| *value = *value * noise + centre * scale);
        })
    }
}

/// The model. Positions of a community are consecutive, vertices of high propensity first.
pub(super) struct Planted {
    vertices: u32,
    classes: u32,
    mixing: f32,
    seed: u64,
    /// 1 - a.
    power: f64,
    /// r, in units of the community's size.
    offset: f64,
    /// r^(1-a) and (1 + r)^(1-a), between which the distribution function is linear in the random
    /// number.
    ends: [f64; 2],
}

impl Planted {
    /// The model; the options have passed their check.
    pub(super) fn new(options: &CommunityOptions) -> Self {
        let GraphOptions { vertices, edges, seed, .. } = options.graph;
        let power = 1.0 - 1.0 / (options.exponent - 1.0);
        let mean_degree = (2.0 * edges as f64 / f64::from(vertices)).max(1.0);
        let size = f64::from(vertices) / f64::from(options.classes);
        let offset = offset_for_peak(power, (size / mean_degree).sqrt());
        let ends = [offset.powf(power), (1.0 + offset).powf(power)];
        Self {
            vertices,
            classes: options.classes,
            mixing: options.mixing as f32,
            seed,
            power,
            offset,
            ends,
        }
    }

    /// The community of every vertex; the vertex at position `p` is `order[p]`.
    pub(super) fn communities(&self, order: &[u32]) -> Vec<u32> {
        let mut communities = vec![0; order.len()];
        for class in 0..self.classes {
            for &v in &order[self.members(class)] {
                communities[v as usize] = class;
            }
        }
        communities
    }

    /// Positions of a community.
    fn members(&self, class: u32) -> Range<usize> {
        let start = |class| {
            (u64::from(class) * u64::from(self.vertices) / u64::from(self.classes)) as usize
        };
        start(class)..start(class + 1)
    }

    /// A position of `class`, by propensity.
    fn draw_member(&self, class: u32, draws: &mut Draws) -> u32 {
        let members = self.members(class);
        // 53 random bits: 24 would leave positions of a large community unreachable.
        let bits = u64::from(draws.next_u32()) << 21 | u64::from(draws.next_u32() >> 11);
        let unit = bits as f64 / (1u64 << 53) as f64;
        let [low, high] = self.ends;
        let rank = (low + (high - low) * unit).powf(self.power.recip()) - self.offset;
        let position = (rank.clamp(0.0, 1.0) * members.len() as f64) as usize;
        (members.start + position.min(members.len() - 1)) as u32
    }
}

impl Model for Planted {
    fn edge(&self, i: u64) -> (u32, u32) {
        let (key, item) = edge_key(self.seed, i);
        let mut draws = Draws::new(&key, item);
        let from = draws.below(self.classes);
        let leaves = draws.unit_f32() < self.mixing;
        let to =
            if leaves { (from + 1 + draws.below(self.classes - 1)) % self.classes } else { from };
        (self.draw_member(from, &mut draws), self.draw_member(to, &mut draws))
    }
}

/// The offset r at which the largest propensity is `peak` times the mean: (1-a) r^-a / ((1+r)^(1-a) -
/// r^(1-a)) = peak, by bisection. A peak of 1 or less gives nearly equal propensities.
fn offset_for_peak(power: f64, peak: f64) -> f64 {
    let peak_at = |r: f64| power * r.powf(power - 1.0) / ((1.0 + r).powf(power) - r.powf(power));
    let (mut low, mut high) = (1e-12f64.ln(), 1e4f64.ln());
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if peak_at(middle.exp()) > peak { low = middle } else { high = middle }
    }
    high.exp()
}
