//! The product by AVX-512 BF16.
//!
//! Both factors are packed in blocks of [`TERMS`] terms: a *panel* holds some lines (14 rows of the left factor, 32 columns of the
//! right one), for each of them pairs of neighbouring terms, rounded, as one u32 each. Then for each panel of columns, which
//! stays in the first-level cache, each panel of rows: 28 registers of sums, to which every pair of terms adds two
//! instructions' worth of products a row.
//!
//! Unsafe code of this file: loads and stores of whole registers, whose types the instructions for bf16 have to themselves.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::mem::transmute;

use super::MatrixView;

/// Rows and columns of the sums that are held in registers.
const ROWS: usize = 14;
const COLUMNS: usize = 32;
/// Terms of a block: a panel of columns then takes 16 KiB, one of rows 7.
const TERMS: usize = 256;
/// Numbers in a register.
const LANES: usize = 16;
/// From a row's pairs to the next row's, where each row's lie together. More than a block's, lest rows meet in the cache.
const APART: usize = TERMS / 2 + LANES;

thread_local! {
    /// The packed block of each factor.
    static PACKED: RefCell<[Vec<u32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// One factor: `lines` × terms, of which `line_stride` or `term_stride` apart.
#[derive(Clone, Copy)]
struct Factor<'a> {
    values: &'a [f32],
    lines: usize,
    line_stride: usize,
    term_stride: usize,
}

/// How the pairs of a panel lie.
#[derive(Clone, Copy)]
struct Layout {
    lines: usize,
    /// From a line's to the next line's.
    line: usize,
    /// From a pair of terms to the next.
    pair: usize,
}

impl Layout {
    /// Lines beside each other.
    const fn across(lines: usize) -> Self {
        Self { lines, line: 1, pair: lines }
    }

    /// Each line's pairs together.
    const fn along(lines: usize) -> Self {
        Self { lines, line: APART, pair: 1 }
    }

    /// Size of a panel.
    fn panel(&self, terms: usize) -> usize {
        if self.pair == 1 { self.lines * self.line } else { terms.div_ceil(2) * self.pair }
    }
}

const ROWS_ACROSS: Layout = Layout::across(ROWS);
const ROWS_ALONG: Layout = Layout::along(ROWS);

/// As [`product_bf16`](super::product_bf16), of views that were checked and are not empty.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn product(out: &mut [f32], add: bool, a: MatrixView<'_>, b: MatrixView<'_>) {
    let left = Factor { values: a.values, lines: a.rows, line_stride: a.row_stride, term_stride: a.column_stride };
    let right = Factor { values: b.values, lines: b.columns, line_stride: b.column_stride, term_stride: b.row_stride };
    let mut packed = PACKED.take();
    let [rows, columns] = &mut packed;
    for first in (0..a.columns).step_by(TERMS) {
        let terms = TERMS.min(a.columns - first);
        let beside = left.line_stride == 1;
        let (of_rows, of_columns) = (if beside { ROWS_ACROSS } else { ROWS_ALONG }, Layout::across(COLUMNS));
        left.pack(of_rows, first, terms, rows);
        right.pack(of_columns, first, terms, columns);
        for (at, column) in columns.chunks_exact(of_columns.panel(terms)).enumerate() {
            let start = at * COLUMNS;
            let width = COLUMNS.min(b.columns - start);
            for (row, out) in rows.chunks_exact(of_rows.panel(terms)).zip(out.chunks_mut(ROWS * b.columns)) {
                let to = Target { out: &mut out[start..], stride: b.columns, width, add: add || first > 0 };
                match (width > LANES, beside) {
                    (true, true) => to.fill::<2, { ROWS_ACROSS.line }, { ROWS_ACROSS.pair }>(row, column),
                    (true, false) => to.fill::<2, { ROWS_ALONG.line }, { ROWS_ALONG.pair }>(row, column),
                    (false, true) => to.fill::<1, { ROWS_ACROSS.line }, { ROWS_ACROSS.pair }>(row, column),
                    (false, false) => to.fill::<1, { ROWS_ALONG.line }, { ROWS_ALONG.pair }>(row, column),
                }
            }
        }
    }
    PACKED.set(packed);
}

