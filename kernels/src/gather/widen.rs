//! Conversion of stored feature rows to `f32`.

use half::{bf16, f16};

/// A stored feature type that widens to `f32` without loss.
pub trait Widen: bytemuck::Pod + Send + Sync {
    /// Converts the number to `f32`, exactly.
    fn widen(self) -> f32;
}

/// A stored feature row, in any memory.
pub trait StoredRow {
    /// Number of values.
    fn dim(&self) -> usize;
    /// Memory of the values, for prefetching.
    fn bytes(&self) -> &[u8];
    /// Writes the row to `dst` as `f32`.
    ///
    /// # Panics
    /// If the length of `dst` is not [`StoredRow::dim`].
    fn write_to(self, dst: &mut [f32]);
    /// Adds `weight` times the row to `sum`.
    ///
    /// # Panics
    /// If the length of `sum` is not [`StoredRow::dim`].
    fn add_to(self, weight: f32, sum: &mut [f32]);
}

impl<T: Widen> StoredRow for &[T] {
    #[inline(always)]
    fn dim(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    #[inline(always)]
    fn write_to(self, dst: &mut [f32]) {
        assert_eq!(self.len(), dst.len(), "a row of as many values as there are places");
        for (place, &value) in dst.iter_mut().zip(self) {
            *place = value.widen();
        }
    }

    #[inline(always)]
    fn add_to(self, weight: f32, sum: &mut [f32]) {
        assert_eq!(self.len(), sum.len(), "a row of as many values as there are sums");
        for (sum, &value) in sum.iter_mut().zip(self) {
            *sum += weight * value.widen();
        }
    }
}

/// A row of bytes that share a scale: its values are `scale * values[i]`.
#[derive(Clone, Copy, Debug)]
pub struct ScaledRow<'a> {
    /// Factor of every value.
    pub scale: f32,
    /// The values divided by the scale, rounded.
    pub values: &'a [i8],
}

impl StoredRow for ScaledRow<'_> {
    #[inline(always)]
    fn dim(&self) -> usize {
        self.values.len()
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.values)
    }

    #[inline(always)]
    fn write_to(self, dst: &mut [f32]) {
        assert_eq!(self.values.len(), dst.len(), "a row of as many values as there are places");
        for (value, &byte) in dst.iter_mut().zip(self.values) {
            *value = self.scale * f32::from(byte);
        }
    }

    #[inline(always)]
    fn add_to(self, weight: f32, sum: &mut [f32]) {
        assert_eq!(self.values.len(), sum.len(), "a row of as many values as there are sums");
        for (sum, &byte) in sum.iter_mut().zip(self.values) {
            *sum += weight * (self.scale * f32::from(byte));
        }
    }
}

impl Widen for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Widen for f16 {
    /// Uses only integer operations, which a loop vectorises on every machine. Putting the exponent
    /// in f32's place leaves it 112 too small, subnormals included, so one exact product corrects
    /// both; infinities and NaNs, which have become 65536 and more by then, get f32's largest
    /// exponent.
    #[inline(always)]
    fn widen(self) -> f32 {
        const TWO_TO_112: f32 = f32::from_bits((112 + 127) << 23);
        const EXPONENT: u32 = 0xFF << 23;
        let bits = u32::from(self.to_bits());
        let size = f32::from_bits((bits & 0x7FFF) << 13) * TWO_TO_112;
        let special = if size >= 65_536.0 { EXPONENT } else { 0 };
        f32::from_bits((bits & 0x8000) << 16 | size.to_bits() | special)
    }
}

impl Widen for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oracle_every_half_widens_exactly() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let same = |found: f32, expected: f32| match expected.is_nan() {
                // The quiet bit may differ between conversions.
                true => found.is_nan() && found.is_sign_negative() == expected.is_sign_negative(),
                false => found.to_bits() == expected.to_bits(),
            };
            assert!(same(half.widen(), half.to_f32()), "f16 {bits:#x}: {}", half.widen());
            assert!(same(brain.widen(), brain.to_f32()), "bf16 {bits:#x}: {}", brain.widen());
        }
    }
}
