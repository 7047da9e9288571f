//! Inference over a whole graph, on the host or a GPU: the same code for `gsplit infer` and for the evaluation while training.

mod hidden;
mod layers;
mod run;
mod table;
mod trained;

pub use hidden::HiddenWriter;
pub use layers::{Chunk, LayerWise, Room};
pub use run::{InferConfig, InferSummary, Predict, Wanted, infer};
pub use trained::Trained;
