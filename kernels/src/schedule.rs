//! Rules that several stages must agree on: the list of fanouts, the order in which an epoch visits
//! the seeds, and the held-out links.

use std::fmt;
use std::str::FromStr;

use crate::error::KernelError;
use crate::{Draws, Fanout, LayerFanout, RowLayout, Stream, StreamKey, permute};

/// Links that are held out of a graph to be predicted: a share of them, chosen by the unordered
/// pair of the ends. Parsed and printed like `0.15` or, with a seed other than 0, `0.15,7`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldOutLinks {
    /// Share of the links.
    pub share: f64,
    /// Seed of the choice.
    pub seed: u64,
}

impl HeldOutLinks {
    /// Whether the link between `u` and `v` is held out. A self-loop never is.
    pub fn holds(&self, u: u32, v: u32) -> bool {
        u != v && link_draw(self.seed, u, v) < self.share
    }

    /// Whether this equals `other`, up to the rounding of the share.
    pub fn are(&self, other: &Self) -> bool {
        self.seed == other.seed && (self.share - other.share).abs() < 1e-9
    }
}

impl FromStr for HeldOutLinks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem =
            || format!("`{text}`: expected a share below 1, as 0.15, or with a seed, as 0.15,7");
        let (share, seed) = text.split_once(',').unwrap_or((text, "0"));
        let share = share
            .trim()
            .parse()
            .ok()
            .filter(|share| (0.0..1.0).contains(share))
            .ok_or_else(problem)?;
        Ok(Self { share, seed: seed.trim().parse().map_err(|_| problem())? })
    }
}

impl fmt::Display for HeldOutLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.share)?;
        if self.seed == 0 { Ok(()) } else { write!(f, ",{}", self.seed) }
    }
}

/// Number in `[0, 1)` that decides the use of the link between `u` and `v`, in either direction:
/// below the held-out shares it is predicted, else it is trained on.
pub fn link_draw(seed: u64, u: u32, v: u32) -> f64 {
    let key = StreamKey { step: u.max(v), ..StreamKey::new(seed, Stream::Links) };
    f64::from(Draws::new(&key, u.min(v)).unit_f32())
}

/// The fanouts of each layer, from the seeds' layer downwards. Parsed and printed like `15,10,5`
/// or, with fanouts of relations, `10+cites=5,10`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fanouts(Vec<LayerFanout>);

impl Fanouts {
    /// Number of layers, 1 to 255.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The fanouts, from the seeds' layer downwards.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &LayerFanout> {
        self.0.iter()
    }

    /// Refuses fanouts that do not suit the relations of `layout`, or of a graph without types.
    ///
    /// # Errors
    /// [`KernelError::Relations`].
    pub fn check(&self, layout: Option<&RowLayout>) -> Result<(), KernelError> {
        self.iter().try_for_each(|layer| layer.check(layout))
    }
}

impl Default for Fanouts {
    /// GSplit's: 15 for the seeds, then 10, then 5.
    fn default() -> Self {
        [15, 10, 5].map(Fanout::Take).into()
    }
}

impl<const LAYERS: usize> From<[Fanout; LAYERS]> for Fanouts {
    fn from(fanouts: [Fanout; LAYERS]) -> Self {
        const { assert!(0 < LAYERS && LAYERS < 256) };
        Self(fanouts.map(LayerFanout::from).into())
    }
}

impl FromStr for Fanouts {
    type Err = KernelError;

    fn from_str(text: &str) -> Result<Self, KernelError> {
        let fanouts: Vec<LayerFanout> =
            text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?;
        // The layer is one byte of a random number's key.
        if fanouts.len() > usize::from(u8::MAX) {
            return Err(KernelError::Fanout {
                got: format!("{} of them, at most 255", fanouts.len()),
            });
        }
        Ok(Self(fanouts))
    }
}

