//! Which in-neighbours are drawn, and what their rows count in sums.

use super::TrainConfig;

impl TrainConfig {
    /// The option for which the host has to draw, for GPUs too, if there is one.
    pub(crate) fn drawn_by_host(&self) -> Option<&'static str> {
        let by = self.draw_by.as_ref().map(|_| "--draw-by");
        by.or_else(|| self.edge_weights.as_ref().map(|_| "--edge-weights"))
    }

    /// What is wrong with what is drawn, and how it is summed, if anything.
    pub(super) fn draw_problem(&self) -> Option<String> {
        let column = self.edge_weights.as_ref().filter(|_| !self.model.kind.sums_sources())?;
        let problem = "sums no rows that weights could multiply: choose sage, gcn, resgcn, sgc or gin";
        Some(format!("--edge-weights {column}: --model {} {problem}", self.model.kind.name()))
    }
}
