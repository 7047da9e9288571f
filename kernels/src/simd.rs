//! Loops compiled for the vector units that this machine has.
//!
//! The crates are compiled for any x86-64. `pulp` compiles a closure again for AVX2 and for
//! AVX-512, and picks one at run time. On other machines nothing is picked.

/// Runs the expression, compiled for this machine's vector units. Functions that it calls must be
/// `#[inline(always)]`: one that remains a function of its own is compiled for any x86-64, with
/// vectors of 16 bytes. (Aggregation then takes 1.5 times as long with AVX2.) Closures of
/// `for_each`, `map` and `from_fn` mostly remain if their bodies are loops, so those loops are
/// `for`. To find them: `objdump --disassemble --demangle` of a release build, and the calls in
/// functions named `vectorize::imp`.
///
/// A choice between two floats is [`std::hint::select_unpredictable`]. With AVX2 an `if` may stay a
/// branch, and the loop around it is then not vectorised: ReLU's gradient took six times as long.
macro_rules! vectorised {
    ($body:expr) => {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || $body,
        )
    };
}
pub(crate) use vectorised;

/// Number of rows of `dim` values by which a row is prefetched.
#[inline(always)]
pub(crate) fn ahead(dim: usize) -> usize {
    const VALUES: usize = 1024;
    (VALUES / dim.max(1)).clamp(2, 16)
}

/// The product of two rows, summed in the same order on every machine: 16 partial sums, then their
/// sum.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// e^x - 1 for x up to 0, within three units in the last place; larger x count as 0. Without a call
/// or a branch, so that a loop of it is vectorised.
///
/// With x = n ln 2 + r and |r| at most half of ln 2 it is 2^n (e^r - 1) + (2^n - 1), and e^r - 1 is
/// a short series.
#[inline(always)]
pub(crate) fn exp_m1_below_zero(x: f32) -> f32 {
    // Adding and subtracting 1.5 · 2^23 rounds; the sum's low bits are n.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts, of which the first has few bits: n times it is exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // Below -20 it is -1 in f32.
    let x = x.clamp(-20.0, 0.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = x - n * LN_2[0] - n * LN_2[1];
    let tail = 1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r * (1.0 / 5040.0)));
    let series = r + r * r * (0.5 + r * (1.0 / 6.0 + r * tail));
    let power =
        f32::from_bits(rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    power * series + (power - 1.0)
}

#[cfg(test)]
mod tests {
    use super::exp_m1_below_zero;

    #[test]
    fn exponentials_are_within_three_units_in_the_last_place() {
        let near = (0..2000).map(|i| -(i as f32) * 1e-5);
        let wide = (0..40_000).map(|i| -(i as f32) * 7.3e-4);
        let tiny =
            [0.0, -0.0, -1e-30, -f32::MIN_POSITIVE, -19.99, -20.0, -25.0, -1e30, f32::NEG_INFINITY];
        for x in near.chain(wide).chain(tiny) {
            let (found, expected) = (f64::from(exp_m1_below_zero(x)), f64::from(x).exp_m1());
            let unit = f64::from(f32::EPSILON) * expected.abs().max(f64::from(f32::MIN_POSITIVE));
            assert!((found - expected).abs() <= 3.0 * unit, "{x}: {found} for {expected}");
        }
    }
}
