//! The product by AVX-512 BF16, or by the tiles of AMX where the processor has them.
//!
//! Both factors are packed in blocks of [`TERMS`] terms: a *panel* holds some lines (rows of the
//! left factor, columns of the right one), and for each of them pairs of neighbouring terms,
//! rounded, as one u32 each. For rows, the pairs of a row are contiguous; for columns, each pair of
//! all columns is. The product then combines each panel of columns, which stays in the first-level
//! cache, with each panel of rows. AVX-512 takes 14 rows: 28 registers of sums; every pair of terms
//! adds two instructions' worth of products per row. AMX takes 32 (`amx.rs`).
//!
//! Uses loops where `map` and `from_fn` of arrays would be shorter: their closures become functions
//! of their own, for any x86-64.
//!
//! Unsafe code of this file: loads and stores of whole registers, whose types only the instructions
//! for bf16 use.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::cell::RefCell;
use std::mem::transmute;
use std::slice::ChunksExact;

use super::MatrixView;
use super::amx::{self, Tiles};

/// Rows of the sums that are held in registers.
const ROWS: usize = 14;
/// Columns of the sums.
pub const COLUMNS: usize = 32;
/// Terms of a block: a panel of columns then takes 16 KiB, one of rows 7 or 16.
const TERMS: usize = 256;
/// Numbers in a register.
pub const LANES: usize = 16;
/// Terms of a step: pairs for a register.
const STEP: usize = 2 * LANES;

thread_local! {
    /// A panel of rows.
    static ROWS_OF_PANEL: RefCell<Vec<__m512i>> = const { RefCell::new(Vec::new()) };
}

/// The columns of a right factor: blocks of terms, each with its panels one after another.
#[derive(Debug, Default)]
pub struct Columns {
    panels: Vec<__m512i>,
    terms: usize,
    columns: usize,
}

impl Columns {
    /// Packs the columns of `right`, reusing the existing memory.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub fn pack(&mut self, right: MatrixView<'_>) {
        let MatrixView { values, rows: terms, columns: lines, row_stride, column_stride } = right;
        let factor = Factor { values, lines, line_stride: column_stride, term_stride: row_stride };
        let registers = lines.next_multiple_of(COLUMNS);
        (self.terms, self.columns) = (terms, lines);
        self.panels.resize(registers * terms.div_ceil(STEP), _mm512_setzero_si512());
        let mut rest = &mut self.panels[..];
        for (first, terms) in blocks(terms) {
            let steps = terms.div_ceil(STEP);
            let packed = rest.split_off_mut(..registers * steps).unwrap_or_default();
            for (at, out) in packed.chunks_exact_mut(COLUMNS * steps).enumerate() {
                factor.pack_across(at * COLUMNS, first, terms, out);
            }
        }
    }

    /// First term, number of terms and panels of each block.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize, ChunksExact<'_, __m512i>)> {
        let registers = self.columns.next_multiple_of(COLUMNS);
        blocks(self.terms).map(move |(first, terms)| {
            let (start, steps) = (registers * (first / STEP), terms.div_ceil(STEP));
            (
                first,
                terms,
                self.panels[start..start + registers * steps].chunks_exact(COLUMNS * steps),
            )
        })
    }
}

/// First term and number of terms of each block.
fn blocks(terms: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..terms).step_by(TERMS).map(move |first| (first, TERMS.min(terms - first)))
}

/// One factor: `lines` × terms, with distances `line_stride` and `term_stride`; one of these is 1.
#[derive(Clone, Copy)]
struct Factor<'a> {
    values: &'a [f32],
    lines: usize,
    line_stride: usize,
    term_stride: usize,
}

