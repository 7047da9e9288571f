//! Keeps two kinds of vertices apart whose ids are counted separately: user 1 is not item 1.
//!
//! Idea: the ids of targets get the highest bit, which no id of the input has, so later stages see
//! two ids. The vertices are in the order of their ids, sources first.

use std::collections::HashMap;

use crate::edges::{EdgeBatch, EdgeSource, Ending, Piece, Seen, pass_on};
use crate::{Error, Result};

/// Bit that the ids of targets have.
pub const TARGET: u64 = 1 << 63;

/// Edges from vertices of one kind to vertices of another.
pub struct TwoKinds {
    edges: Box<dyn EdgeSource>,
}

impl TwoKinds {
    /// Keeps sources and targets of `edges` apart.
    pub fn of(edges: Box<dyn EdgeSource>) -> Self {
        Self { edges }
    }

    fn set_apart(&self, batch: &mut EdgeBatch) -> Result<()> {
        if self.edges.has_string_ids() {
            // A hash is as good without a bit.
            let names: HashMap<u64, String> =
                std::mem::take(&mut batch.names).into_iter().collect();
            let mut kept = HashMap::new();
            for (ids, bit) in [(&mut batch.sources, 0), (&mut batch.targets, TARGET)] {
                for id in ids {
                    let apart = *id & !TARGET | bit;
                    if let Some(name) = names.get(id) {
                        kept.entry((apart, *id)).or_insert(name);
                    }
                    *id = apart;
                }
            }
            batch.names =
                kept.into_iter().map(|((apart, _), name)| (apart, name.clone())).collect();
            return Ok(());
        }
        if let Some(id) = batch.sources.iter().chain(&batch.targets).find(|&&id| id >= TARGET) {
            return Err(Error::Graph(format!("id {id}: with --bipartite expected ids below 2^63")));
        }
        batch.targets.iter_mut().for_each(|id| *id |= TARGET);
        Ok(())
    }
}

impl EdgeSource for TwoKinds {
    pass_on!(edges: rewind, next, columns, has_string_ids, estimate, bytes_done);

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        self.edges.parse(piece, batch)?;
        self.set_apart(batch)
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        let mut ending = self.edges.finish(seen)?;
        self.set_apart(&mut ending.first)?;
        // The reader counts one kind, or both together with vertices without edges.
        ending.num_vertices = None;
        Ok(ending)
    }

    fn has_two_kinds(&self) -> bool {
        true
    }
}
