//! Vertices of one kind, or of two: the sources of links, and their targets.

use std::ops::Range;

use crate::{Dataset, KIND, Result};

/// Kinds of the vertices of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    sources: [u32; 2],
    targets: [u32; 2],
}

impl Kinds {
    /// `num_vertices` of one kind.
    pub fn one(num_vertices: usize) -> Self {
        Self::between(0..num_vertices as u32, 0..num_vertices as u32)
    }

    /// Kinds of links between vertices that are the same, or different ones.
    pub fn between(sources: Range<u32>, targets: Range<u32>) -> Self {
        let [sources, targets] = [sources, targets].map(|of| [of.start, of.end]);
        Self { sources, targets }
    }

    /// Whether there are two.
    pub fn are_two(&self) -> bool {
        self.sources != self.targets
    }

    /// The vertices of the kind of `v`.
    pub fn of(&self, v: u32) -> Range<u32> {
        if self.sources().contains(&v) { self.sources() } else { self.targets() }
    }

    /// The vertices that links start from: all where there is one kind.
    pub fn sources(&self) -> Range<u32> {
        self.sources[0]..self.sources[1]
    }

    /// The vertices that links lead to.
    pub fn targets(&self) -> Range<u32> {
        self.targets[0]..self.targets[1]
    }
}

impl Dataset {
    /// The kinds of the vertices. A column called [`KIND`] that is not 0 for the first vertices and
    /// 1 for all others is the user's own.
    pub fn kinds(&self) -> Result<Kinds> {
        let one = Kinds::one(self.num_vertices());
        if !self.manifest().columns.contains_key(KIND) {
            return Ok(one);
        }
        let column = self.node_column(KIND)?;
        let kinds = column.bytes();
        let num_sources = kinds.partition_point(|&kind| kind == 0);
        let are_two = (column.descr(), column.width()) == ("|u1", 1)
            && (1..kinds.len()).contains(&num_sources)
            && kinds[..num_sources].iter().all(|&kind| kind == 0)
            && kinds[num_sources..].iter().all(|&kind| kind == 1);
        let (first, all) = (num_sources as u32, self.num_vertices() as u32);
        Ok(if are_two { Kinds::between(0..first, first..all) } else { one })
    }
}

#[cfg(test)]
mod tests {
    use crate::writer::tests::provenance;
    use crate::{DatasetWriter, KIND};

    #[test]
    fn kinds_are_those_of_sources_before_targets() {
        let folder = tempfile::tempdir().unwrap();
        for (name, column, sources) in [
            ("two", Some([0, 0, 0, 1]), 3),
            ("mixed", Some([0, 1, 0, 1]), 0),
            ("others", Some([0, 0, 2, 3]), 0),
            ("same", Some([0; 4]), 0),
            ("none", None, 0),
        ] {
            let path = folder.path().join(name);
            let mut writer =
                DatasetWriter::create(&path, false, &[0, 0, 0, 1, 3], &[3, 0, 1]).unwrap();
            if let Some(kinds) = column {
                let mut column = writer.node_column_writer(KIND, "|u1", 1).unwrap();
                column.push(&kinds).unwrap();
                writer.add_node_column(KIND, column).unwrap();
            }
            let kinds = writer.finish(provenance()).unwrap().kinds().unwrap();
            assert_eq!((kinds.are_two(), kinds.targets()), (sources > 0, sources..4), "{name}");
            let expected =
                if sources > 0 { [0..3, 0..3, 0..3, 3..4] } else { [0..4, 0..4, 0..4, 0..4] };
            assert_eq!([0, 1, 2, 3].map(|v| kinds.of(v)), expected, "{name}");
            assert_eq!(kinds.sources(), kinds.of(0));
        }
    }
}
