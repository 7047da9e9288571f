//! Bias, activation and dropout in one pass over the rows of a product, and their gradient in
//! another.
//!
//! Contract, on every device: `y = activation(x + bias) · mask`, each of the three optional. The
//! gradient needs `y`, of which the activations' derivatives are functions, and the mask, which is
//! drawn again: a `y` of zero may have been kept. ReLU needs only `y`: its derivative is zero where
//! `y` is, kept or not. Column sums are taken in pieces of fixed size, so no result depends on the
//! number of threads.

mod cpu;
pub(crate) mod cuda;

pub use cpu::{Activation, Epilogue, add_rows, column_sums};
pub use cuda::{DeviceEpilogue, column_sums_on_device};
