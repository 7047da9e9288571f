//! Vertices of one kind, or of two: the sources of all edges first, then their targets.

use std::ops::Range;

use crate::{Dataset, KIND, Result};

/// Kinds of the vertices of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    num_vertices: u32,
    /// 0 where all are of one kind.
    num_sources: u32,
}

impl Kinds {
    /// `num_vertices` of one kind.
    pub fn one(num_vertices: usize) -> Self {
        Self { num_vertices: num_vertices as u32, num_sources: 0 }
    }

    /// Whether there are two.
    pub fn are_two(&self) -> bool {
        self.num_sources > 0
    }

    /// The vertices of the kind of `v`.
    pub fn of(&self, v: u32) -> Range<u32> {
        match v < self.num_sources {
            true => 0..self.num_sources,
            false => self.num_sources..self.num_vertices,
        }
    }

    /// The vertices that links start from: all where there is one kind.
    pub fn sources(&self) -> Range<u32> {
        self.of(0)
    }

    /// The vertices that links lead to.
    pub fn targets(&self) -> Range<u32> {
        self.num_sources..self.num_vertices
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
        Ok(if are_two { Kinds { num_sources: num_sources as u32, ..one } } else { one })
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
