//! The product on the host, on one thread: by the processor's bf16 instructions, or one term after
//! another.
//!
//! Unsafe code of this file: calls of functions compiled for a processor that was detected.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::cell::RefCell;

use half::bf16;

use super::MatrixView;
#[cfg(target_arch = "x86_64")]
use super::{amx::Tiles, x86};

/// Whether this processor has instructions for bf16.
pub fn has_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512bf16")
        && std::arch::is_x86_feature_detected!("avx512bw");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether this processor has AMX for bf16, and the system lets this process use it.
pub fn has_amx() -> bool {
    #[cfg(target_arch = "x86_64")]
    return has_bf16() && Tiles::are_given();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// The right factor of several products, rounded and in the order in which the processor reads it.
#[derive(Debug, Default)]
pub struct PackedFactor {
    rows: usize,
    columns: usize,
    #[cfg(target_arch = "x86_64")]
    packed: x86::Columns,
    /// Rounded values, row after row, for a processor without instructions for bf16.
    values: Vec<f32>,
}

impl PackedFactor {
    /// `b`, packed by the calling thread.
    ///
    /// # Panics
    /// If the matrix does not fit in its slice.
    pub fn new(b: MatrixView<'_>) -> Self {
        assert!(b.fits(), "a matrix outside its slice");
        let mut factor = Self { rows: b.rows, columns: b.columns, ..Self::default() };
        #[cfg(target_arch = "x86_64")]
        if has_bf16() {
            // SAFETY: the processor has the instructions that the function is compiled for.
            unsafe { factor.packed.pack(b) };
            return factor;
        }
        let at =
            |row: usize, column: usize| b.values[row * b.row_stride + column * b.column_stride];
        factor.values = (0..b.rows)
            .flat_map(|row| (0..b.columns).map(move |column| rounded(at(row, column))))
            .collect();
        factor
    }

    /// Computes `out = a × self` on the calling thread only, like [`product_bf16`].
    ///
    /// # Panics
    /// If [`product_bf16`] would.
    pub fn product(&self, out: &mut [f32], a: MatrixView<'_>) {
        let (rows, columns) = (self.rows, self.columns);
        if !is_product(out, false, a, rows, columns) {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if has_bf16() {
            // SAFETY: the processor has the instructions that the function is compiled for.
            return unsafe { x86::product(Tiles::load().as_ref(), out, false, a, &self.packed) };
        }
        let values = MatrixView {
            values: &self.values,
            rows,
            columns,
            row_stride: columns,
            column_stride: 1,
        };
        term_by_term(out, false, a, values);
    }
}

/// Computes `out = a × b`, or `out += a × b` with `add`, with rounded factors, on the calling
/// thread only. `out` is stored row after row, `a.rows × b.columns`.
///
/// # Panics
/// If the shapes do not fit together or a matrix does not fit in its slice.
pub fn product_bf16(out: &mut [f32], add: bool, a: MatrixView<'_>, b: MatrixView<'_>) {
    assert!(b.fits(), "a matrix outside its slice");
    if !is_product(out, add, a, b.rows, b.columns) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if has_bf16() {
        thread_local! {
            static PACKED: RefCell<x86::Columns> = RefCell::default();
        }
        return PACKED.with_borrow_mut(|packed| {
            // SAFETY: the processor has the instructions that the functions are compiled for.
            unsafe {
                packed.pack(b);
                x86::product(Tiles::load().as_ref(), out, add, a, packed);
            }
        });
    }
    term_by_term(out, add, a, b);
}

/// Checks the shapes; returns whether there are terms to sum. Handles a product without terms
/// itself.
fn is_product(out: &mut [f32], add: bool, a: MatrixView<'_>, rows: usize, columns: usize) -> bool {
    assert!(rows == a.columns && out.len() == a.rows * columns, "shapes of a product");
    assert!(a.fits(), "a matrix outside its slice");
    if a.columns == 0 && !add {
        out.fill(0.0);
    }
    !out.is_empty() && a.columns > 0
}

fn rounded(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}

/// The product on any processor.
fn term_by_term(out: &mut [f32], add: bool, a: MatrixView<'_>, b: MatrixView<'_>) {
    for (i, out) in out.chunks_exact_mut(b.columns).enumerate() {
        if !add {
            out.fill(0.0);
        }
        for k in 0..a.columns {
            let left = rounded(a.values[i * a.row_stride + k * a.column_stride]);
            for (j, out) in out.iter_mut().enumerate() {
                *out += left * rounded(b.values[k * b.row_stride + j * b.column_stride]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::philox::{Draws, Stream, StreamKey};

    /// A matrix stored by rows or by columns, with values between -1 and 1.
    fn matrix(
        rows: usize,
        columns: usize,
        by_columns: bool,
        seed: u32,
    ) -> (Vec<f32>, usize, usize) {
        let mut draws = Draws::new(&StreamKey::new(4, Stream::Generate), seed);
        let values = (0..rows * columns).map(|_| 2.0 * draws.unit_f32() - 1.0).collect();
        if by_columns { (values, 1, rows) } else { (values, columns, 1) }
    }

    /// Products by each of the instruction sets that this processor has.
    fn products(out: &[f32], add: bool, a: MatrixView<'_>, b: MatrixView<'_>) -> Vec<Vec<f32>> {
        let by = |multiply: &dyn Fn(&mut [f32])| {
            let mut out = out.to_vec();
            multiply(&mut out);
            out
        };
        let mut found = vec![by(&|out| product_bf16(out, add, a, b))];
        if !add {
            found.push(by(&|out| PackedFactor::new(b).product(out, a)));
        }
        #[cfg(target_arch = "x86_64")]
        if has_bf16() {
            // SAFETY: the processor has the instructions that the function is compiled for.
            found.push(by(&|out| unsafe {
                let mut packed = x86::Columns::default();
                packed.pack(b);
                x86::product(None, out, add, a, &packed);
            }));
        }
        found
    }

    /// Every layout of both factors, each size at the edge of panels, steps and blocks.
    #[test]
    fn products_are_those_of_factors_term_by_term() {
        let sizes = [
            (1, 1, 1),
            (14, 32, 2),
            (15, 33, 3),
            (64, 47, 100),
            (3, 200, 385),
            (29, 5, 770),
            (200, 256, 37),
            (32, 32, 32),
            (33, 64, 288),
            (64, 16, 512),
        ];
        for (seed, (m, n, k)) in (0u32..).zip(sizes) {
            for layout in 0..8 {
                let (a, a_row, a_column) = matrix(m, k, layout & 1 > 0, seed);
                let (b, b_row, b_column) = matrix(k, n, layout & 2 > 0, 100 + seed);
                let add = layout & 4 > 0;
                let left = MatrixView {
                    values: &a,
                    rows: m,
                    columns: k,
                    row_stride: a_row,
                    column_stride: a_column,
                };
                let right = MatrixView {
                    values: &b,
                    rows: k,
                    columns: n,
                    row_stride: b_row,
                    column_stride: b_column,
                };
                let start = vec![0.5f32; m * n];
                let mut expected = start.clone();
                term_by_term(&mut expected, add, left, right);
                for (way, found) in products(&start, add, left, right).iter().enumerate() {
                    let far = |(x, y): (&f32, &f32)| (x - y).abs() > 1e-5 * (k as f32).sqrt();
                    let wrong = found.iter().zip(&expected).any(far);
                    assert!(!wrong, "{m} × {k} × {n}, layout {layout}, way {way}");
                }
            }
        }
    }

    /// Compares with sums in f64: the factors have half the bits.
    #[test]
    fn products_are_as_exact_as_they_say() {
        let (m, n, k) = (40, 50, 600);
        let ((a, ..), (b, ..)) = (matrix(m, k, false, 1), matrix(k, n, false, 2));
        let left = MatrixView { values: &a, rows: m, columns: k, row_stride: k, column_stride: 1 };
        let right = MatrixView { values: &b, rows: k, columns: n, row_stride: n, column_stride: 1 };
        let exact = |i: usize, j: usize| {
            (0..k).map(|t| f64::from(a[i * k + t]) * f64::from(b[t * n + j])).sum::<f64>()
        };
        for found in products(&vec![0.0; m * n], false, left, right) {
            let apart = found
                .iter()
                .enumerate()
                .map(|(at, x)| (f64::from(*x) - exact(at / n, at % n)).abs());
            let apart = apart.fold(0f64, f64::max).log2();
            assert!((-8.0..-3.0).contains(&apart), "2^{apart}");
        }
    }

    #[test]
    fn nothing_to_sum_is_zero() {
        let empty = |rows, columns| MatrixView {
            values: &[],
            rows,
            columns,
            row_stride: 1,
            column_stride: 1,
        };
        let mut out = [7f32; 6];
        product_bf16(&mut out, true, empty(2, 0), empty(0, 3));
        assert_eq!(out, [7.0; 6]);
        product_bf16(&mut out, false, empty(2, 0), empty(0, 3));
        assert_eq!(out, [0.0; 6]);
        product_bf16(&mut [], false, empty(0, 0), empty(0, 3));
    }

    #[test]
    fn numbers_that_are_none_stay_so() {
        fn view(value: &[f32; 1]) -> MatrixView<'_> {
            MatrixView { values: value, rows: 1, columns: 1, row_stride: 1, column_stride: 1 }
        }
        for (left, right) in
            [(f32::NAN, 1.0), (f32::INFINITY, 0.0), (f32::from_bits(0x7F80_0001), 2.0)]
        {
            for found in products(&[0.0], false, view(&[left]), view(&[right])) {
                assert!(found[0].is_nan(), "{left} × {right}");
            }
        }
        for found in products(&[0.0], false, view(&[f32::INFINITY]), view(&[-2.0])) {
            assert_eq!(found, [f32::NEG_INFINITY]);
        }
    }
}
