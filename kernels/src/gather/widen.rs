//! Stored feature rows as `f32`.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A stored feature type that widens to `f32` without loss.
pub trait Widen: bytemuck::Pod + Send + Sync {
    /// Writes `src` to `dst` as `f32`.
    ///
    /// # Panics
    /// If the lengths differ.
    fn widen(src: &[Self], dst: &mut [f32]);
}

/// A stored feature row, wherever it lies.
pub trait StoredRow {
    /// Number of values.
    fn dim(&self) -> usize;
    /// Writes the row to `dst` as `f32`.
    ///
    /// # Panics
    /// If `dst` has not [`StoredRow::dim`] places.
    fn write_to(self, dst: &mut [f32]);
}

impl<T: Widen> StoredRow for &[T] {
    fn dim(&self) -> usize {
        self.len()
    }

    fn write_to(self, dst: &mut [f32]) {
        T::widen(self, dst);
    }
}

/// A row of bytes that share a scale: its values are `scale * values[i]`.
#[derive(Clone, Copy, Debug)]
pub struct ScaledRow<'a> {
    /// What every value is multiplied by.
    pub scale: f32,
    /// The values over the scale, rounded.
    pub values: &'a [i8],
}

impl StoredRow for ScaledRow<'_> {
    fn dim(&self) -> usize {
        self.values.len()
    }

    fn write_to(self, dst: &mut [f32]) {
        assert_eq!(self.values.len(), dst.len(), "a row of as many values as there are places");
        for (value, &byte) in dst.iter_mut().zip(self.values) {
            *value = self.scale * f32::from(byte);
        }
    }
}

impl Widen for f32 {
    fn widen(src: &[Self], dst: &mut [f32]) {
        dst.copy_from_slice(src);
    }
}

impl Widen for f16 {
    fn widen(src: &[Self], dst: &mut [f32]) {
        src.convert_to_f32_slice(dst);
    }
}

impl Widen for bf16 {
    fn widen(src: &[Self], dst: &mut [f32]) {
        src.convert_to_f32_slice(dst);
    }
}