/// Like [`product_bf16`](super::product_bf16), for views that were checked and are not empty; by
/// `tiles` if they are given.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub fn product(tiles: Option<&Tiles>, out: &mut [f32], add: bool, a: MatrixView<'_>, b: &Columns) {
    let left = Factor {
        values: a.values,
        lines: a.rows,
        line_stride: a.row_stride,
        term_stride: a.column_stride,
    };
    let height = if tiles.is_some() { amx::ROWS } else { ROWS };
    let mut rows = ROWS_OF_PANEL.take();
    for (at, out) in out.chunks_mut(height * b.columns).enumerate() {
        let mut add = add;
        for (first, terms, columns) in b.blocks() {
            rows.resize(height * terms.div_ceil(STEP), _mm512_setzero_si512());
            left.pack_along(height, at * height, first, terms, &mut rows);
            for (at, columns) in columns.enumerate() {
                let start = at * COLUMNS;
                let width = COLUMNS.min(b.columns - start);
                let to = Target { out: &mut out[start..], stride: b.columns, width, add };
                match (tiles, width > LANES) {
                    (Some(tiles), _) => tiles.fill(to, &rows, columns),
                    (None, true) => to.fill::<2>(&rows, columns),
                    (None, false) => to.fill::<1>(&rows, columns),
                }
            }
            add = true;
        }
    }
    ROWS_OF_PANEL.set(rows);
}

/// The lowest `count` lanes.
fn lanes(count: usize) -> __mmask16 {
    ((1u32 << count.min(LANES)) - 1) as __mmask16
}

impl Factor<'_> {
    /// Packs the terms `first .. first + terms` of `height` lines from `line` on, in steps of one
    /// register per line.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pack_along(
        &self,
        height: usize,
        line: usize,
        first: usize,
        terms: usize,
        out: &mut [__m512i],
    ) {
        for (at, out) in out.chunks_exact_mut(height).enumerate() {
            let (term, terms) = (first + at * STEP, STEP.min(terms - at * STEP));
            if self.term_stride == 1 {
                self.lines_of_pairs(line, term, terms, out);
            } else {
                let mut pairs = [[_mm512_setzero_si512(); 2]; LANES];
                self.pairs_of_lines(line, term, terms, &mut pairs);
                for (half, out) in out.chunks_mut(LANES).enumerate() {
                    let mut block = [_mm512_setzero_si512(); LANES];
                    block.iter_mut().zip(&pairs).for_each(|(block, pair)| *block = pair[half]);
                    out.iter_mut().zip(transposed(block)).for_each(|(out, line)| *out = line);
                }
            }
        }
    }

    /// Packs [`COLUMNS`] lines from `line` on; in a step, each pair has two registers.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pack_across(&self, line: usize, first: usize, terms: usize, out: &mut [__m512i]) {
        for (at, out) in out.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
            let (term, terms) = (first + at * STEP, STEP.min(terms - at * STEP));
            if self.term_stride > 1 {
                self.pairs_of_lines(line, term, terms, out.as_chunks_mut().0);
            } else {
                let mut lines = [_mm512_setzero_si512(); COLUMNS];
                self.lines_of_pairs(line, term, terms, &mut lines);
                for (half, lines) in lines.as_chunks().0.iter().enumerate() {
                    let out = out.as_chunks_mut::<2>().0;
                    out.iter_mut()
                        .zip(transposed(*lines))
                        .for_each(|(out, pairs)| out[half] = pairs);
                }
            }
        }
    }

    /// For each line from `line` on, a register of its 16 pairs from `term` on, `terms` values of
    /// which exist.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn lines_of_pairs(&self, line: usize, term: usize, terms: usize, out: &mut [__m512i]) {
        for (line, out) in (line..).zip(out) {
            *out = match line < self.lines {
                true => {
                    let values = &self.values[line * self.line_stride + term..][..terms];
                    Self::rounded(values, &values[LANES.min(terms)..])
                }
                false => _mm512_setzero_si512(),
            };
        }
    }

    /// For each of 16 pairs two registers of the lines from `line` on.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn pairs_of_lines(&self, line: usize, term: usize, terms: usize, out: &mut [[__m512i; 2]]) {
        // Lane i of the first half, then of the second.
        let order: [u16; 2 * LANES] = std::array::from_fn(|i| (i / 2 + i % 2 * LANES) as u16);
        // SAFETY: a register is 32 numbers of 16 bits.
        let order = unsafe { transmute::<[u16; 2 * LANES], __m512i>(order) };
        let lines = (2 * LANES).min(self.lines - line);
        let values = |i: usize| match i < terms {
            true => self.values[(term + i) * self.term_stride + line..][..lines]
                .split_at(LANES.min(lines)),
            false => (&[][..], &[][..]),
        };
        for (i, out) in out.iter_mut().enumerate() {
            let (even, odd) = (values(2 * i), values(2 * i + 1));
            out[0] = _mm512_permutexvar_epi16(order, Self::rounded(even.0, odd.0));
            out[1] = _mm512_permutexvar_epi16(order, Self::rounded(even.1, odd.1));
        }
    }

    /// The first 16 values of `low`, then of `high`, rounded to nearest, ties to even; zeros for
    /// missing values.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn rounded(low: &[f32], high: &[f32]) -> __m512i {
        // SAFETY: the masks select only lanes inside the slices; both types are of 64 bytes.
        unsafe {
            let low = _mm512_maskz_loadu_ps(lanes(low.len()), low.as_ptr());
            let high = _mm512_maskz_loadu_ps(lanes(high.len()), high.as_ptr());
            transmute(_mm512_cvtne2ps_pbh(high, low))
        }
    }
}

