//! The loss of node classification: cross entropy where a vertex has one class, binary cross entropy, summed over the
//! classes, where it can have several. Both are means over the labelled seeds of the global mini-batch.

use tch::{Kind, Reduction, Tensor};

use super::{Labels, Loss};
use crate::operator::Place;
use crate::{Error, Result};

/// Label of a seed that is left out of the loss.
const UNLABELLED: i64 = -1;

/// The classes of a mini-batch's seeds.
#[derive(Clone, Copy)]
pub struct NodeTargets<'a> {
    /// Classes of the vertices.
    pub labels: &'a Labels,
    /// Labelled seeds of the global mini-batch, which the loss is the mean over. Averaging the ranks' own means instead
    /// would be wrong wherever ranks hold unequal numbers of seeds.
    pub labelled: usize,
}

impl<'a> NodeTargets<'a> {
    /// The targets of the global mini-batch `batch`.
    pub fn of(batch: &[u32], labels: &'a Labels) -> Self {
        Self { labels, labelled: batch.iter().filter(|&&v| labels.is_labelled(v)).count() }
    }
}

impl NodeTargets<'_> {
    /// The loss of `seeds`, whose logits are `rows`, f32 `[seeds, classes]`, at `place`, and the gradient of `scale` times the loss.
    pub fn loss(&self, place: &Place, rows: &Tensor, seeds: &[u32], scale: f32) -> Result<Loss> {
        if seeds.is_empty() {
            return Ok(Loss::default());
        }
        let rows = rows.detach().set_requires_grad(true);
        let (sum, correct, counted) = match self.labels {
            Labels::One { class, .. } => {
                let unknown = |v| Error::Option(format!("the class of seed {v} is not on this host"));
                let classes = seeds.iter().map(|&v| class.get(v).ok_or_else(|| unknown(v)));
                let classes: Vec<i32> = classes.collect::<Result<_>>()?;
                let counted = classes.iter().filter(|&&label| i64::from(label) != UNLABELLED).count() as u64;
                let classes = place.upload(&classes)?.f_to_kind(Kind::Int64)?;
                let sum = rows.f_cross_entropy_loss::<Tensor>(&classes, None, Reduction::Sum, UNLABELLED, 0.0)?;
                (sum, rows.argmax(1, false).eq_tensor(&classes), counted)
            }
            Labels::Several(labels) => {
                let classes = labels.num_classes();
                let has = |&v: &u32| (0..classes).map(move |class| u8::from(labels.has(v, class)));
                let wanted: Vec<u8> = seeds.iter().flat_map(has).collect();
                let wanted = place.upload(&wanted)?.f_to_kind(Kind::Float)?;
                let wanted = wanted.view([seeds.len() as i64, i64::from(classes)]);
                let sum = rows.f_binary_cross_entropy_with_logits::<Tensor>(&wanted, None, None, Reduction::Sum)?;
                (sum, rows.gt(0.0).eq_tensor(&wanted.gt(0.5)), seeds.len() as u64 * u64::from(classes))
            }
        };
        let loss = sum / self.labelled.max(1) as f64;
        loss.f_backward()?;
        let mut gradient = rows.grad();
        if scale != 1.0 {
            let _ = gradient.f_mul_scalar_(f64::from(scale))?;
        }
        let numbers = [loss.detach().f_to_kind(Kind::Double)?, correct.f_sum(Kind::Double)?];
        Ok(Loss { numbers: Some(Tensor::f_stack(&numbers, 0)?), counted, gradient: Some(gradient) })
    }
}
