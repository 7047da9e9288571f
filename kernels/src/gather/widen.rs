//! Feature types as `f32`.

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