impl Factor<'_> {
    /// The terms `first .. first + terms` of all lines, in panels, of which the last is filled up with zeros, as is an odd last
    /// term.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pack(&self, layout: Layout, first: usize, terms: usize, out: &mut Vec<u32>) {
        let panel = layout.panel(terms);
        out.resize(self.lines.div_ceil(layout.lines) * panel, 0);
        for (at, out) in out.chunks_exact_mut(panel).enumerate() {
            let line = at * layout.lines;
            let lines = layout.lines.min(self.lines - line);
            if lines < layout.lines {
                out.fill(0);
            }
            if self.line_stride == 1 && layout.line == 1 {
                for (i, out) in out.chunks_exact_mut(layout.pair).enumerate() {
                    let term = first + 2 * i;
                    let low = &self.values[term * self.term_stride + line..][..lines];
                    let high = match 2 * i + 1 < terms {
                        true => &self.values[(term + 1) * self.term_stride + line..][..lines],
                        false => &[],
                    };
                    across(low, high, &mut out[..lines]);
                }
            } else {
                for k in 0..lines {
                    let start = (line + k) * self.line_stride + first * self.term_stride;
                    self.along(start, terms, &mut out[k * layout.line..], layout.pair);
                }
            }
        }
    }

    /// The terms of one line from `start` on, the pairs `step` apart.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn along(&self, start: usize, terms: usize, out: &mut [u32], step: usize) {
        let mut done = 0;
        if self.term_stride == 1 {
            let (blocks, _) = self.values[start..][..terms].as_chunks::<{ 2 * LANES }>();
            for (i, block) in blocks.iter().enumerate() {
                let pairs = rounded(block);
                let out = &mut out[i * LANES * step..];
                match step {
                    1 => out[..LANES].copy_from_slice(&pairs),
                    _ => pairs.iter().enumerate().for_each(|(i, &pair)| out[i * step] = pair),
                }
            }
            done = blocks.len() * LANES;
        }
        for i in done..terms.div_ceil(2) {
            let mut block = [0f32; 2 * LANES];
            for (place, term) in block.iter_mut().zip(2 * i..terms.min(2 * i + 2)) {
                *place = self.values[start + term * self.term_stride];
            }
            out[i * step] = rounded(&block)[0];
        }
    }
}

/// Neighbours in pairs, rounded to nearest, ties to even.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn rounded(values: &[f32; 2 * LANES]) -> [u32; LANES] {
    // SAFETY: registers of as many bytes.
    unsafe {
        let [low, high]: [__m512; 2] = transmute(*values);
        transmute(_mm512_cvtne2ps_pbh(high, low))
    }
}

/// Pairs of one value of `low` and one of `high`, which may be empty: then of zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn across(low: &[f32], high: &[f32], out: &mut [u32]) {
    assert!(low.len() >= out.len() && (high.is_empty() || high.len() >= out.len()));
    for start in (0..out.len()).step_by(LANES) {
        let used = |values: usize| ((1u32 << values.saturating_sub(start).min(LANES)) - 1) as __mmask16;
        let (all, upper) = (used(out.len()), used(out.len().min(high.len())));
        // SAFETY: the lanes that the masks leave were checked to lie in their slices.
        unsafe {
            let half = |mask, values: &[f32]| {
                let values = _mm512_maskz_loadu_ps(mask, values.as_ptr().wrapping_add(start));
                _mm512_cvtepu16_epi32(transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(values)))
            };
            let pairs = _mm512_or_si512(half(all, low), _mm512_slli_epi32::<16>(half(upper, high)));
            _mm512_mask_storeu_epi32(out.as_mut_ptr().add(start).cast(), all, pairs);
        }
    }
}

/// Where a panel of rows meets one of columns.
struct Target<'a> {
    /// From the first of both on, rows `stride` apart.
    out: &'a mut [f32],
    stride: usize,
    /// How many columns there are.
    width: usize,
    add: bool,
}

impl Target<'_> {
    /// Takes the products of panels whose rows lie `LINE` apart and their pairs `PAIR`; of the columns, `16 · N`.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn fill<const N: usize, const LINE: usize, const PAIR: usize>(self, rows: &[u32], columns: &[u32]) {
        let columns = columns.as_chunks::<COLUMNS>().0;
        assert!((ROWS - 1) * LINE + columns.len().saturating_sub(1) * PAIR < rows.len());
        let mut sums = [[_mm512_setzero_ps(); N]; ROWS];
        for (at, column) in columns.iter().enumerate() {
            // SAFETY: the last pair of the last row was checked to lie in its panel; a pair of columns has 32 numbers.
            unsafe {
                let row = rows.as_ptr().add(at * PAIR);
                let right: [__m512bh; N] = std::array::from_fn(|n| {
                    transmute::<__m512i, __m512bh>(_mm512_loadu_si512(column.as_ptr().add(n * LANES).cast()))
                });
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left: __m512bh = transmute(_mm512_set1_epi32(*row.add(i * LINE) as i32));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = _mm512_dpbf16_ps(*sum, left, right);
                    }
                }
            }
        }
        for (out, sums) in self.out.chunks_mut(self.stride).zip(sums) {
            for (n, sum) in sums.into_iter().enumerate() {
                // SAFETY: a register is 16 numbers.
                let sum: [f32; LANES] = unsafe { transmute(sum) };
                let out = &mut out[n * LANES..self.width.min((n + 1) * LANES)];
                match self.add {
                    true => out.iter_mut().zip(sum).for_each(|(out, sum)| *out += sum),
                    false => out.copy_from_slice(&sum[..out.len()]),
                }
            }
        }
    }
}
