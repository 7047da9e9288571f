//! Head: computes logits from the seeds' hidden rows, if the last layer is hidden.
//!
//! Jumping knowledge (Xu et al., ICML 2018): the seeds' rows of every layer concatenated, or their
//! maximum per column, then one product. A seed is in every local frontier of its rank, so this
//! moves nothing between ranks.

use tch::Tensor;

use super::parameters::Named;
use crate::Result;
use crate::config::JumpingKnowledge;
use crate::operator::{Finish, Place, linear};

/// A product with bias over the rows of one layer or of all.
pub struct Head {
    mode: JumpingKnowledge,
    weight: Tensor,
    bias: Tensor,
    hidden: usize,
    /// Whether inference also returns the head's input, next to the logits.
    pub shown: bool,
}

impl Head {
    /// Creates a head from `layers` layers of `hidden` values to `classes`.
    pub fn new(
        named: &mut Named<'_>,
        mode: JumpingKnowledge,
        [layers, hidden, classes]: [usize; 3],
    ) -> Self {
        let rows = if mode == JumpingKnowledge::Cat { layers * hidden } else { hidden };
        let (weight, bias) =
            (named.glorot("weight", [rows, classes]), named.zeros("bias", classes));
        Self { mode, weight, bias, hidden, shown: false }
    }

    /// Whether it reads the rows of all layers, not only of the last.
    pub fn reads_all(&self) -> bool {
        self.mode != JumpingKnowledge::None
    }

    /// Logits, f32 `[seeds, classes]`, from the seeds' rows, `[seeds, hidden]`, of each layer that
    /// it reads.
    pub fn logits(&self, place: &Place, rows: &[&Tensor]) -> Result<Tensor> {
        let input = match self.mode {
            JumpingKnowledge::None => rows[rows.len() - 1].shallow_clone(),
            JumpingKnowledge::Cat => Tensor::f_cat(rows, 1)?,
            JumpingKnowledge::Max => {
                let first = rows[0].shallow_clone();
                rows[1..].iter().try_fold(first, |largest, rows| largest.f_maximum(rows))?
            }
        };
        linear(place, &input, &self.weight, Some(&self.bias), Finish::default())
    }

    /// Width of the rows that it reads.
    pub fn in_dim(&self) -> usize {
        self.weight.size()[0] as usize
    }

    /// Width of the result of [`Head::combine`] for the layers up to `index`.
    pub fn combined_dim(&self, index: usize) -> usize {
        match self.mode {
            JumpingKnowledge::None => 0,
            JumpingKnowledge::Cat if self.shown => (index + 1) * self.hidden,
            JumpingKnowledge::Cat => self.bias.numel(),
            JumpingKnowledge::Max => self.hidden,
        }
    }

    /// Combines the input from the layers `below`, combined so far, with the `rows` of layer
    /// `index`. For `cat`, only the partial logits are kept, unless the input is
    /// [shown](Head::shown).
    pub fn combine(
        &self,
        place: &Place,
        index: usize,
        below: Option<&Tensor>,
        rows: &Tensor,
    ) -> Result<Tensor> {
        match (self.mode, below) {
            (JumpingKnowledge::Cat, Some(below)) if self.shown => {
                Ok(Tensor::f_cat(&[below, rows], 1)?)
            }
            (JumpingKnowledge::Cat, below) if !self.shown => {
                let weight =
                    self.weight.f_narrow(0, (index * self.hidden) as i64, self.hidden as i64)?;
                let of_layer = linear(place, rows, &weight, None, Finish::default())?;
                Ok(below.map_or(Ok(of_layer.shallow_clone()), |below| below.f_add(&of_layer))?)
            }
            (JumpingKnowledge::Max, Some(below)) => Ok(below.f_maximum(rows)?),
            _ => Ok(rows.shallow_clone()),
        }
    }

    /// Logits from the rows combined up to the last layer, followed by the head's input if it is
    /// [shown](Head::shown).
    pub fn logits_of_combined(&self, place: &Place, combined: &Tensor) -> Result<Tensor> {
        let logits = match self.mode {
            JumpingKnowledge::Cat if !self.shown => combined.f_add(&self.bias)?,
            _ => linear(place, combined, &self.weight, Some(&self.bias), Finish::default())?,
        };
        if self.shown { Ok(Tensor::f_cat(&[&logits, combined], 1)?) } else { Ok(logits) }
    }
}
