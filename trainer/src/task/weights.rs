//! Numbers that all ranks compute from the labels of the whole train split: the scale of numbers,
//! the weights of classes, and the number of cells that have a value.
//!
//! A shard holds the labels of its own vertices. So processes on shards exchange the labels of the
//! train split once, 8 bytes per vertex, and each computes the same from all of them, in the same
//! order: to the bit the result of a run on the whole dataset.

use gsplit_kernels::{Communicator, all_gather_v};
use gsplit_store::{ClassLabels, Column, Dataset, MultiLabels, NumericLabels};

use crate::config::ClassWeights;
use crate::metric::labels::{TargetScale, count_several};
use crate::{Error, Result};

/// Problem of a train split that has no label.
pub const ALL_UNLABELLED: &str =
    "no vertex of the train split has a label: convert it with another split";
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

    /// The counts of [`count_several`] of the split; each process counts the vertices that it
    /// holds. Collective.
    fn count_several(self, labels: &MultiLabels) -> Result<Vec<u64>> {
        let held = self.vertices.iter().copied().filter(|&v| labels.num_known(v).is_some());
        let mut counts = count_several(labels, held);
        self.comm.map_or(Ok(()), |comm| comm.all_reduce_sum_u64(&mut counts))?;
        Ok(counts)
    }
}

/// Weights of classes in the loss.
#[derive(Debug)]
pub struct LossWeights {
    /// Weight of each class.
    pub by_class: Vec<f32>,
    /// The train split, and the weight of each of its vertices, 0 for unlabelled; if a vertex can
    /// have several classes, the number of its cells that have a value, `None` if all have.
    of_train: Option<(Column<u32>, Vec<f32>)>,
    /// Divisor of these weights: the number of classes, if a vertex can have several.
    divisor: f64,
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
        Ok(Self { by_class, of_train: Some((train.vertices.clone(), of_train)), divisor: 1.0 })
    }

    /// The weights that `asked` specifies for the classes of vertices that can have several, by
    /// default 1. Collective.
    pub fn of_several(
        asked: Option<&ClassWeights>,
        dataset: &Dataset,
        labels: &MultiLabels,
        train: TrainSplit<'_>,
    ) -> Result<Self> {
        let classes = labels.num_classes() as usize;
        let by_class = match asked {
            None => vec![1.0; classes],
            Some(ClassWeights::Each(weights)) => one_each(weights, classes, dataset)?,
            Some(ClassWeights::Balanced) => {
                let counts = train.count_several(labels)?;
                let (with, known) = counts.split_at(classes);
                let weight = |(&with, &known): (&u64, &u64)| match with.min(known - with) {
                    0 => 1.0,
                    _ => ((known - with) as f64 / with as f64) as f32,
                };
                with.iter().zip(known).map(weight).collect()
            }
        };
        let mut of_train = None;
        if dataset.lacks_label_cells() {
            let known = train.labels(|v| labels.num_known(v), 0)?;
            if known.iter().all(|&cells| cells == 0) {
                let (path, problem) = (dataset.path().to_path_buf(), ALL_UNLABELLED.into());
                return Err(Error::Data { path, problem });
            }
            let known = known.into_iter().map(|cells| cells as f32).collect();
            of_train = Some((train.vertices.clone(), known));
        }
        Ok(Self { by_class, of_train, divisor: classes as f64 })
    }

    /// Total weight of the vertices `batch` of the train split, where a vertex of which half the
    /// cells have a value counts as half; `None` if vertices have several classes, all with values.
    pub fn total(&self, batch: &[u32]) -> Option<f64> {
        let (train, weights) = self.of_train.as_ref()?;
        let weight = |v: &u32| train.binary_search(v).map_or(0.0, |at| f64::from(weights[at]));
        Some(batch.iter().map(weight).sum::<f64>() / self.divisor)
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
