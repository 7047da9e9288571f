//! Inference over a whole graph, on the host or on GPUs, shared by `gsplit infer` and the
//! evaluation during training.

mod chunks;
mod hidden;
mod joined;
mod layers;
mod options;
mod owned;
mod recommend;
mod run;
mod table;
mod team;
mod trained;

pub use chunks::Chunk;
pub use hidden::Hidden;
pub use joined::JoinedModel;
pub use layers::{LayerWise, Room, least_room};
pub use options::{InferConfig, Predict, Wanted};
pub use owned::OwnedLayers;
pub use recommend::Recommended;
pub use run::{InferSummary, infer, scratch_folder};
pub use table::ids_beside;
pub use team::Team;
pub use trained::{ChosenEpoch, Trained};
