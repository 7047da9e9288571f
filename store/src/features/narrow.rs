//! Stores feature values in fewer bits, and measures the loss.
//!
//! Returns the stored values of whole rows, the scales of `i8` rows, and the error compared with
//! the given values. The size of a thread's piece depends only on the width of a row, and the
//! threads' sums are added in order, so the result is the same for any number of threads.

use bytemuck::cast_slice_mut;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::FeatureDtype;

/// Values that a thread takes at a time, rounded to whole rows.
const VALUES_PER_TASK: usize = 1 << 14;
/// Largest magnitude of a stored byte.
const LARGEST: f32 = 127.0;
/// Adding this to a number of magnitude below 2^22 rounds it to the nearest integer, ties to even,
/// which the lowest bits then hold. There is no faster way in plain SSE2.
const ROUNDER: f32 = 12_582_912.0; // 1.5 * 2^23

/// Loss of features that are stored in a type with fewer bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Narrowing {
    /// The largest distance between a given value and its stored value.
    pub max_abs_error: f64,
    /// The root of the mean of the squared distances.
    pub rms_error: f64,
    /// The largest magnitude of the values given.
    pub max_abs_value: f64,
}

/// Loss of pieces of rows so far. Values that are not finite count as stored exactly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    max_error: f64,
    sum_of_squares: f64,
    max_value: f64,
    values: u64,
}

impl Loss {
    pub(super) fn add(&mut self, next: Loss) {
        self.max_error = self.max_error.max(next.max_error);
        self.sum_of_squares += next.sum_of_squares;
        self.max_value = self.max_value.max(next.max_value);
        self.values += next.values;
    }

    fn of(given: &[f32], stored: &[f32]) -> Self {
        let mut loss = Self { values: given.len() as u64, ..Self::default() };
        for (&given, &stored) in given.iter().zip(stored) {
            let finite = given.is_finite();
            let error = if finite { (f64::from(given) - f64::from(stored)).abs() } else { 0.0 };
            loss.max_error = loss.max_error.max(error);
            loss.sum_of_squares += error * error;
            loss.max_value = loss.max_value.max(if finite { f64::from(given.abs()) } else { 0.0 });
        }
        loss
    }

    pub(super) fn report(&self) -> Narrowing {
        let mean = if self.values == 0 { 0.0 } else { self.sum_of_squares / self.values as f64 };
        Narrowing {
            max_abs_error: self.max_error,
            rms_error: mean.sqrt(),
            max_abs_value: self.max_value,
        }
    }
}

/// Stored values of whole rows.
pub(super) enum Narrow {
    /// `f16` or `bf16`.
    Bits(Vec<u16>),
    /// Bytes, and the scale of each row.
    Scaled(Vec<i8>, Vec<f32>),
}

/// Narrows rows of `dim` values to `dtype`, which is not `f32`. A value that does not fit is an
/// error that names its row, counted from 0, and the value.
pub(super) fn narrow(
    values: &[f32],
    dim: usize,
    dtype: FeatureDtype,
) -> Result<(Narrow, Loss), (usize, f32)> {
    let rows = (VALUES_PER_TASK / dim).max(1);
    let piece = rows * dim;
    let (narrow, losses): (Narrow, Vec<Result<Loss, usize>>) = if dtype == FeatureDtype::I8 {
        let (mut bytes, mut scales) = (vec![0i8; values.len()], vec![0f32; values.len() / dim]);
        let places = bytes.par_chunks_mut(piece).zip(scales.par_chunks_mut(rows));
        let tasks = values.par_chunks(piece).zip(places);
        let losses = tasks
            .map(|(given, (bytes, scales))| narrow_scaled(given, dim, bytes, scales))
            .collect();
        (Narrow::Scaled(bytes, scales), losses)
    } else {
        let mut bits = vec![0u16; values.len()];
        let tasks = values.par_chunks(piece).zip(bits.par_chunks_mut(piece));
        let losses = tasks.map(|(given, bits)| narrow_half(given, dtype, bits)).collect();
        (Narrow::Bits(bits), losses)
    };
    let mut total = Loss::default();
    for (task, loss) in losses.into_iter().enumerate() {
        let loss = loss.map_err(|at| {
            let at = task * piece + at;
            (at / dim, values[at])
        })?;
        total.add(loss);
    }
    Ok((narrow, total))
}

/// The error is the place of the first value that overflows.
fn narrow_half(given: &[f32], dtype: FeatureDtype, bits: &mut [u16]) -> Result<Loss, usize> {
    let mut stored = vec![0f32; given.len()];
    if dtype == FeatureDtype::F16 {
        let narrow: &mut [f16] = cast_slice_mut(bits);
        narrow.convert_from_f32_slice(given);
        narrow.convert_to_f32_slice(&mut stored);
    } else {
        let narrow: &mut [bf16] = cast_slice_mut(bits);
        narrow.convert_from_f32_slice(given);
        narrow.convert_to_f32_slice(&mut stored);
    }
    loss_unless_overflown(given, &stored)
}

/// The error is the place of the first finite value that is stored as one that is not.
fn loss_unless_overflown(given: &[f32], stored: &[f32]) -> Result<Loss, usize> {
    let loss = Loss::of(given, stored);
    if loss.max_error.is_finite() {
        return Ok(loss);
    }
    Err(given
        .iter()
        .zip(stored)
        .position(|(given, stored)| given.is_finite() && !stored.is_finite())
        .unwrap_or(0))
}

/// The error is the place of the first value that is not finite, or overflows.
fn narrow_scaled(
    given: &[f32],
    dim: usize,
    bytes: &mut [i8],
    scales: &mut [f32],
) -> Result<Loss, usize> {
    let mut stored = vec![0f32; given.len()];
    let rows =
        given.chunks_exact(dim).zip(bytes.chunks_exact_mut(dim)).zip(stored.chunks_exact_mut(dim));
    for (row, (((given, bytes), stored), scale)) in rows.zip(scales).enumerate() {
        // The bits of magnitudes are ordered as the magnitudes are, with infinity and NaN above
        // all.
        let largest = f32::from_bits(
            given.iter().fold(0, |largest, value| largest.max(value.abs().to_bits())),
        );
        if !largest.is_finite() {
            return Err(row * dim + given.iter().position(|value| !value.is_finite()).unwrap_or(0));
        }
        *scale = largest / LARGEST;
        if *scale == 0.0 {
            continue; // zeros, or too small to have a scale
        }
        for ((&value, byte), stored) in given.iter().zip(bytes).zip(stored) {
            // A subnormal scale is rounded so coarsely that the largest value may exceed 127 times
            // it.
            let steps = (value / *scale).clamp(-LARGEST, LARGEST);
            *byte = (steps + ROUNDER).to_bits() as i8;
            *stored = *scale * f32::from(*byte);
        }
    }
    // 127 times the scale may round to infinity for the largest representable numbers.
    loss_unless_overflown(given, &stored)
}
