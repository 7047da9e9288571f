//! Graph attention (Veličković et al., ICLR 2018): scores, LeakyReLU, softmax over each target's
//! edges, weighted sum, for every head, and the gradients of all of it.
//!
//! Contract, on every device: row `v` of a matrix of `heads · head_dim` columns holds its heads one
//! after the other. A score is `LeakyReLU(from_source[u] + from_target[v])` for each head; a
//! target's weights are the softmax of the scores of its edges, its own row first if `self_loops`.
//! An edge takes one number per head, never a row. Sums are taken in the order of the edges: the
//! result does not depend on the number of threads. Dynamic attention (Brody et al., ICLR 2022)
//! scores an edge by `vector · LeakyReLU(source's row + target's row)` instead.
//!
//! Dropout of the weights (Veličković et al., section 3.3) sets some to 0 after the softmax, and
//! multiplies the others by `1 / (1 - rate)`. Weight `n` of a target, counted over its edges (its
//! own row first) and their heads, is dropped where feature `n` of the [dropout
//! mask](crate::dropout_mask) of its vertex is; from feature
//! [`MAX_DROPOUT_DIM`](crate::MAX_DROPOUT_DIM) on the mask continues with further sequences. The
//! sampler draws a vertex's edges in the same order on every device, so a weight's position
//! identifies its edge, also among parallel ones. The mask needs no memory and is not drawn again
//! backwards: a dropped weight gets a minus sign.
//!
//! Why not keys by source and target: they cost a Philox call for each edge instead of one for
//! eight weights, and parallel edges would need their place all the same.

mod backward;
mod cpu;
pub(crate) mod cuda;
mod cuda_dynamic;
mod dynamic;
#[cfg(test)]
mod tests;

pub use backward::AttentionGradient;
pub use cpu::{Attention, head_products, head_products_backward};
pub use cuda::{
    DeviceAttention, DeviceAttentionGradient, head_products_backward_on_device,
    head_products_on_device,
};
pub use cuda_dynamic::{DeviceDynamicGradient, DeviceDynamicRows};
pub use dynamic::{DynamicGradient, DynamicRows};
