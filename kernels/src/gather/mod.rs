//! Rows of a matrix copied by position, and summed back.
//!
//! Contract, on every device: matrices are row-major. Gather copies row `positions[i]` to row `i`;
//! scatter-add is its exact transpose and adds the rows of one destination in the order of
//! `positions`, so repeated runs give the same bits.

pub(crate) mod cached;
mod cpu;
pub(crate) mod cuda;
mod scatter;
mod store;
mod value;
mod widen;

pub use cached::{CacheHits, DeviceCache, DeviceHits, DeviceTable};
pub use cpu::{gather_f32, gather_rows, scatter_add_f32};
pub use cuda::gather_on_device;
pub use scatter::DeviceScatter;
pub use store::{RowHandles, RowStore};
pub use value::{DeviceRow, DeviceValue};
pub(crate) use value::{four_at_once, row_kernel, values_at_once};
pub use widen::{ScaledRow, StoredRow, Widen};
