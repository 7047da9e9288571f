//! Types of the rows on a GPU, stored or computed (computation is in f32), and the kernels for each type.

use bytemuck::Pod;
use half::{bf16, f16};

/// A type that rows are stored in.
pub trait DeviceValue: Pod + Send + Sync {
    /// The kernels that gather rows of it, as f32, bf16 and f16.
    #[doc(hidden)]
    const GATHER: [&'static str; 3];
    /// The same from a cache or a table.
    #[doc(hidden)]
    const GATHER_CACHED: [&'static str; 3];
    /// The kernels that sum rows of it, to f32, bf16 and f16.
    #[doc(hidden)]
    const SUM: [&'static str; 3];
}

/// A type that hidden rows are kept in on a GPU: what is computed in f32 is rounded to it.
pub trait DeviceRow: DeviceValue {
    /// Chooses from three, for f32, bf16 and f16, the one for this type.
    #[doc(hidden)]
    fn of<T>(three: [T; 3]) -> T;
    /// The kernels that sum rows of it over the edges of their sources, to f32, bf16 and f16.
    #[doc(hidden)]
    const SUM_BY_SOURCE: [&'static str; 3];
}

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

/// How many values one thread takes from rows of `dim` values of `T` and writes as `O`: 16 bytes of `T` at most, so that the threads of a warp
/// read without gaps, where rows have a multiple of them and all `addresses`, of `T`, and that of the output allow it.
pub(super) fn values_at_once<T, O>(dim: usize, addresses: &[u64], out: u64) -> usize {
    let fits = |address: u64, bytes: usize| address.is_multiple_of(bytes.min(16) as u64);
    let fits = |&width: &usize| {
        dim.is_multiple_of(width)
            && addresses.iter().all(|&address| fits(address, width * size_of::<T>()))
            && fits(out, width * size_of::<O>())
    };
    let widths: &[usize] = if size_of::<T>() < size_of::<f32>() { &[8, 4] } else { &[4] };
    widths.iter().copied().find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_reads_16_bytes_at_most() {
        assert_eq!([values_at_once::<f32, bf16>(8, &[0], 0), values_at_once::<f32, f32>(8, &[0], 0)], [4, 4]);
        assert_eq!([values_at_once::<f16, f32>(8, &[0], 0), values_at_once::<f16, f16>(8, &[0], 0)], [8, 8]);
        assert_eq!([values_at_once::<f16, f32>(4, &[0], 0), values_at_once::<f32, f32>(8, &[4], 0)], [4, 1]);
    }
}
