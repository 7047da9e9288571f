//! The edges of a graph convolution: D⁻¹ᐟ² (A + I) D⁻¹ᐟ² (Kipf and Welling, ICLR 2017, equation 2),
//! estimated from a sample.
//!
//! Returns: a layer's edges with a loop at each target before its own, and a weight for each: 1 /
//! D(v) for the loop, and (d(v) / s(v)) f(u → v) / √(D(u) D(v)) for each of the s(v) edges u → v,
//! with d the in-degree in the whole graph. D is d + 1 and f is 1; or, if edges have factors f, D
//! is 1 for the loop plus the sum of the factors of all in-edges in the whole graph. A loop that
//! the graph holds itself counts as one more edge. Input: edges whose target `t` is row `t` of
//! their sources, d of the targets, and D of every source. Cost: one pass over the edges; on a GPU,
//! which takes no factors, also the target of each edge; the host does not wait. The bits are the
//! same on both.
//!
//! Degrees come from the whole graph under sampling too, weighted or not: only the factor d / s
//! depends on the sample. So the expectation over uniform draws is the sum over all in-edges.

use super::cuda::MODULE;
use super::{DeviceEdges, HostEdges};
use crate::cuda::{DeviceSlice, DeviceSliceMut, Gpu, GpuError, arguments};
use crate::error::{KernelError, check_len};

/// The edges of the convolution over `edges`, whose targets have `degrees` and whose sources
/// degrees `with_loops` (D); and their weights. `factors` are the factors of the edges, if they are
/// not 1.
///
/// # Errors
/// [`KernelError::Length`] unless there is a degree for each target and for each source, a factor
/// for each edge, and a source for each target; [`KernelError::TooManyEdges`].
pub fn symmetric(
    edges: &HostEdges,
    degrees: &[u64],
    with_loops: &[f32],
    factors: Option<&[f32]>,
) -> Result<(HostEdges, Vec<f32>), KernelError> {
    let (targets, total) = (
        edges.num_targets(),
        check([edges.num_targets(), edges.num_sources(), edges.num_edges()])?,
    );
    check_len("degrees of the targets", targets, degrees.len())?;
    check_len("degrees of the sources", edges.num_sources(), with_loops.len())?;
    factors
        .map_or(Ok(()), |factors| check_len("edge factors", edges.num_edges(), factors.len()))?;
    let mut indptr = Vec::with_capacity(targets + 1);
    let (mut sources, mut weights) = (Vec::with_capacity(total), Vec::with_capacity(total));
    let roots: Vec<f32> = with_loops.iter().map(|degree| degree.sqrt().recip()).collect();
    indptr.push(0);
    for target in 0..targets {
        let of = edges.of(target);
        sources.push(target as u32);
        weights.push(with_loops[target].recip());
        let factor = degrees[target] as f32 / of.len().max(1) as f32 * roots[target];
        for edge in of {
            let source = edges.sources()[edge];
            sources.push(source);
            weights.push(
                factor * roots[source as usize] * factors.map_or(1.0, |factors| factors[edge]),
            );
        }
        indptr.push(sources.len() as u32);
    }
    Ok((HostEdges::new(indptr, sources, edges.num_sources())?, weights))
}

/// [`symmetric`] on a GPU; writes `edges + targets` weights to `weights`. A source that is not a
/// row gets a NaN as weight.
pub fn symmetric_on_device(
    gpu: &Gpu,
    edges: &DeviceEdges,
    degrees: DeviceSlice<'_, u64>,
    weights: &mut DeviceSliceMut<'_, f32>,
) -> Result<DeviceEdges, GpuError> {
    let [targets, rows, count] = [edges.num_targets(), edges.num_sources(), edges.num_edges()];
    let total = check([targets, rows, count])?;
    check_len("degrees of the sources", rows, degrees.len())?;
    check_len("weights of the edges and loops", total, weights.len())?;
    let (starts, sources) = (gpu.alloc::<u32>(targets + 1)?, gpu.alloc::<u32>(total)?);
    let indptr = edges.indptr();
    let of = arguments![indptr, targets, degrees, &starts, &sources, &*weights];
    gpu.run(MODULE.kernel("symmetric_loops"), targets + 1, &of)?;
    let (ends, list) = (edges.targets(gpu)?, edges.sources());
    let of = arguments![indptr, ends, list, count, degrees, rows, &sources, &*weights];
    gpu.run(MODULE.kernel("symmetric_edges"), count, &of)?;
    DeviceEdges::new(starts, sources, rows)
}

