//! Gather and scatter-add on the host.
//!
//! Returns: rows in the caller's buffer. Input: buffers of matching sizes, positions within the
//! matrix. Idea: gather is parallel over output rows. Scatter-add is parallel over ranges of
//! destinations: every task reads all positions and adds the rows of its range in order, so no two
//! tasks share a destination and the thread count changes nothing. Cost: the bytes moved;
//! scatter-add reads the positions once for each thread.

use rayon::prelude::*;

use super::StoredRow;
use crate::error::{KernelError, check_len, check_matrix, count_rows};
use crate::prefetch::prefetch_all;
use crate::simd::{ahead, vectorised};

/// Rows in one parallel task.
const ROWS: usize = 512;

/// Sets row `i` of `out` (`ids.len()` × `dim`) to `rows(ids[i])`, widened to `f32`.
///
/// `rows` returns the stored row of a vertex, from any memory (device cache, mapped file): a slice
/// of a type that [widens](super::Widen), or a [`ScaledRow`](super::ScaledRow) of bytes.
pub fn gather_rows<R: StoredRow>(
    rows: impl Fn(u32) -> R + Sync,
    ids: &[u32],
    dim: usize,
    out: &mut [f32],
) -> Result<(), KernelError> {
    check_matrix("output of gather", ids.len(), dim, out.len())?;
    if dim == 0 {
        return Ok(());
    }
    ids.par_chunks(ROWS).zip(out.par_chunks_mut(ROWS * dim)).try_for_each(|(ids, out)| {
        vectorised!({
            let ahead = ahead(dim);
            for &id in ids.iter().take(ahead) {
                prefetch_all(rows(id).bytes());
            }
            for (i, (&id, out)) in ids.iter().zip(out.chunks_exact_mut(dim)).enumerate() {
                if let Some(&next) = ids.get(i + ahead) {
                    prefetch_all(rows(next).bytes());
                }
                let row = rows(id);
                check_len("feature row", dim, row.dim())?;
                row.write_to(out);
            }
            Ok(())
        })
    })
}

/// Sets row `i` of `out` (`positions.len()` × `dim`) to row `positions[i]` of `src` (any number of
/// rows × `dim`).
///
/// # Errors
/// [`KernelError::Length`] if a buffer has the wrong length, [`KernelError::RowOutOfRange`].
pub fn gather_f32(
    src: &[f32],
    dim: usize,
    positions: &[u32],
    out: &mut [f32],
) -> Result<(), KernelError> {
    let rows = count_rows("matrix to gather from", dim, src.len())?;
    if dim > 0 {
        check_positions(positions, rows)?;
    }
    gather_rows(
        #[inline(always)]
        |position| &src[position as usize * dim..][..dim],
        positions,
        dim,
        out,
    )
}

/// Adds row `i` of `src` (`positions.len()` × `dim`) to row `positions[i]` of `dst` (any number of
/// rows × `dim`).
///
/// The transpose of [`gather_f32`]. Rows with the same destination are added one after the other,
/// in the order of `positions`: the result is the same for any number of threads.
///
/// # Errors
/// [`KernelError::Length`] if a buffer has the wrong length, [`KernelError::RowOutOfRange`]; `dst`
/// is then unchanged.
pub fn scatter_add_f32(
    dst: &mut [f32],
    dim: usize,
    positions: &[u32],
    src: &[f32],
) -> Result<(), KernelError> {
    let rows = count_rows("matrix to scatter to", dim, dst.len())?;
    check_matrix("rows to scatter", positions.len(), dim, src.len())?;
    if dim == 0 {
        return Ok(());
    }
    check_positions(positions, rows)?;
    // One range for each thread, but none so small that reading the positions outweighs the sums.
    let range = rows.div_ceil(rayon::current_num_threads()).max(ROWS);
    dst.par_chunks_mut(range * dim).enumerate().for_each(|(task, dst)| {
        for (&position, row) in positions.iter().zip(src.chunks_exact(dim)) {
            let at = (position as usize).wrapping_sub(task * range);
            if at < range {
                for (sum, value) in dst[at * dim..(at + 1) * dim].iter_mut().zip(row) {
                    *sum += value;
                }
            }
        }
    });
    Ok(())
}

