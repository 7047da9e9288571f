//! Weights that came with the graph. Edge weights: used to draw in-neighbours, to multiply rows in
//! sums, and as the cost of cutting edges. Vertex weights: to be balanced over parts.

use std::ops::Deref;

use crate::{Column, ColumnFile, Dataset, Error, Result, VERTEX_WEIGHT};

/// A weight of each edge, in the order of [`Topology::indices`](crate::Topology::indices): finite
/// and not negative.
#[derive(Clone, Debug)]
pub struct EdgeWeights(Held);

#[derive(Clone, Debug)]
enum Held {
    Mapped(Column<f32>),
    /// To the nearest f32.
    Rounded(Vec<f32>),
}

impl Deref for EdgeWeights {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Held::Mapped(column) => column,
            Held::Rounded(weights) => weights,
        }
    }
}

impl EdgeWeights {
    /// Weights of the edges at `positions`, in their order.
    ///
    /// # Panics
    /// If an edge does not exist.
    pub fn select(&self, positions: &[u64]) -> Self {
        Self(Held::Rounded(positions.iter().map(|&edge| self[edge as usize]).collect()))
    }
}

impl Dataset {
    /// The edge column `name` as weights, checked once: f32 from the mapped file, other types
    /// converted to 4 bytes per edge.
    ///
    /// # Errors
    /// [`Error::Missing`] without such a column, [`Error::Invalid`] if it has several values per
    /// edge, or a weight that cannot be drawn by.
    pub fn edge_weights(&self, name: &str) -> Result<EdgeWeights> {
        let column = self.edge_column(name)?;
        let wrong = |problem: String| {
            Error::Invalid(format!("edge column `{name}` cannot weigh edges: {problem}"))
        };
        if column.width() != 1 {
            return Err(wrong(format!("expected one value an edge, it has {}", column.width())));
        }
        let weights = EdgeWeights(match column.descr() {
            "<f8" => Held::Rounded(rounded(&column, |weight: f64| weight as f32)?),
            "<i8" => Held::Rounded(rounded(&column, |weight: i64| weight as f32)?),
            _ => Held::Mapped(Column::open(column.path())?),
        });
        match weights.iter().position(|weight| !(0.0..f32::INFINITY).contains(weight)) {
            None => Ok(weights),
            Some(edge) => Err(wrong(format!(
                "edge {edge} has {}, expected finite numbers from 0",
                weights[edge]
            ))),
        }
    }
}

/// Weights of all vertices, of one column of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VertexLoads {
    /// Name of the column, with a number from 1 if a vertex has several values, e.g.
    /// `vertex_weight.2`.
    pub name: String,
    /// Weight of each vertex.
    pub values: Vec<u32>,
}

impl Dataset {
    /// Weights of the vertices that came with the graph; empty if it has none.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless they are whole numbers of 32 bits.
    pub fn vertex_weights(&self) -> Result<Vec<VertexLoads>> {
        let manifest = self.manifest();
        let named = manifest.vertex_weights.iter().map(String::as_str);
        let known =
            manifest.columns.contains_key(VERTEX_WEIGHT) && manifest.vertex_weights.is_empty();
        let mut weights = Vec::new();
        for name in named.chain(known.then_some(VERTEX_WEIGHT)) {
            let column = self.node_column(name)?;
            for at in 0..column.width() {
                let name =
                    if column.width() == 1 { name.into() } else { format!("{name}.{}", at + 1) };
                let values = whole(&column, at).map_err(|problem| {
                    Error::Invalid(format!("{}: {problem}", column.path().display()))
                })?;
                weights.push(VertexLoads { name, values });
            }
        }
        Ok(weights)
    }
}

/// Number `at` of each row.
fn whole(column: &ColumnFile, at: usize) -> std::result::Result<Vec<u32>, String> {
    let weight = |v: usize| {
        let value = column.number(v * column.width() + at);
        let of_type = || {
            format!("its type is {}, expected integers, or floats of 32 or 64 bits", column.descr())
        };
        vertex_weight(value.ok_or_else(of_type)?)
            .map_err(|problem| format!("vertex {v}: {problem}"))
    };
    (0..column.rows()).map(weight).collect()
}

/// Converts `value` to the weight of a vertex. The error says what was expected.
pub fn vertex_weight(value: f64) -> std::result::Result<u32, String> {
    match value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value) {
        true => Ok(value as u32),
        false => Err(format!("weight {value}: expected a whole number from 0 to {}", u32::MAX)),
    }
}

fn rounded<T: crate::Element>(column: &ColumnFile, convert: impl Fn(T) -> f32) -> Result<Vec<f32>> {
    Ok(column.as_slice::<T>()?.iter().map(|&weight| convert(weight)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_vertices_are_whole_numbers() {
        for (value, weight) in [(0.0, Some(0)), (7.0, Some(7)), (4_294_967_295.0, Some(u32::MAX))] {
            assert_eq!(vertex_weight(value).ok(), weight);
        }
        for value in [-1.0, 0.5, f64::NAN, f64::INFINITY, 4_294_967_296.0] {
            let problem = vertex_weight(value).unwrap_err();
            assert!(
                problem.contains(&value.to_string()) && problem.contains("whole number"),
                "{problem}"
            );
        }
    }
}
