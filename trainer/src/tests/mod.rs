//! Invariants 1–4 of the method, exactness of resuming, and behaviour in failure, over random
//! graphs, partitions and rank counts, including ranks that own nothing.

mod ahead;
mod cases;
mod cooperative;
mod device;
mod device_room;
mod disk;
mod drawn_by;
mod equivalence;
mod evaluation;
mod exchange;
mod fake;
mod fixture;
mod gradients;
mod groups;
mod infer;
mod layers;
mod links;
mod locality;
mod metrics;
mod narrow;
mod optimizers;
mod options;
mod own_layer;
mod own_links;
mod peers;
mod placement;
mod processes;
mod refusals;
mod regression;
mod runs;
mod sampling;
mod scores;
mod shards;
mod step_log;
mod traffic;
mod two_kinds;
mod typed;
mod waits;

pub(crate) use fixture::{config as quick_config, on_ranks};