fn check_positions(positions: &[u32], rows: usize) -> Result<(), KernelError> {
    match positions.iter().find(|&&position| position as usize >= rows) {
        Some(&position) => Err(KernelError::RowOutOfRange { position, rows }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::super::ScaledRow;
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    fn values(seed: u32, len: usize) -> Vec<f32> {
        let mut draws = Draws::new(&StreamKey::new(1, Stream::Generate), seed);
        (0..len).map(|_| draws.unit_f32() - 0.5).collect()
    }

    fn positions(seed: u32, len: usize, rows: u32) -> Vec<u32> {
        let mut draws = Draws::new(&StreamKey::new(2, Stream::Generate), seed);
        (0..len).map(|_| draws.below(rows)).collect()
    }

    #[test]
    fn oracle_gather() {
        for (seed, dim) in [(0, 1), (1, 3), (2, 64), (3, 0)] {
            let src = values(seed, 50 * dim);
            let at = positions(seed, 1000, 50);
            let mut out = vec![f32::NAN; at.len() * dim];
            gather_f32(&src, dim, &at, &mut out).unwrap();
            let expected: Vec<f32> =
                at.iter().flat_map(|&p| src[p as usize * dim..][..dim].to_vec()).collect();
            assert_eq!(out, expected, "seed {seed}");
            let mut again = vec![f32::NAN; out.len()];
            gather_rows(|p| &src[p as usize * dim..][..dim], &at, dim, &mut again).unwrap();
            assert_eq!(again, expected, "seed {seed}");
        }
    }

    #[test]
    fn gather_widens() {
        let exact = [0.5f32, -2.0, 0.0, 1024.0, -0.25, 3.0];
        let (halves, brains) = (exact.map(f16::from_f32), exact.map(bf16::from_f32));
        let ids = [2, 0, 2, 1];
        let expected = [-0.25, 3.0, 0.5, -2.0, -0.25, 3.0, 0.0, 1024.0];
        let mut out = [f32::NAN; 8];
        gather_rows(|v| &halves[2 * v as usize..][..2], &ids, 2, &mut out).unwrap();
        assert_eq!(out, expected);
        out.fill(f32::NAN);
        gather_rows(|v| &brains[2 * v as usize..][..2], &ids, 2, &mut out).unwrap();
        assert_eq!(out, expected);
    }

    #[test]
    fn bytes_arrive_scaled() {
        let (bytes, scales) = ([127i8, -127, 0, 64, -1, 3], [0.5f32, 0.0, 1e-3]);
        let row =
            |v: u32| ScaledRow { scale: scales[v as usize], values: &bytes[2 * v as usize..][..2] };
        let mut out = [f32::NAN; 8];
        gather_rows(row, &[2, 0, 2, 1], 2, &mut out).unwrap();
        assert_eq!(out, [-1e-3, 3e-3, 63.5, -63.5, -1e-3, 3e-3, 0.0, 0.0]);
        let short = gather_rows(row, &[2], 3, &mut [0.0; 3]);
        assert!(matches!(short, Err(KernelError::Length { .. })));
    }

    #[test]
    fn oracle_scatter_add_for_any_number_of_threads() {
        for (seed, dim, rows) in [(0, 1, 7), (1, 5, 1), (2, 32, 900), (3, 3, 200)] {
            let at = positions(seed, 3000, rows);
            let (start, src) =
                (values(seed, rows as usize * dim), values(seed + 9, at.len() * dim));
            let mut expected = start.clone();
            for (i, &p) in at.iter().enumerate() {
                for c in 0..dim {
                    expected[p as usize * dim + c] += src[i * dim + c];
                }
            }
            for threads in [1, 2, 3, 8] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut dst = start.clone();
                pool.install(|| scatter_add_f32(&mut dst, dim, &at, &src)).unwrap();
                assert_eq!(dst, expected, "seed {seed}, {threads} threads");
            }
        }
    }

    #[test]
    fn scatter_is_the_transpose_of_gather() {
        let (dim, rows) = (6, 40);
        let at = positions(4, 500, rows);
        let (x, y) = (values(5, rows as usize * dim), values(6, at.len() * dim));
        let mut gathered = vec![0.0; y.len()];
        gather_f32(&x, dim, &at, &mut gathered).unwrap();
        let mut scattered = vec![0.0; x.len()];
        scatter_add_f32(&mut scattered, dim, &at, &y).unwrap();
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        assert!((dot(&gathered, &y) - dot(&x, &scattered)).abs() < 1e-4);
    }

    #[test]
    fn empty_inputs() {
        gather_f32(&[], 4, &[], &mut []).unwrap();
        scatter_add_f32(&mut [], 4, &[], &[]).unwrap();
        gather_f32(&[], 0, &[3, 1], &mut []).unwrap();
        scatter_add_f32(&mut [], 0, &[3, 1], &[]).unwrap();
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let length = |result| matches!(result, Err(KernelError::Length { .. }));
        assert!(length(gather_f32(&[0.0; 5], 2, &[0], &mut [0.0; 2])));
        assert!(length(gather_f32(&[0.0; 4], 2, &[0], &mut [0.0; 3])));
        assert!(length(gather_f32(&[0.0; 4], 0, &[0], &mut [])));
        assert!(length(gather_rows(|_| &[0.0f32; 3][..], &[0], 2, &mut [0.0; 2])));
        assert!(length(scatter_add_f32(&mut [0.0; 3], 2, &[0], &[0.0; 2])));
        assert!(length(scatter_add_f32(&mut [0.0; 4], 2, &[0], &[0.0; 4])));
        let beyond = Err(KernelError::RowOutOfRange { position: 2, rows: 2 });
        assert_eq!(gather_f32(&[0.0; 4], 2, &[1, 2], &mut [0.0; 4]), beyond);
        assert_eq!(scatter_add_f32(&mut [0.0; 4], 2, &[1, 2], &[0.0; 4]), beyond);
    }
}
