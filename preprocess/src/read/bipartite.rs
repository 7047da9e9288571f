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

/// Words for kinds of vertices, in the singular: two columns named by two of them hold ids of two
/// kinds.
const KINDS: &str = "user item product movie film book author paper article customer artist track song album \
    playlist actor merchant store shop business venue tag document word term drug disease gene \
    subreddit group event reviewer reader viewer category account device host patient doctor \
    student course company investor buyer seller";

/// Whether columns of these names hold ids of two kinds: names of two kinds, or two names that end
/// in `id` and else differ.
pub fn are_two_kinds(source: &str, target: &str) -> bool {
    let stem = |name: &str| {
        let letters: String =
            name.chars().filter(char::is_ascii_alphanumeric).flat_map(char::to_lowercase).collect();
        let stem = ["ids", "id"]
            .iter()
            .find_map(|end| letters.strip_suffix(end))
            .unwrap_or(&letters)
            .to_string();
        stem.strip_suffix('s').filter(|stem| stem.len() > 2).map(str::to_string).unwrap_or(stem)
    };
    let [source, target] = [stem(source), stem(target)];
    source != target
        && [source, target].iter().all(|stem| KINDS.split(' ').any(|kind| kind == stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_names() {
        for (source, target, two) in [
            ("user_id", "item_id", true),
            ("userId", "movieId", true),
            ("author", "paper", true),
            ("Users", "Products", true),
            ("src", "dst", false),
            ("user_a", "user_b", false),
            ("author", "author_id", false),
            ("from_user", "to_user", false),
            ("buyer", "seller", true),
        ] {
            assert_eq!(are_two_kinds(source, target), two, "{source} {target}");
        }
    }
}
