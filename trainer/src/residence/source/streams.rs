//! Hands a loaded mini-batch on a GPU from the stream that made it to the stream that computes.
//! Does nothing on the host.

use gsplit_kernels::{Gpu, sort_on_device};

use super::{InputRows, Loaded};
use crate::Result;
use crate::sample::SampledOnGpu;

/// Finds the rows to which backward adds, if a GPU sampled the mini-batch, in the layers above the
/// features, which have no gradients; with `edges` also for sums over edges. Otherwise each is
/// found on first use, by separate launches.
pub fn prepare_backward(batch: &Loaded<'_>, edges: bool) -> Result<()> {
    let Some(SampledOnGpu { gpu, .. }) = &batch.sampled.on_gpu else { return Ok(()) };
    let above = &batch.sampled.layers[..batch.sampled.layers.len().saturating_sub(1)];
    let of_edges = above.iter().filter(|_| edges).filter_map(|layer| layer.edges.on_device());
    let of_edges: Vec<_> = of_edges.map(|(_, _, edges)| edges).collect();
    let (mut exchanges, mut rows) = (Vec::new(), Vec::new());
    for layer in above {
        if let Some(added_to) = layer.exchange.added_to(gpu)? {
            exchanges.push(&layer.exchange);
            rows.push(added_to);
        }
    }
    let onto = sort_on_device(gpu, &of_edges, &rows)?;
    exchanges.into_iter().zip(onto).for_each(|(exchange, onto)| exchange.prepare(onto));
    Ok(())
}

/// Waits until the mini-batch is made, and moves it to the stream of `gpu`, which computes; does
/// nothing if that stream made it, or the host.
pub fn hand_over(batch: &Loaded<'_>, gpu: Option<&Gpu>) -> Result<()> {
    let Some(gpu) = gpu else { return Ok(()) };
    let sampling = batch.sampled.on_gpu.as_ref().map(|SampledOnGpu { gpu, .. }| gpu);
    sampling.into_iter().chain(&batch.side).try_for_each(Gpu::synchronise)?;
    if sampling.is_some() {
        for layer in &batch.sampled.layers {
            [&layer.frontier, &layer.read].into_iter().for_each(|ids| ids.give_to(gpu));
            layer.edges.give_to(gpu);
            layer.exchange.give_to(gpu);
        }
        batch.sampled.input.give_to(gpu);
    }
    match &batch.input_rows {
        InputRows::Gathered(rows) => rows.give_to(gpu),
        InputRows::Kept(rows) => rows.give_to(gpu),
        _ => {}
    }
    if let Some(hits) = &batch.hits {
        hits.give_to(gpu);
    }
    Ok(())
}
