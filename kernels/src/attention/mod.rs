//! Graph attention (Veličković et al., ICLR 2018): scores, LeakyReLU, softmax over each target's edges, weighted sum, for
//! every head, and the gradients of all of it.
//!
//! Contract, on every device: row `v` of a matrix of `heads · head_dim` columns holds its heads one after the other. A
//! score is `LeakyReLU(from_source[u] + from_target[v])` for each head; a target's shares are the softmax of the scores
//! of its edges, its own row first if `self_loops`. What exists for every edge is one number a head, never a row.
//! Sums are taken in the order of the edges: the result does not depend on the number of threads. Dynamic attention (Brody
//! et al., ICLR 2022) scores an edge by `vector · LeakyReLU(source's row + target's row)` instead.

mod backward;
mod cpu;
pub(crate) mod cuda;
mod cuda_dynamic;
mod dynamic;
#[cfg(test)]
mod tests;

pub use backward::AttentionGradient;
pub use cpu::{Attention, head_products, head_products_backward};
pub use cuda::{DeviceAttention, DeviceAttentionGradient, head_products_backward_on_device, head_products_on_device};
pub use cuda_dynamic::{DeviceDynamicGradient, DeviceDynamicRows};
pub use dynamic::{DynamicGradient, DynamicRows};
