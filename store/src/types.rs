//! Types of vertices, and the relations between them.
//!
//! Vertices of a type have consecutive ids: the first type from 0, then the next type.
//! A relation is a kind of edges from vertices of one type to vertices of another or the same type.
//! The in-edges of a vertex are grouped by relation: it has one row for each relation into its
//! type, in the order of [`GraphTypes::relations`]. `topology/rows.npy` holds the first edge of
//! every row, and the number of edges at the end; rows of a vertex are adjacent, so its in-edges
//! are too. Sources ascend within a row.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::FeatureInfo;

/// Types of vertices and relations of a graph, where it has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphTypes {
    /// In the order of their ids.
    pub vertices: Vec<VertexType>,
    /// In the order of the rows of a vertex.
    pub relations: Vec<Relation>,
}

/// A type of vertices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VertexType {
    /// Name, also in the names of files.
    pub name: String,
    /// Number of vertices.
    pub count: u64,
    /// Its feature rows, if it has any: `nodes/feat.NAME.arrow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<FeatureInfo>,
}

/// A kind of edges.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relation {
    /// Type of the sources.
    pub source: String,
    /// Name.
    pub name: String,
    /// Type of the targets, which aggregate from the sources.
    pub target: String,
}

impl std::fmt::Display for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.source, self.name, self.target)
    }
}

impl GraphTypes {
    const MOST_TYPES: usize = 255;
    const MOST_RELATIONS: usize = 1000;

    /// Describes the first wrong name or count, if there is one.
    pub fn check(&self) -> Result<(), String> {
        let (types, relations) = (self.vertices.len(), self.relations.len());
        if types == 0 || types > Self::MOST_TYPES || relations > Self::MOST_RELATIONS {
            return Err(format!(
                "{types} types of vertices and {relations} relations: expected up to {} and {}",
                Self::MOST_TYPES,
                Self::MOST_RELATIONS
            ));
        }
        let names = self.vertices.iter().map(|of| &of.name);
        for name in names.clone().chain(self.relations.iter().map(|relation| &relation.name)) {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            if name.is_empty() || name.len() > 128 || !name.bytes().all(is_plain) {
                return Err(format!(
                    "`{name}` names a type or a relation: expected 1 to 128 letters, digits, _, - \
                     or ."
                ));
            }
        }
        let (mut seen, mut known) = (BTreeSet::new(), BTreeSet::new());
        if let Some(name) = names.clone().find(|name| !known.insert(*name)) {
            return Err(format!("two types of vertices are called `{name}`"));
        }
        for relation in &self.relations {
            if let Some(end) =
                [&relation.source, &relation.target].into_iter().find(|end| !known.contains(*end))
            {
                let names: Vec<&str> = names.map(String::as_str).collect();
                let names = names.join(", ");
                return Err(format!(
                    "relation {relation}: the type `{end}` is unknown, expected one of {names}"
                ));
            }
            if !seen.insert(relation) {
                return Err(format!("two relations are {relation}"));
            }
        }
        Ok(())
    }

    /// Number of vertices of all types.
    pub fn num_vertices(&self) -> u64 {
        self.vertices.iter().map(|of| of.count).sum()
    }

    /// The vertices of each type and their rows.
    pub fn rows(&self) -> Vec<RowsOfType> {
        let (mut start, mut first) = (0, 0);
        let mut rows = Vec::with_capacity(self.vertices.len());
        for (at, of) in self.vertices.iter().enumerate() {
            let relations = self.into_type(at).len() as u64;
            rows.push(RowsOfType { vertices: start..start + of.count, first, relations });
            start += of.count;
            first += of.count * relations;
        }
        rows
    }

    /// Number of vertices of each type, and the relations into it, `SOURCE/NAME/TARGET`, in the
    /// order of the rows of a vertex.
    pub fn shapes(&self) -> impl Iterator<Item = (u64, Vec<String>)> {
        self.vertices.iter().enumerate().map(|(at, of)| {
            let relations = self.into_type(at).into_iter();
            (of.count, relations.map(|place| self.relations[place].to_string()).collect())
        })
    }

    /// The relations into type `at`, by their places, in the order of the rows of a vertex.
    pub fn into_type(&self, at: usize) -> Vec<usize> {
        let is_into = |&place: &usize| self.relations[place].target == self.vertices[at].name;
        (0..self.relations.len()).filter(is_into).collect()
    }

    /// Number of rows of all vertices.
    pub fn num_rows(&self) -> u64 {
        self.rows().last().map_or(0, |of| of.row(of.vertices.end))
    }

    /// Place of the type called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.vertices.iter().position(|of| of.name == name)
    }

    /// File of the feature rows of the type called `name`.
    pub(crate) fn feature_file(name: &str) -> String {
        format!("nodes/feat.{name}.arrow")
    }

    /// Hands the place of the first row of each vertex to `take`, from vertex 0 on, and the number
    /// of rows at the end.
    pub(crate) fn for_each_first_row<E>(
        &self,
        mut take: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for of in self.rows() {
            of.vertices.clone().try_for_each(|v| take(of.row(v)))?;
        }
        take(self.num_rows())
    }
}

/// Vertices of a type and their rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsOfType {
    /// The vertices.
    pub vertices: Range<u64>,
    /// First row of the first vertex.
    pub first: u64,
    /// Number of rows of each vertex: the relations into the type.
    pub relations: u64,
}

impl RowsOfType {
    /// First row of vertex `v`.
    pub fn row(&self, v: u64) -> u64 {
        self.first + (v - self.vertices.start) * self.relations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_relations_are_checked() {
        let of = |name: &str| VertexType { name: name.into(), count: 2, features: None };
        let relation = |source: &str, name: &str, target: &str| Relation {
            source: source.into(),
            name: name.into(),
            target: target.into(),
        };
        let types = |names: &[&str], relations: Vec<Relation>| GraphTypes {
            vertices: names.iter().map(|name| of(name)).collect(),
            relations,
        };
        let writes = relation("author", "writes", "paper");
        let fine = types(&["author", "paper"], vec![writes.clone()]);
        assert_eq!(
            (fine.check(), fine.rows()[1].vertices.clone(), fine.num_rows()),
            (Ok(()), 2..4, 2)
        );
        for (wrong, says) in [
            (types(&[], vec![]), "0 types"),
            (types(&["a", "a"], vec![]), "two types of vertices are called `a`"),
            (types(&["a/b"], vec![]), "`a/b` names a type"),
            (
                types(&["author"], vec![writes.clone()]),
                "the type `paper` is unknown, expected one of author",
            ),
            (
                types(&["author", "paper"], vec![writes.clone(), writes.clone()]),
                "two relations are author/writes/paper",
            ),
            (types(&["author", "paper"], vec![writes; 1001]), "1001 relations: expected up to"),
        ] {
            let problem = wrong.check().unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }
}