impl fmt::Display for Fanouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (layer, fanout) in self.iter().enumerate() {
            if layer > 0 {
                f.write_str(",")?;
            }
            write!(f, "{fanout}")?;
        }
        Ok(())
    }
}

crate::sample::serde_by_text!(Fanouts);

/// The first epoch of pre-sampling; training starts at 1. With one seed both draw by the same rule,
/// and pre-sampling still never counts the very mini-batches that will be trained on.
pub const FIRST_PRESAMPLE_EPOCH: u32 = 1 << 31;

/// The training vertices in the order of `epoch`: consecutive runs of the batch size are its global
/// mini-batches. Every rank computes the same order.
///
/// # Errors
/// [`KernelError::TooManyItems`] above `u32::MAX` training vertices.
pub fn epoch_seeds(train: &[u32], seed: u64, epoch: u32) -> Result<Vec<u32>, KernelError> {
    let length = u32::try_from(train.len())
        .map_err(|_| KernelError::TooManyItems { what: "training vertices", got: train.len() })?;
    let key = StreamKey { epoch, ..StreamKey::new(seed, Stream::Shuffle) };
    Ok(permute(length, &key).into_iter().map(|position| train[position as usize]).collect())
}

/// Place of a mini-batch in a run, which determines all of its draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Seed of the run.
    pub seed: u64,
    /// The epoch, from 1 in training.
    pub epoch: u32,
    /// Its number within the epoch, from 0.
    pub step: u32,
}

impl Step {
    /// The key of its draws of `stream` for a layer.
    pub fn key(self, stream: Stream, layer: u8) -> StreamKey {
        let Self { seed, epoch, step } = self;
        StreamKey { seed, epoch, step, stream, layer }
    }

    /// The key of its draws of the neighbours of the layer at `depth`; the seeds' layer has depth 0.
    pub fn layer_key(self, depth: u8) -> StreamKey {
        self.key(Stream::Sample, depth)
    }

    /// The key of its draws and the fanout of each layer, from the seeds' layer down.
    pub fn layers(self, fanouts: &Fanouts) -> impl Iterator<Item = (StreamKey, &LayerFanout)> {
        (0..).map(move |depth| self.layer_key(depth)).zip(fanouts.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fanouts_read_what_they_print() {
        for text in ["15,10,5", "all", "1,all,2", "10+cites=all+a/writes/b=0,cites=3"] {
            assert_eq!(text.parse::<Fanouts>().unwrap().to_string(), text);
        }
        for text in ["", "15,", "15;10", "0", "-3", "15,x"] {
            assert!(text.parse::<Fanouts>().is_err(), "{text}");
        }
        assert_eq!(vec!["1"; 255].join(",").parse::<Fanouts>().unwrap().len(), 255);
        assert!(vec!["1"; 256].join(",").parse::<Fanouts>().is_err());
    }

    #[test]
    fn every_layer_of_every_mini_batch_has_its_own_draws() {
        let fanouts: Fanouts = "3,3,3".parse().unwrap();
        let steps =
            (0..8).map(|i| Step { seed: i & 1, epoch: (i >> 1 & 1) as u32, step: (i >> 2) as u32 });
        let mut words = Vec::new();
        for step in steps {
            let layers: Vec<_> = step.layers(&fanouts).collect();
            assert!(layers.iter().zip(0..).all(|((key, _), depth)| *key == step.layer_key(depth)));
            words.extend(layers.iter().map(|(key, _)| Draws::new(key, 7).below(u32::MAX)));
        }
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 8 * 3);
    }

    #[test]
    fn every_epoch_visits_every_seed_once_in_its_own_order() {
        let train: Vec<u32> = (0..1000).map(|i| i * 3).collect();
        let [first, again, second] = [0, 0, 1].map(|epoch| epoch_seeds(&train, 5, epoch).unwrap());
        assert_eq!(first, again);
        assert_ne!(first, second);
        for mut order in [first, second] {
            order.sort_unstable();
            assert_eq!(order, train);
        }
    }
}
