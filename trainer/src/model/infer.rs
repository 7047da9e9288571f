//! Inference with a model, layer by layer over full neighbourhoods.
//!
//! Between layers each vertex has one *state* row. In most models it is the layer's row. It is
//! longer if later layers need values of earlier ones: pre-activation models keep the
//! pre-activations that they add to, and jumping knowledge keeps the rows combined so far. After
//! the last layer the state is the logits, followed, if it is shown, by the input of the head.

use tch::Tensor;

use super::head::Head;
use super::{LayerEdges, Model};
use crate::Result;
use crate::operator::{Finish, Rows};

impl Model {
    /// Width of the state after layer `index`, counted from the features upwards.
    pub fn out_dim(&self, index: usize) -> usize {
        let head = self.head.as_ref();
        match index + 1 == self.num_layers() {
            true => self.classes + head.filter(|head| head.shown).map_or(0, Head::in_dim),
            false => self.width(index) + head.map_or(0, |head| head.combined_dim(index)),
        }
    }

    /// Makes the state after the last layer the logits followed by the input of the head. Returns
    /// the width of that input; `None` if there is no head.
    pub fn show_head_input(&mut self) -> Option<usize> {
        let head = self.head.as_mut()?;
        head.shown = true;
        Some(head.in_dim())
    }

    /// The state of the frontier's vertices after layer `index`, f32 `[num_frontier, out_dim]`,
    /// from the state `below` of the mixed frontier's (for layer 0, features). No gradient is
    /// recorded. Never called with an empty frontier.
    pub fn infer_layer<'a>(
        &self,
        index: usize,
        edges: &LayerEdges<'_>,
        below: impl Into<Rows<'a>>,
    ) -> Result<Tensor> {
        tch::no_grad(|| self.next_state(index, edges, below.into()))
    }

    fn next_state(&self, index: usize, edges: &LayerEdges<'_>, below: Rows<'_>) -> Result<Tensor> {
        let block = &self.blocks[index];
        let targets = edges.num_frontier() as i64;
        let (mut pre_activation_below, mut combined) = (None, None);
        let out = match below {
            Rows::Hidden(state) if index > 0 => {
                let width = self.width(index - 1) as i64;
                let rows = state.f_narrow(1, 0, width)?;
                if state.size()[1] > width {
                    combined = Some(state.f_narrow(0, 0, targets)?.f_narrow(
                        1,
                        width,
                        state.size()[1] - width,
                    )?);
                }
                let rows = match self.pre_activation {
                    true => {
                        pre_activation_below = Some(rows.f_narrow(0, 0, targets)?);
                        self.blocks[index - 1].tail(
                            edges.place(),
                            &rows,
                            None,
                            self.plain_finish(index - 1),
                        )?
                    }
                    false => rows,
                };
                block.body(
                    edges,
                    Rows::Hidden(&rows),
                    pre_activation_below.as_ref(),
                    self.plain_finish(index),
                )?
            }
            below => block.body(edges, below, None, self.plain_finish(index))?,
        };
        let last = index + 1 == self.num_layers();
        let Some(head) = &self.head else {
            return if block.tail {
                block.tail(edges.place(), &out, None, self.plain_finish(index))
            } else {
                Ok(out)
            };
        };
        let needs_rows = last || head.reads_all() || !self.pre_activation;
        let rows = match block.tail && needs_rows {
            true => block.tail(edges.place(), &out, None, self.plain_finish(index))?,
            false => out.shallow_clone(),
        };
        let kept = if self.pre_activation { &out } else { &rows };
        let read = match head.reads_all() {
            true => head.combine(edges.place(), index, combined.as_ref(), &rows)?,
            false => rows.shallow_clone(),
        };
        match (last, head.reads_all()) {
            (true, _) => head.logits_of_combined(edges.place(), &read),
            (false, true) => Ok(Tensor::f_cat(&[kept, &read], 1)?),
            (false, false) => Ok(kept.shallow_clone()),
        }
    }

    fn plain_finish(&self, index: usize) -> Finish {
        Finish { activation: self.blocks[index].activation, ..Finish::default() }
    }
}
