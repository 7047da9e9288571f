//! Types of the rows on a GPU, stored or computed (computation is in f32), and the kernels for each
//! type.

use bytemuck::Pod;
use half::{bf16, f16};

/// A type that rows are stored in.
pub trait DeviceValue: Pod + Send + Sync {
    /// The kernels that gather rows of it, as f32, bf16 and f16.
    #[doc(hidden)]
    const GATHER: [&'static str; 3];
    /// The kernels that gather rows of it from a cache or a table, as f32, bf16 and f16.
    #[doc(hidden)]
    const GATHER_CACHED: [&'static str; 3];
    /// The kernels that sum rows of it, to f32, bf16 and f16.
    #[doc(hidden)]
    const SUM: [&'static str; 3];
}

/// A type of hidden rows on a GPU: results computed in f32 are rounded to it.
pub trait DeviceRow: DeviceValue {
    /// Returns the element of `three` (for f32, bf16 and f16) for this type.
    #[doc(hidden)]
    fn of<T>(three: [T; 3]) -> T;
    /// The kernels that sum rows of it over the edges of their sources, to f32, bf16 and f16.
    #[doc(hidden)]
    const SUM_BY_SOURCE: [&'static str; 3];
}

/// The kernel `$name` of `$module` for rows of type `$type`.
macro_rules! row_kernel {
    ($module:expr, $name:literal, $type:ty) => {
        $module.kernel(<$type as $crate::gather::DeviceRow>::of([
            concat!($name, "_f32"),
            concat!($name, "_bf16"),
            concat!($name, "_f16"),
        ]))
    };
}
pub(crate) use row_kernel;

/// The names of a kernel that turns `$from` into each type of hidden rows.
macro_rules! to_rows {
    ($kernel:literal, $from:literal) => {
        [
            concat!($kernel, "_", $from, "_to_f32"),
            concat!($kernel, "_", $from, "_to_bf16"),
            concat!($kernel, "_", $from, "_to_f16"),
        ]
    };
}

macro_rules! value {
    ($($type:ty, $name:literal;)*) => {
        $(impl DeviceValue for $type {
            const GATHER: [&'static str; 3] = to_rows!("gather", $name);
            const GATHER_CACHED: [&'static str; 3] = to_rows!("gather_cached", $name);
            const SUM: [&'static str; 3] = to_rows!("sum", $name);
        })*
    };
}

macro_rules! row {
    ($($type:ty, $name:literal, $number:literal;)*) => {
        $(impl DeviceRow for $type {
            fn of<T>(three: [T; 3]) -> T {
                let [f32, bf16, f16] = three;
                match $number {
                    0 => f32,
                    1 => bf16,
                    _ => f16,
                }
            }
            const SUM_BY_SOURCE: [&'static str; 3] = to_rows!("sum_by_source", $name);
        })*
    };
}

value! { f32, "f32"; bf16, "bf16"; f16, "f16"; i8, "i8"; }
row! { f32, "f32", 0; bf16, "bf16", 1; f16, "f16", 2; }

/// Number of values that a thread loads and stores at once, 8, 4 or 1: all `columns` (widths of
/// rows, first columns) are multiples of it, and the arrays, each an address and the bytes of a
/// value, are aligned to it. A load of a `narrow` array takes at most 16 bytes; of `others` it may
/// take more, in several loads.
pub(crate) fn values_at_once(
    columns: &[usize],
    narrow: &[(u64, usize)],
    others: &[(u64, usize)],
) -> usize {
    let aligned = |&(address, bytes): &(u64, usize), width: usize| {
        address.is_multiple_of((width * bytes).min(16) as u64)
    };
    let fits = |&width: &usize| {
        columns.iter().all(|columns| columns.is_multiple_of(width))
            && narrow.iter().all(|(_, bytes)| width * bytes <= 16)
            && narrow.iter().chain(others).all(|array| aligned(array, width))
    };
    [8, 4].into_iter().find(fits).unwrap_or(1)
}

/// Like [`values_at_once`], 4 or 1, for parts of rows that are `width` wide, in arrays at these
/// addresses.
pub(crate) fn four_at_once(width: usize, addresses: &[u64]) -> usize {
    let aligned = width.is_multiple_of(4) && addresses.iter().all(|at| at.is_multiple_of(16));
    if aligned { 4 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_reads_16_bytes_at_most() {
        let width = |dim, from, to| values_at_once(&[8, dim], &[from], &[to]);
        assert_eq!([width(8, (0, 4), (0, 2)), width(8, (0, 4), (0, 4))], [4, 4]);
        assert_eq!(
            [width(8, (0, 2), (0, 4)), width(8, (16, 2), (32, 2)), width(16, (8, 1), (0, 2))],
            [8, 8, 8]
        );
        assert_eq!(
            [width(4, (0, 2), (0, 4)), width(8, (8, 2), (0, 2)), width(8, (0, 2), (8, 2))],
            [4, 4, 4]
        );
        assert_eq!(
            [width(8, (4, 4), (0, 4)), width(8, (4, 2), (0, 2)), width(3, (0, 2), (0, 2))],
            [1, 1, 1]
        );
    }
}
