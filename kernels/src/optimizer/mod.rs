//! Updates of a model's parameters on GPUs, each in one pass over flat vectors.
//!
//! Contract: formulas of torch's Adam, AdamW and SGD (without dampening); all values in f32, the gradient's norm in f64, summed in
//! an order that its length decides.

pub(crate) mod cuda;

pub use cuda::{DeviceTensors, DeviceUpdate, UpdateRule, squared_norm_on_device};
