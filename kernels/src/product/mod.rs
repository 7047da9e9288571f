//! Products of matrices whose values are rounded to bf16, summed in f32.
//!
//! Contract: both factors are f32 in memory and are rounded to bf16 (to nearest, ties to even) as
//! they are read; the products are exact in f32 and are summed there. Half of the mantissa bits of
//! the factors are lost, so an element is off by about 2^-8 of the largest term. Denormal numbers
//! count as zero.
//!
//! Processors with AVX-512 BF16 (Intel's from Cooper Lake on, AMD's from Zen 4 on) sum two products
//! in each of the 16 lanes of an instruction, twice the rate of f32; those with AMX (Intel's from
//! Sapphire Rapids on) reach ten times the rate. On others [`product_bf16`] gives the same result
//! up to the order of the sums, slowly.

#[cfg(target_arch = "x86_64")]
mod amx;
mod cpu;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use cpu::{PackedFactor, has_amx, has_bf16, product_bf16};

/// A matrix of f32 in a slice, at any strides, one of which is 1.
#[derive(Clone, Copy, Debug)]
pub struct MatrixView<'a> {
    /// Values, row after row.
    pub values: &'a [f32],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
    /// From a row's first value to the next row's.
    pub row_stride: usize,
    /// From a value to its right neighbour.
    pub column_stride: usize,
}

impl MatrixView<'_> {
    /// Whether every value is inside the slice.
    pub fn fits(&self) -> bool {
        let last = |count: usize, stride: usize| count.saturating_sub(1).saturating_mul(stride);
        let end =
            last(self.rows, self.row_stride).saturating_add(last(self.columns, self.column_stride));
        self.rows == 0 || self.columns == 0 || end < self.values.len()
    }
}