/// Transposes: number `j` of register `i` becomes number `i` of register `j`. The 8 bits of a
/// number's place are rotated four times.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn transposed(block: [__m512i; LANES]) -> [__m512i; LANES] {
    rotated(rotated(rotated(rotated(block))))
}

/// Interleaves the numbers of registers 0 and 8, then of 1 and 9, and so on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn rotated(block: [__m512i; LANES]) -> [__m512i; LANES] {
    let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    let mut turned = block;
    for (i, out) in turned.iter_mut().enumerate() {
        let order = if i % 2 == 0 { low } else { high };
        *out = _mm512_permutex2var_epi32(block[i / 2], order, block[i / 2 + LANES / 2]);
    }
    turned
}

/// Output of the product of a panel of rows and a panel of columns.
pub struct Target<'a> {
    /// Output from the first row and column of both panels on, rows `stride` apart.
    pub out: &'a mut [f32],
    pub stride: usize,
    /// Number of columns.
    pub width: usize,
    pub add: bool,
}

impl Target<'_> {
    /// Multiplies a panel of rows by `16 · N` columns of a panel of columns.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn fill<const N: usize>(self, rows: &[__m512i], columns: &[__m512i]) {
        let mut sums = [[_mm512_setzero_ps(); N]; ROWS];
        for (rows, columns) in
            rows.as_chunks::<ROWS>().0.iter().zip(columns.as_chunks::<COLUMNS>().0)
        {
            for (pair, columns) in columns.as_chunks::<2>().0.iter().enumerate() {
                // SAFETY: a step has 16 pairs of each row and column; both types are of 64 bytes.
                unsafe {
                    let row = rows.as_ptr().cast::<i32>().add(pair);
                    let right: [__m512bh; N] =
                        std::array::from_fn(|n| transmute::<__m512i, __m512bh>(columns[n]));
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let left: __m512bh = transmute(_mm512_set1_epi32(*row.add(i * LANES)));
                        for (sum, right) in sums.iter_mut().zip(right) {
                            *sum = _mm512_dpbf16_ps(*sum, left, right);
                        }
                    }
                }
            }
        }
        for (out, sums) in self.out.chunks_mut(self.stride).zip(sums) {
            for (out, sum) in out[..self.width].chunks_mut(LANES).zip(sums) {
                let mask = lanes(out.len());
                // SAFETY: the mask selects only lanes inside the slice.
                unsafe {
                    let before = if self.add {
                        _mm512_maskz_loadu_ps(mask, out.as_ptr())
                    } else {
                        _mm512_setzero_ps()
                    };
                    _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, _mm512_add_ps(before, sum));
                }
            }
        }
    }

    /// Adds or stores the sums of each row.
    pub fn take<'a>(self, rows: impl IntoIterator<Item = &'a [f32]>) {
        for (out, sums) in self.out.chunks_mut(self.stride).zip(rows) {
            let out = &mut out[..self.width];
            match self.add {
                true => out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum),
                false => out.copy_from_slice(&sums[..self.width]),
            }
        }
    }
}
