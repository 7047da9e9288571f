//! Numbers of a mini-batch: some are computed by a GPU, the others are counted on the host.

use gsplit_kernels::{CacheHits, DeviceHits, LateBytes};
use gsplit_store::RowsRead;
use tch::Tensor;

use crate::Result;
use crate::autograd::device_values;
use crate::model::Model;
use crate::operator::Place;
use crate::optimizer::{GradientNorm, Update};
use crate::ranks::clock::{Clock, Counted};
use crate::report::{LayerRows, StepReport, Work};
use crate::residence::source::Loaded;
use crate::sample::{Sampled, SampledLayer};

/// Work of a rank on `batch`: edges computed, rows loaded and rows received.
pub fn counted(batch: &Loaded<'_>, model: &Model) -> StepReport {
    let sampled = &batch.sampled;
    let [edges, rows_loaded, rows_exchanged] =
        [sampled.num_edges(), batch.num_loaded(), sampled.rows_exchanged()]
            .map(|count| count as u64);
    let (rows_cached, rows_from_peers) = (batch.counted.own as u64, batch.counted.peer as u64);
    let exchanged = exchanged(sampled, model, model.in_dim(batch.features.dim()));
    let RowsRead { read: rows_from_disk, bytes: bytes_from_disk, kept: rows_kept } = batch.reads;
    let work = Work {
        edges,
        rows_loaded,
        rows_cached,
        rows_from_peers,
        rows_from_disk,
        bytes_from_disk,
        rows_kept,
        rows_exchanged,
        exchanged,
        ..Work::default()
    };
    StepReport { work, ..StepReport::default() }
}

/// Rows that one forward pass brings from other ranks for each layer, from the seeds down; empty if
/// no layer is split.
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
        let rows = layer.exchange.rows_received() as u64;
        LayerRows { rows, bytes: rows * bytes_a_row(index) as u64 }
    };
    layers.map(of).collect()
}

/// A launched mini-batch, which is done on the host: its report, except for numbers that a GPU has
/// yet to deliver.
#[must_use]
pub struct Launched {
    report: StepReport,
    /// Numbers of the loss, the norm of the gradient, and hits in caches.
    coming: Option<LateBytes<3>>,
}

impl Launched {
    /// Starts copying the numbers from a GPU without waiting; on the host they are available
    /// already.
    pub fn new(
        place: &Place,
        numbers: Option<&Tensor>,
        update: &Update,
        hits: Option<&DeviceHits>,
        mut report: StepReport,
        clock: Clock<'_>,
    ) -> Result<Self> {
        let coming = match (place, &update.gradient_norm) {
            (Place::Device(gpu, device, _), GradientNorm::There(norm)) => {
                let nothing = gpu.alloc::<u8>(0)?;
                let numbers = numbers.map(|numbers| place.bring(numbers)).transpose()?;
                let norm = device_values::<f64>(*device, norm)?;
                let numbers = numbers
                    .as_ref()
                    .map(|numbers| device_values::<f64>(*device, numbers))
                    .transpose()?;
                Some(gpu.read_later([
                    numbers.map_or(nothing.slice(), |numbers| numbers.as_bytes()),
                    norm.as_bytes(),
                    hits.map_or(nothing.slice(), DeviceHits::bytes),
                ])?)
            }
            (_, norm) => {
                let mut of_loss = [0.0; 2];
                report.gradient_norm = norm.on_host()?;
                numbers.map_or(Ok(()), |numbers| numbers.f_copy_data(&mut of_loss, 2))?;
                (report.loss, report.correct) = (of_loss[0], of_loss[1] as u64);
                None
            }
        };
        let Counted { exchange_s, wait_s, compute_s, sent, .. } = clock.stop();
        (report.timings.exchange_s, report.timings.wait_s, report.work.sent) =
            (exchange_s, wait_s, sent);
        report.timings.compute_s = compute_s;
        Ok(Self { report, coming })
    }

    /// Adds `seconds` to the compute time.
    pub fn took(&mut self, seconds: f64) {
        self.report.timings.compute_s += seconds;
    }

    /// True while loss and norm are still being copied from the GPU.
    pub fn is_coming(&self) -> bool {
        self.coming.is_some()
    }

    /// Waits for the numbers and returns the report.
    pub fn finish(self) -> Result<StepReport> {
        let Self { mut report, coming } = self;
        if let Some(coming) = coming {
            let [numbers, norm, hits] = coming.wait()?;
            if let &[loss, correct, ..] = &numbers.values::<f64>()[..] {
                (report.loss, report.correct) = (loss, correct as u64);
            }
            report.gradient_norm = norm.values::<f64>().iter().sum();
            let CacheHits { own, peer } = DeviceHits::of(&hits);
            // Hits of rows that the host dealt to stores were counted there.
            report.work.rows_cached += own as u64;
            report.work.rows_from_peers += peer as u64;
        }
        if report.skipped > 0 {
            // A loss that is not finite either would spoil the mean.
            (report.loss, report.weight, report.gradient_norm) = (0.0, 0.0, 0.0);
        }
        Ok(report)
    }
}
