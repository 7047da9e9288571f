//! Weights of edges: to draw in-neighbours by, and to multiply rows by in sums.

use std::ops::Deref;

use crate::{Column, ColumnFile, Dataset, Error, Result};

/// A weight of each edge, in the order of [`Topology::indices`](crate::Topology::indices): finite and not negative.
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
    /// If there is no such edge.
    pub fn select(&self, positions: &[u64]) -> Self {
        Self(Held::Rounded(positions.iter().map(|&edge| self[edge as usize]).collect()))
    }
}

impl Dataset {
    /// The edge column `name` as weights, which are read once: f32 from the mapped file, other types into 4 bytes an edge.
    ///
    /// # Errors
    /// [`Error::Missing`] without such a column, [`Error::Invalid`] if it has several values an edge, or a weight that nothing can be
    /// drawn by.
    pub fn edge_weights(&self, name: &str) -> Result<EdgeWeights> {
        let column = self.edge_column(name)?;
        let wrong = |problem: String| Error::Invalid(format!("edge column `{name}` cannot weigh edges: {problem}"));
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
            Some(edge) => Err(wrong(format!("edge {edge} has {}, expected finite numbers from 0", weights[edge]))),
        }
    }
}

fn rounded<T: crate::Element>(column: &ColumnFile, convert: impl Fn(T) -> f32) -> Result<Vec<f32>> {
    Ok(column.as_slice::<T>()?.iter().map(|&weight| convert(weight)).collect())
}
