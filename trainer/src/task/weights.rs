//! Numbers that all ranks compute from the labels of the whole train split: the scale of numbers,
//! and the weights of classes.
//!
//! A shard holds the labels of its own vertices. So processes on shards exchange the labels of the
//! train split once, 8 bytes per vertex, and each computes the same from all of them, in the same
//! order: to the bit the result of a run on the whole dataset.

use gsplit_kernels::{Communicator, all_gather_v};
use gsplit_store::{ClassLabels, Column, Dataset, MultiLabels, NumericLabels};

use crate::config::ClassWeights;
use crate::metric::labels::TargetScale;
use crate::{Error, Result};

/// Maximum number of class names in a message.
const SHOWN: usize = 20;

/// The train split of a run on `comm`, if its processes hold shards.
#[derive(Clone, Copy)]
pub struct TrainSplit<'a> {
    /// Its vertices, ascending.
    pub vertices: &'a Column<u32>,
    /// The processes whose shards make up the dataset.
    pub comm: Option<&'a dyn Communicator>,
}

impl TrainSplit<'_> {
    /// Label of each vertex, as 32 bits: from a process whose `held` returns it, otherwise `none`.
    /// Collective.
    fn labels(self, held: impl Fn(u32) -> Option<u32>, none: u32) -> Result<Vec<u32>> {
        let vertices = (0u32..).zip(self.vertices.iter());
        let own: Vec<[u32; 2]> = vertices.filter_map(|(at, &v)| Some([at, held(v)?])).collect();
        let all = match self.comm {
            Some(comm) => all_gather_v(comm, &own)?.concat(),
            None => own,
        };
        let mut labels = vec![none; self.vertices.len()];
        for [at, label] in all {
            labels.get_mut(at as usize).into_iter().for_each(|place| *place = label);
        }
        Ok(labels)
    }

    /// The scale of the split's numbers. Collective.
    pub fn scale(self, numbers: &NumericLabels) -> Result<TargetScale> {
        let numbers = self.labels(|v| numbers.get(v).map(f32::to_bits), f32::NAN.to_bits())?;
        Ok(TargetScale::of(numbers.into_iter().map(f32::from_bits)))
    }

    /// Number of vertices that have each class, and number of those that do not, if vertices can
    /// have several; each process counts the vertices that it holds. Collective.
    fn count_several(self, labels: &MultiLabels) -> Result<(Vec<u64>, Vec<u64>)> {
        let held = || self.vertices.iter().filter(|&&v| !labels.row(v).is_empty());
        let mut counts = vec![0; labels.num_classes() as usize + 1];
        held().for_each(|&v| labels.classes(v).for_each(|class| counts[class as usize] += 1));
        counts[labels.num_classes() as usize] = held().count() as u64;
        self.comm.map_or(Ok(()), |comm| comm.all_reduce_sum_u64(&mut counts))?;
        let all = counts.pop().unwrap_or(0);
        let others = counts.iter().map(|with| all - with).collect();
        Ok((counts, others))
    }
}

/// Weights of classes in the loss.
#[derive(Debug)]
pub struct LossWeights {
    /// Weight of each class.
    pub by_class: Vec<f32>,
    /// The train split, and the weight of each of its vertices, 0 for unlabelled; `None` if a
    /// vertex can have several classes.
    of_train: Option<(Column<u32>, Vec<f32>)>,
}

impl LossWeights {
    /// The weights that `asked` specifies for vertices of one class each. Collective.
    pub fn of_one(
        asked: &ClassWeights,
        dataset: &Dataset,
        class: &ClassLabels,
        classes: usize,
        train: TrainSplit<'_>,
    ) -> Result<Self> {
        let labels =
            train.labels(|v| class.get(v).map(i32::cast_unsigned), (-1i32).cast_unsigned())?;
        let labels: Vec<Option<usize>> =
            labels.into_iter().map(|label| usize::try_from(label.cast_signed()).ok()).collect();
        let by_class = match asked {
            ClassWeights::Each(weights) => one_each(weights, classes, dataset)?,
            ClassWeights::Balanced => {
                let mut counts = vec![0u64; classes];
                labels.iter().flatten().for_each(|&class| counts[class] += 1);
                let occur = counts.iter().filter(|&&count| count > 0).count() as u64;
                let all = counts.iter().sum::<u64>() as f64;
                let weight = |&count: &u64| {
                    if count > 0 { (all / (occur * count) as f64) as f32 } else { 0.0 }
                };
                counts.iter().map(weight).collect()
            }
        };
        let of_train: Vec<f32> =
            labels.iter().map(|label| label.map_or(0.0, |class| by_class[class])).collect();
        if of_train.iter().all(|&weight| weight == 0.0) {
            return Err(Error::Option(format!(
                "--class-weights {asked}: the classes of all training vertices have weight 0"
            )));
        }
        Ok(Self { by_class, of_train: Some((train.vertices.clone(), of_train)) })
    }

    /// The weights that `asked` specifies for the classes of vertices that can have several.
    /// Collective.
    pub fn of_several(
        asked: &ClassWeights,
        dataset: &Dataset,
        labels: &MultiLabels,
        train: TrainSplit<'_>,
    ) -> Result<Self> {
        let by_class = match asked {
            ClassWeights::Each(weights) => {
                one_each(weights, labels.num_classes() as usize, dataset)?
            }
            ClassWeights::Balanced => {
                let (with, without) = train.count_several(labels)?;
                let weight = |(&with, &without): (&u64, &u64)| match with.min(without) {
                    0 => 1.0,
                    _ => (without as f64 / with as f64) as f32,
                };
                with.iter().zip(&without).map(weight).collect()
            }
        };
        Ok(Self { by_class, of_train: None })
    }

    /// Total weight of the vertices `batch` of the train split; `None` if a vertex can have several
    /// classes.
    pub fn total(&self, batch: &[u32]) -> Option<f64> {
        let (train, weights) = self.of_train.as_ref()?;
        let weight = |v: &u32| train.binary_search(v).map_or(0.0, |at| f64::from(weights[at]));
        Some(batch.iter().map(weight).sum())
    }
}

/// Returns `weights` if there is one for each class, otherwise an error.
fn one_each(weights: &[f32], classes: usize, dataset: &Dataset) -> Result<Vec<f32>> {
    if weights.len() == classes {
        return Ok(weights.to_vec());
    }
    let named = |names: &Vec<String>| {
        let more = if names.len() > SHOWN { ", ..." } else { "" };
        format!(": {}{more}", names[..names.len().min(SHOWN)].join(", "))
    };
    let names = dataset.manifest().class_names.as_ref().map(named).unwrap_or_default();
    let found = weights.len();
    Err(Error::Option(format!(
        "--class-weights: {found} weights, expected {classes}, one for each class{names}"
    )))
}
