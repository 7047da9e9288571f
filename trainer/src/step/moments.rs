//! Batch norm over ranks: the moments of a layer's rows, each vertex counted once however many
//! ranks hold it.

use gsplit_kernels::DeviceOwners;
use tch::{Kind, Tensor};

use super::layer::LayerTape;
use crate::operator::Moments;
use crate::ranks::comms::Ranks;
use crate::sample::SampledLayer;
use crate::{Exchange, Result};

impl LayerTape<'_, '_> {
    /// Moments of `pre_activation` over all ranks, if the layer normalises by them (then
    /// collective).
    pub(super) fn moments(
        &self,
        pre_activation: &Tensor,
        comm: Ranks<'_>,
    ) -> Result<Option<Moments>> {
        let model = self.pass.model;
        if self.pass.dropout.is_none() || !model.needs_moments(self.index) {
            return Ok(None);
        }
        let weights = self.weights(self.sampled(), comm)?;
        let moments = Moments::of(model.place(), pre_activation, weights, comm.all)?;
        model.observe(self.index, &moments)?;
        Ok(Some(moments))
    }

    /// Weight of each row, f32 `[rows]`: 1 over the number of ranks that hold it. `None` if each is
    /// on one rank. Collective.
    fn weights(&self, layer: &SampledLayer, comm: Ranks<'_>) -> Result<Option<Tensor>> {
        // Under a partition map each row is on one rank of every group.
        if !(comm.are_grouped() || layer.replicated && comm.all.size() > 1) {
            return Ok(None);
        }
        // Rank `v % ranks` counts the holders of vertex v.
        let (place, comm, ranks) = (self.pass.model.place(), comm.all, comm.all.size());
        let shuffled = match place.gpu() {
            Some(gpu) => Exchange::shuffle_on_device(
                gpu,
                comm,
                layer.frontier.on_gpu(gpu)?,
                DeviceOwners::InTurn,
            )?,
            None => Exchange::shuffle(comm, layer.frontier.on_host()?, |v| v as usize % ranks)?,
        };
        let exchange = shuffled.in_order(layer.frontier.clone()).exchange;
        let ones = Tensor::f_ones([layer.frontier.len() as i64, 1], (Kind::Float, place.device()))?;
        let holders = exchange.backward_at(place, comm, ones, 1)?;
        let holders = exchange.forward_at(place, comm, Some(holders), 1)?;
        Ok(Some(holders.f_reciprocal()?.f_view(-1)?))
    }
}
