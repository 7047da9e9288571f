//! A factor's values, rounded and laid out as the product reads them.
//!
//! A *panel* holds `WIDTH` lines (rows of the left factor, columns of the right one): for each pair of neighbouring terms the
//! two values of every line, as one u32 each. Lines and terms beyond the matrix are zeros. Lines that lie one after the
//! other in memory are taken pair by pair (`across`), terms that do line by line (`along`).

use half::bf16;

/// One factor: `lines` × `terms`.
#[derive(Clone, Copy)]
pub struct Factor<'a> {
    pub values: &'a [f32],
    pub lines: usize,
    pub line_stride: usize,
    pub term_stride: usize,
}

/// Two values as the instruction takes them: the first in the low half.
#[inline(always)]
fn pair(first: f32, second: f32) -> u32 {
    u32::from(round(first)) | u32::from(round(second)) << 16
}

/// To nearest, ties to even; no NaN is lost. Without a branch, so that a loop of it becomes vector code.
#[inline(always)]
fn round(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16;
    if value.is_nan() { 0x7FC0 } else { rounded }
}

/// What `round` leaves of a value.
pub fn rounded(value: f32) -> f32 {
    bf16::from_bits(round(value)).to_f32()
}

impl Factor<'_> {
    /// The terms `first .. first + terms` of all lines, panel after panel. `out` becomes
    /// `lines / WIDTH × terms / 2 × WIDTH`, both rounded up.
    #[inline(always)]
    pub fn pack<const WIDTH: usize>(&self, first: usize, terms: usize, out: &mut Vec<u32>) {
        let pairs = terms.div_ceil(2);
        out.clear();
        out.resize(self.lines.div_ceil(WIDTH) * pairs * WIDTH, 0);
        for (panel, out) in out.chunks_exact_mut(pairs * WIDTH).enumerate() {
            let line = panel * WIDTH;
            let lines = WIDTH.min(self.lines - line);
            if self.line_stride == 1 {
                self.across::<WIDTH>(line, lines, first, terms, out)
            } else {
                self.along::<WIDTH>(line, lines, first, terms, out)
            }
        }
    }

    /// Lines lie beside each other.
    #[inline(always)]
    fn across<const WIDTH: usize>(&self, line: usize, lines: usize, first: usize, terms: usize, out: &mut [u32]) {
        for (i, out) in out.chunks_exact_mut(WIDTH).enumerate() {
            let term = first + 2 * i;
            let low = &self.values[term * self.term_stride + line..][..lines];
            let odd = 2 * i + 1 == terms;
            let high = if odd { low } else { &self.values[(term + 1) * self.term_stride + line..][..lines] };
            match (<&[f32; WIDTH]>::try_from(low), <&[f32; WIDTH]>::try_from(high)) {
                (Ok(low), Ok(high)) => (0..WIDTH).for_each(|k| out[k] = pair(low[k], high[k])),
                _ => (0..lines).for_each(|k| out[k] = pair(low[k], high[k])),
            }
            if odd {
                out.iter_mut().for_each(|pair| *pair &= 0xFFFF);
            }
        }
    }

    /// Terms lie beside each other.
    #[inline(always)]
    fn along<const WIDTH: usize>(&self, line: usize, lines: usize, first: usize, terms: usize, out: &mut [u32]) {
        for k in 0..lines {
            let start = (line + k) * self.line_stride + first * self.term_stride;
            if self.term_stride == 1 {
                let values = &self.values[start..][..terms];
                let (pairs, rest) = values.as_chunks::<2>();
                // Sixteen pairs are rounded together, then spread out.
                let (blocks, last) = pairs.as_chunks::<16>();
                for (block, out) in blocks.iter().zip(out.chunks_exact_mut(16 * WIDTH)) {
                    let rounded: [u32; 16] = std::array::from_fn(|i| pair(block[i][0], block[i][1]));
                    (0..16).for_each(|i| out[i * WIDTH + k] = rounded[i]);
                }
                let at = 16 * blocks.len();
                for (i, &[first, second]) in last.iter().enumerate() {
                    out[(at + i) * WIDTH + k] = pair(first, second);
                }
                if let &[value] = rest {
                    out[pairs.len() * WIDTH + k] = pair(value, 0.0);
                }
            } else {
                for i in 0..terms.div_ceil(2) {
                    let at = start + 2 * i * self.term_stride;
                    let second = if 2 * i + 1 < terms { self.values[at + self.term_stride] } else { 0.0 };
                    out[i * WIDTH + k] = pair(self.values[at], second);
                }
            }
        }
    }
}
