//! Numbers of a mini-batch: those that a GPU computed, and those that are counted.

use gsplit_kernels::{CacheHits, DeviceHits};
use tch::Tensor;

use crate::Result;
use crate::autograd::device_values_of;
use crate::batch::{Sampled, SampledLayer};
use crate::model::Model;
use crate::operator::Place;
use crate::optimizer::{GradientNorm, Update};
use crate::report::{LayerRows, StepReport, Work};

/// What a rank computes, loads and receives of `sampled`, whose feature rows have `features` values.
pub fn counted(sampled: &Sampled<'_>, model: &Model, features: usize) -> Work {
    let [edges, rows_loaded, rows_exchanged] =
        [sampled.num_edges(), sampled.input.len(), sampled.rows_exchanged()].map(|count| count as u64);
    Work { edges, rows_loaded, rows_exchanged, exchanged: exchanged(sampled, model, features), ..Work::default() }
}

/// What one forward pass brings from other ranks for each layer, from the seeds down, where any layer is split.
fn exchanged(sampled: &Sampled<'_>, model: &Model, features: usize) -> Vec<LayerRows> {
    if sampled.layers.iter().all(|layer| layer.exchange.is_identity()) {
        return Vec::new();
    }
    let value_bytes = model.place().row_kind().elt_size_in_bytes();
    let bytes_a_row = |layer: usize| match layer {
        0 => features * value_bytes,
        above => model.width(above - 1) * value_bytes,
    };
    let layers = sampled.layers.iter().zip((0..sampled.layers.len()).rev());
    let of = |(layer, index): (&SampledLayer, usize)| {
        let [rows, unsummed] = [layer.exchange.rows_received(), layer.exchange.rows_needed()].map(|rows| rows as u64);
        let bytes = bytes_a_row(index) as u64;
        LayerRows { rows, rows_unsummed: unsummed, bytes: rows * bytes, bytes_unsummed: unsummed * bytes }
    };
    layers.map(of).collect()
}

/// Fills in the numbers of a step that a GPU has. Waits for them, once and at the end: until then the host only launches.
pub fn read(
    place: &Place,
    numbers: Option<&Tensor>,
    update: &Update,
    hits: Option<&DeviceHits>,
    report: &mut StepReport,
) -> Result<()> {
    let mut of_loss = [0.0; 2];
    match (place, &update.gradient_norm) {
        (Place::Device(gpu, device, _), GradientNorm::Squared(squared)) => {
            let nothing = gpu.alloc::<u8>(0)?;
            let numbers = numbers.map(|numbers| place.bring(numbers)).transpose()?;
            let numbers = numbers.as_ref().map(|numbers| device_values_of::<f64>(*device, numbers)).transpose()?;
            let parts = [
                numbers.map_or(nothing.slice(), |numbers| numbers.as_bytes()),
                squared.slice().as_bytes(),
                hits.map_or(nothing.slice(), DeviceHits::bytes),
            ];
            let [numbers, squared, hits] = gpu.read(parts)?;
            of_loss.iter_mut().zip(numbers.values::<f64>()).for_each(|(number, value)| *number = value);
            report.gradient_norm = squared.values::<f64>().iter().sum::<f64>().sqrt();
            let CacheHits { own, peer } = DeviceHits::of(&hits);
            (report.work.rows_cached, report.work.rows_from_peers) = (own as u64, peer as u64);
        }
        (_, norm) => {
            report.gradient_norm = norm.on_host()?;
            numbers.map_or(Ok(()), |numbers| numbers.f_copy_data(&mut of_loss, 2))?;
        }
    }
    (report.loss, report.correct) = (of_loss[0], of_loss[1] as u64);
    Ok(())
}
