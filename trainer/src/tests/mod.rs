//! Invariants 1–4 of the method, exactness of resuming, and behaviour in failure, over random graphs, partitions and rank
//! counts, ranks that own nothing included.

mod equivalence;
mod exchange;
mod fixture;
mod layers;
mod own_layer;
mod runs;
mod sampling;

pub(crate) use fixture::on_ranks;
