//! Rows taken from a matrix by position, and put into one: they group the vertices of a frontier by
//! type and bring them back into its order.

use rayon::prelude::*;
use tch::Tensor;

use super::{filled, shape};
use crate::Result;
use crate::autograd::{attach, values};

/// Position of a row of zeros.
const NONE: u32 = u32::MAX;

/// The rows of `rows` at the distinct `positions`, f32 `[positions, width]`, on the host.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if `rows` is not a matrix of f32 on the host.
pub fn taken(rows: &Tensor, positions: &[u32]) -> Result<Tensor> {
    let (count, _) = shape("rows to take", rows)?;
    let back = inverse(positions, count);
    let output = copied(&rows.detach().contiguous(), positions)?;
    attach(&[rows], &[], output, move |gradient| {
        Ok(vec![Some(copied(&gradient.output.contiguous(), &back)?)])
    })
}

/// The matrix whose row `positions[i]` is row i of `parts` one after the other, on the host: f32
/// `[rows, width]`. Every position occurs once.
///
/// # Errors
/// Errors of [`taken`].
pub fn put(parts: &[Tensor], positions: &[u32]) -> Result<Tensor> {
    let held: Vec<Tensor> = parts.iter().map(|part| part.detach().contiguous()).collect();
    let from = held.iter().map(values::<f32>).collect::<Result<Vec<_>>>()?;
    let shapes = held.iter().map(|part| shape("rows to put", part)).collect::<Result<Vec<_>>>()?;
    let width = shapes.first().map_or(0, |(_, width)| *width);
    let rows: Vec<&[f32]> = from.iter().flat_map(|part| part.chunks_exact(width.max(1))).collect();
    let inverse = inverse(positions, positions.len());
    let output = filled(&[positions.len(), width], |out| {
        let to = out.par_chunks_exact_mut(width.max(1)).with_min_len(256);
        to.zip(inverse).for_each(|(to, at)| to.copy_from_slice(rows[at as usize]));
        Ok(())
    })?;
    let ends = shapes.iter().scan(0, |end, (rows, _)| {
        *end += rows;
        Some(*end - rows..*end)
    });
    let positions: Vec<Vec<u32>> = ends.map(|part| positions[part].to_vec()).collect();
    attach(&parts.iter().collect::<Vec<_>>(), &[], output, move |gradient| {
        let given = gradient.output.contiguous();
        let of_part = |(positions, needed): (&Vec<u32>, &bool)| {
            needed.then(|| copied(&given, positions)).transpose()
        };
        positions.iter().zip(&gradient.needed).map(of_part).collect()
    })
}

/// For each of `count` rows its index among `positions`, or [`NONE`].
fn inverse(positions: &[u32], count: usize) -> Vec<u32> {
    let mut inverse = vec![NONE; count];
    positions.iter().zip(0..).for_each(|(&at, index)| inverse[at as usize] = index);
    inverse
}

/// Rows of `rows` at `positions`, zeros for [`NONE`].
fn copied(rows: &Tensor, positions: &[u32]) -> Result<Tensor> {
    let (_, width) = shape("rows to copy", rows)?;
    let from = values(rows)?;
    filled(&[positions.len(), width], |out| {
        let to = out.par_chunks_exact_mut(width.max(1)).with_min_len(256);
        to.zip(positions).for_each(|(to, &at)| match at {
            NONE => to.fill(0.0),
            at => to.copy_from_slice(&from[at as usize * width..][..width]),
        });
        Ok(())
    })
}
