//! Errors: [`KernelError`] of computation, [`CommError`] of communication between ranks.

use std::time::Duration;

use crate::philox::DRAWS_PER_ITEM;

/// An invalid input of an operation. Nothing was computed, or the written output must be discarded.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum KernelError {
    /// `indptr` and `indices` are not a CSC topology.
    #[error("topology: expected {expected}, got {got}; `gsplit verify` names the damaged file")]
    Topology {
        /// The property that a topology must have.
        expected: &'static str,
        /// The topology's values that break it.
        got: String,
    },
    /// A vertex id that the graph, or the counters, do not have.
    #[error(
        "vertex {vertex} is out of range: the graph has {num_vertices} vertices (ids start at 0); \
         use ids of this graph"
    )]
    VertexOutOfRange {
        /// The id.
        vertex: u32,
        /// Ids must be below this.
        num_vertices: usize,
    },
    /// A vertex of a frontier whose in-edges a GPU does not have.
    #[error(
        "the GPU does not hold the in-edges of vertex {vertex}; sample only vertices that were \
         chosen for it"
    )]
    NotHeld {
        /// The vertex.
        vertex: u32,
    },
    /// Asked to stop while it read from disk
    /// ([`Graph::reading_ahead`](crate::Graph::reading_ahead)).
    #[error("interrupted")]
    Interrupted,
    /// A frontier that holds a vertex twice.
    #[error("vertex {vertex} occurs twice in the frontier of a layer; give each seed once")]
    RepeatedVertex {
        /// The vertex.
        vertex: u32,
    },
    /// A weight that no edge can be drawn by.
    #[error(
        "the weight of edge {edge}: expected a finite number from 0, got {got}; correct the column \
         of weights"
    )]
    Weight {
        /// The index into `indices`.
        edge: u64,
        /// The weight.
        got: f32,
    },
    /// A fanout that cannot be drawn.
    #[error(
        "fanout: expected a number from 1 to {DRAWS_PER_ITEM}, or `all` for every neighbour, got \
         {}",
        if got.is_empty() { "nothing before or after a comma".to_string() } else { format!("{got:?}") }
    )]
    Fanout {
        /// The text that was given.
        got: String,
    },
    /// Fanouts of relations do not suit the graph.
    #[error("fanouts, relation `{name}`: {problem}")]
    Relations {
        /// The relation.
        name: String,
        /// The problem, with the names that are expected.
        problem: String,
    },
    /// One layer of one mini-batch holds more edges than a `u32` counts.
    #[error(
        "one layer would hold {edges} sampled edges, the limit is {}; lower the batch size or the \
         fanout",
        u32::MAX
    )]
    TooManyEdges {
        /// The number of edges.
        edges: u64,
    },
    /// More items than `u32` positions can number.
    #[error("{what}: {got} items, the limit is {}; lower the batch size", u32::MAX)]
    TooManyItems {
        /// Name of the input.
        what: &'static str,
        /// Its length.
        got: usize,
    },
    /// A vertex whose owner is not a rank.
    #[error(
        "vertex {vertex} belongs to rank {owner}, but there are {ranks} ranks; use a partition \
         with as many parts as ranks"
    )]
    Owner {
        /// The vertex.
        vertex: u32,
        /// Its owner, counted from 0.
        owner: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// A slice of the wrong length.
    #[error("{what}: expected {expected} elements, got {got}; pass a slice of that length")]
    Length {
        /// Name of the slice.
        what: &'static str,
        /// The length it must have.
        expected: usize,
        /// The length it has.
        got: usize,
    },
    /// A row position beyond the matrix.
    #[error(
        "row {position} is out of range: the matrix has {rows} rows; the positions belong to \
         another matrix"
    )]
    RowOutOfRange {
        /// The position.
        position: u32,
        /// The number of rows.
        rows: usize,
    },
    /// A dropout rate outside `[0, 1)`.
    #[error(
        "dropout: expected a rate of at least 0 and below 1, got {rate}; 0 switches dropout off"
    )]
    DropoutRate {
        /// The rate.
        rate: f32,
    },
    /// A counter passed `u32::MAX`, so the counts are wrong.
    #[error("a pre-sample counter passed {}; count fewer epochs", u32::MAX)]
    CounterOverflow,
}

/// Checks that slice `what` has `expected` elements.
pub fn check_len(what: &'static str, expected: usize, got: usize) -> Result<(), KernelError> {
    if got == expected { Ok(()) } else { Err(KernelError::Length { what, expected, got }) }
}

/// Checks that slice `what` has `rows * dim` elements.
pub(crate) fn check_matrix(
    what: &'static str,
    rows: usize,
    dim: usize,
    got: usize,
) -> Result<(), KernelError> {
    // No slice has the length of a product that overflows.
    check_len(what, rows.saturating_mul(dim), got)
}

/// The number of rows of `dim` values in slice `what`, of which they are all; 0 if rows have no
/// values.
pub(crate) fn count_rows(what: &'static str, dim: usize, got: usize) -> Result<usize, KernelError> {
    let rows = got.checked_div(dim).unwrap_or(0);
    check_matrix(what, rows, dim, got).map(|()| rows)
}

/// A collective that did not happen. The group is unusable from then on: every later call on any
/// rank fails too.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// A rank has left the group, so no collective can complete.
    #[error("rank {rank} left the group: {reason}")]
    PeerFailed {
        /// The first rank that left.
        rank: usize,
        /// Its reason.
        reason: String,
    },
    /// A message of another size than its receiver expects, or than the sender's own counts say.
    #[error(
        "rank {from} sent {sent} bytes to rank {to}, which expected {expected}; exchange the \
         counts first"
    )]
    Mismatch {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
        /// Bytes sent.
        sent: usize,
        /// Bytes the receiver had room for.
        expected: usize,
    },
    /// Ranks that are in different collectives at the same time.
    #[error(
        "rank {rank} called {called} while rank {other} called {other_called}; every rank makes \
         the same calls in the same order"
    )]
    Order {
        /// The later rank.
        rank: usize,
        /// Its collective.
        called: &'static str,
        /// The earlier rank.
        other: usize,
        /// The collective of that rank.
        other_called: &'static str,
    },
    /// A rank that has waited for longer than the group's limit.
    #[error(
        "rank {rank} waited {} s in {called}{} for {}, which hangs, has died or is slower than \
         that: see what it printed, \
         or raise --timeout",
        seconds(timeout),
        of_phase(phase),
        named(missing)
    )]
    Timeout {
        /// The first rank that timed out.
        rank: usize,
        /// Its collective.
        called: &'static str,
        /// Phase of the run ([`in_phase`](crate::in_phase)); empty outside of any.
        phase: &'static str,
        /// The ranks that had not come; empty if unknown.
        missing: Vec<usize>,
        /// The limit.
        timeout: Duration,
    },
    /// A GPU, or the library that joins GPUs, that failed in a collective.
    #[error("rank {rank}: {reason}")]
    Gpu {
        /// Rank that the GPU belongs to.
        rank: usize,
        /// The GPU's error, with its remedy.
        reason: String,
    },
    /// Ranks that could not be joined.
    #[error("{reason}")]
    Start {
        /// The reason.
        reason: String,
    },
}

fn seconds(time: &Duration) -> f64 {
    time.as_secs_f64()
}

fn of_phase(phase: &str) -> String {
    if phase.is_empty() { String::new() } else { format!(" ({phase})") }
}

/// Ranks by their numbers.
fn named(ranks: &[usize]) -> String {
    match ranks {
        [] => "another rank".to_string(),
        [rank] => format!("rank {rank}"),
        ranks => {
            format!("ranks {}", ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}
