//! One pass over the training split on one rank.

use std::time::Instant;

use gsplit_kernels::schedule::epoch_seeds;
use gsplit_store::Stage;

use crate::Result;
use crate::batch::{BatchSampler, Sampled, SampledLayer};
use crate::comms::Comms;
use crate::job::Job;
use crate::log::{StepLog, Window};
use crate::model::{DropoutKey, Model};
use crate::optimizer::Optimizer;
use crate::pipeline::{Prepared, for_each_batch};
use crate::report::{LayerRows, StepReport, Work};
use crate::source::FeatureSource;
use crate::step::train_step;

/// Trains on every mini-batch of `epoch` (from 1) and returns this rank's sums. Collective.
pub fn train_epoch(
    (job, source): (&Job<'_>, &FeatureSource<'_>),
    sampler: &mut BatchSampler<'_>,
    epoch: u32,
    (model, optimizer): (&Model, &mut Optimizer),
    comms: &Comms,
    stage: &dyn Stage,
    log: StepLog<'_>,
) -> Result<StepReport> {
    let config = job.config;
    let order = epoch_seeds(&job.train, config.seed, epoch)?;
    let (mut sums, comm) = (StepReport::default(), comms.all());
    let mut window = Window::begin(log, epoch, optimizer.steps);
    for_each_batch((job, source), sampler, epoch, &order, comms, |prepared| {
        let Prepared { step, items, targets, batch, sent, sample_s, load_s } = prepared;
        let sampled = &batch.sampled;
        let counts = [sampled.num_edges(), sampled.input.len(), sampled.rows_exchanged()].map(|count| count as u64);
        let exchanged = exchanged(sampled, model, job.features.dim());
        let [rows_cached, rows_from_peers] = [batch.counted.own, batch.counted.peer].map(|rows| rows as u64);
        let dropout = DropoutKey { probability: config.model.dropout, step };
        let mut report = train_step(model, optimizer, batch, job.graph, &targets, dropout, comms.ranks())?;
        let ending = Instant::now();
        job.end_phase(model.place())?;
        report.timings.compute_s += ending.elapsed().as_secs_f64();
        report.check(epoch, step.step + 1)?;
        (report.timings.sample_s, report.timings.load_s) = (sample_s, load_s);
        let [edges, rows_loaded, rows_exchanged] = counts;
        let found = Work { rows_cached, rows_from_peers, ..Work::default() };
        report.work.add(Work { edges, rows_loaded, rows_exchanged, exchanged, sent, ..found });
        sums.add(&report);
        window.add(&report, comm)?;
        if comm.rank() == 0 {
            stage.advance(items as u64);
        }
        Ok(())
    })?;
    Ok(sums)
}

/// What one forward pass brings from other ranks for each layer, from the seeds down, where any layer is split.
fn exchanged(sampled: &Sampled<'_>, model: &Model, features: usize) -> Vec<LayerRows> {
    if sampled.layers.iter().all(|layer| layer.exchange.is_identity()) {
        return Vec::new();
    }
    let bytes_a_row = |layer: usize| match layer {
        0 => features * model.place().row_kind().elt_size_in_bytes(),
        above => model.width(above - 1) * model.place().row_kind().elt_size_in_bytes(),
    };
    let layers = sampled.layers.iter().zip((0..sampled.layers.len()).rev());
    let of = |(layer, index): (&SampledLayer, usize)| {
        let [rows, unsummed] = [layer.exchange.rows_received(), layer.exchange.rows_needed()].map(|rows| rows as u64);
        let bytes = bytes_a_row(index) as u64;
        LayerRows { rows, rows_unsummed: unsummed, bytes: rows * bytes, bytes_unsummed: unsummed * bytes }
    };
    layers.map(of).collect()
}