/// The number of edges and loops.
fn check([targets, sources, edges]: [usize; 3]) -> Result<usize, KernelError> {
    if targets > sources {
        return Err(KernelError::Length {
            what: "sources, of which targets are the first",
            expected: targets,
            got: sources,
        });
    }
    let total = edges + targets;
    u32::try_from(total).map_err(|_| KernelError::TooManyEdges { edges: total as u64 })?;
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};
    use crate::spmm::tests::{bits, edges};

    #[test]
    fn oracle_the_formula() {
        let edges = HostEdges::new(vec![0, 2, 2, 5], vec![1, 4, 0, 3, 4], 5).unwrap();
        let degrees = [3u64, 4, 5, 2, 0];
        let factors = [0.5f32, 2.0, 0.0, 1.0, 0.25];
        for (weighted, factors) in
            [([4f32, 5.0, 6.0, 3.0, 1.0], None), ([2.5, 9.0, 1.0, 3.25, 1.0], Some(&factors[..]))]
        {
            let (with_loops, weights) =
                symmetric(&edges, &degrees[..3], &weighted, factors).unwrap();
            assert_eq!(with_loops.indptr(), [0, 3, 4, 8]);
            assert_eq!(with_loops.sources(), [0, 1, 4, 1, 2, 0, 3, 4]);
            let (mut at, mut edge) = (0, 0);
            for target in 0..3 {
                for (i, &source) in with_loops.sources()[with_loops.of(target)].iter().enumerate() {
                    let [of_target, of_source] =
                        [weighted[target], weighted[source as usize]].map(f64::from);
                    let expected = match i {
                        0 => 1.0 / of_target,
                        _ => {
                            let factor = factors.map_or(1.0, |factors| f64::from(factors[edge]));
                            edge += 1;
                            let per_edge = degrees[target] as f64 / edges.of(target).len() as f64;
                            per_edge * factor / (of_target * of_source).sqrt()
                        }
                    };
                    assert!((f64::from(weights[at]) - expected).abs() < 1e-6, "{target}, {source}");
                    at += 1;
                }
            }
            assert_eq!((at, edge), (weights.len(), 5));
        }
    }

    #[test]
    fn differential_a_gpu_has_the_bits_of_the_host() {
        for (case, (targets, sources, most)) in
            [(0, 0, 0), (0, 4, 0), (1, 1, 0), (1, 1, 3), (30, 90, 7), (300, 700, 40), (5, 9, 3000)]
                .into_iter()
                .enumerate()
        {
            let gpu = Gpu::under_test(case as u32 % 4);
            let edges = edges(case as u32, targets, sources, most, 0);
            let mut draws = Draws::new(&StreamKey::new(10, Stream::Generate), case as u32);
            // Beyond 2^24 not every integer is an f32.
            let degrees: Vec<u64> =
                (0..sources).map(|row| u64::from(draws.below(9)) << (row % 7 * 5)).collect();
            let with_loops: Vec<f32> = degrees.iter().map(|degree| (degree + 1) as f32).collect();
            let (expected, expected_weights) =
                symmetric(&edges, &degrees[..targets], &with_loops, None).unwrap();
            let on_gpu = DeviceEdges::upload(&gpu, &edges).unwrap();
            let degrees = gpu.upload(&degrees).unwrap();
            let mut weights = gpu.alloc::<f32>(expected_weights.len()).unwrap();
            let found =
                symmetric_on_device(&gpu, &on_gpu, degrees.slice(), &mut weights.slice_mut())
                    .unwrap();
            assert_eq!(found.indptr().to_vec(&gpu).unwrap(), expected.indptr(), "case {case}");
            assert_eq!(found.sources().to_vec(&gpu).unwrap(), expected.sources(), "case {case}");
            assert_eq!(found.num_sources(), expected.num_sources());
            assert_eq!(
                bits::<f32>(&weights.to_vec().unwrap()),
                bits(&expected_weights),
                "case {case}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let gpu = Gpu::under_test(1);
        let (few, edges) = (edges(3, 4, 3, 3, 0), edges(3, 4, 6, 3, 0));
        let edges_on_gpu = DeviceEdges::upload(&gpu, &edges).unwrap();
        let total = edges.num_edges() + 4;
        let length = |error| matches!(error, Err(KernelError::Length { .. }));
        let on_host = |edges: &HostEdges, degrees: usize, sources: usize, factors: usize| {
            symmetric(edges, &vec![1; degrees], &vec![2.0; sources], Some(&vec![1.0; factors]))
                .map(|_| ())
        };
        let count = edges.num_edges();
        assert!(on_host(&edges, 4, 6, count).is_ok());
        assert!(
            [(3, 6, count), (4, 5, count), (4, 6, count + 1)]
                .iter()
                .all(|&(d, s, f)| length(on_host(&edges, d, s, f)))
        );
        assert!(length(on_host(&few, 4, 3, few.num_edges())));
        let on_gpu = |degrees: usize, weights: usize| {
            let (degrees, mut weights) = (gpu.zeros(degrees).unwrap(), gpu.alloc(weights).unwrap());
            match symmetric_on_device(
                &gpu,
                &edges_on_gpu,
                degrees.slice(),
                &mut weights.slice_mut(),
            ) {
                Err(GpuError::Input(error)) => length(Err(error)),
                _ => false,
            }
        };
        assert!(on_gpu(5, total) && on_gpu(6, total - 1) && !on_gpu(6, total));
    }
}
