//! Rows of the lowest frontier from vertices of several types: the layers above read rows of one
//! width, whatever the types.
//!
//! The features of a type pass through a product of its own, with a bias; types without features
//! have learnt rows ([`Embeddings`]). A rank encodes the vertices that it loads, and the exchange
//! below the lowest layer moves encoded rows.

use std::ops::Range;
use std::sync::Arc;

use gsplit_store::GraphTypes;
use gsplit_store::memory::shown;
use tch::Tensor;

use super::embeddings::{Embeddings, LookedUp};
use super::parameters::Parameters;
use crate::Result;
use crate::operator::{Finish, Place, linear, put};

/// The types of a graph, and the rows that are learnt for some.
#[derive(Clone, Debug)]
pub struct Typed {
    /// Types and relations.
    pub types: GraphTypes,
    /// Rows of the types without features.
    pub embeddings: Arc<Embeddings>,
}

impl Typed {
    /// Says where the learnt rows are, if they are not in memory.
    pub fn note(&self) -> Option<String> {
        let bytes = Some(self.embeddings.bytes_in_files()).filter(|bytes| *bytes > 0)?;
        Some(format!(
            "learnt rows take {}, more than half of the memory: they are in a temporary file, in \
             the folder of --checkpoint or TMPDIR",
            shown(bytes)
        ))
    }
}

/// The products and learnt rows of all types.
pub struct Encoders {
    types: Vec<Encoder>,
    embeddings: Arc<Embeddings>,
    width: usize,
}

/// Makes the rows of a type.
struct Encoder {
    vertices: Range<u32>,
    /// Weight `[features, width]` and bias, if the type has features.
    weights: Option<(Tensor, Tensor)>,
}

impl Encoders {
    /// Encoders to rows of `width` values.
    pub fn new(parameters: &mut Parameters, typed: &Typed, width: usize) -> Self {
        let rows = typed.types.rows();
        let encoder = |(of, rows): (&gsplit_store::VertexType, &gsplit_store::RowsOfType)| {
            let mut named = parameters.below(format!("encoders.{}", of.name));
            let weights = of.features.as_ref().map(|features| {
                let weight = named.glorot("weight", [features.dim as usize, width]);
                (weight, named.bias("bias", width))
            });
            let vertices = rows.vertices.start as u32..rows.vertices.end as u32;
            Encoder { vertices, weights }
        };
        let types = typed.types.vertices.iter().zip(&rows).map(encoder).collect();
        parameters.learn_rows(typed.embeddings.clone());
        Self { types, embeddings: typed.embeddings.clone(), width }
    }

    /// Width of the rows that they make.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The rows of `vertices`, `[vertices, width]`. `features` holds a matrix for each type with
    /// features, of its vertices among these, in their order. Learnt rows that were read are added
    /// to `looked_up`, if given.
    pub fn encode(
        &self,
        place: &Place,
        vertices: &[u32],
        features: &[Tensor],
        mut looked_up: Option<&mut Vec<LookedUp>>,
    ) -> Result<Tensor> {
        let (mut features, mut tables) = (features.iter(), 0..);
        let (mut positions, mut parts) = (Vec::with_capacity(vertices.len()), Vec::new());
        for of in &self.types {
            let before = positions.len();
            let own = (0u32..).zip(vertices).filter(|(_, v)| of.vertices.contains(v));
            positions.extend(own.map(|(at, _)| at));
            let own = &positions[before..];
            let table = if of.weights.is_none() { tables.next() } else { None };
            let given = if table.is_none() { features.next() } else { None };
            if own.is_empty() {
                continue;
            }
            match (&of.weights, given, table) {
                (Some((weight, bias)), Some(given), _) => {
                    parts.push(linear(place, given, weight, Some(bias), Finish::default())?);
                }
                (None, _, Some(table)) => {
                    let own =
                        own.iter().map(|&at| vertices[at as usize] - of.vertices.start).collect();
                    let own: Vec<u32> = own;
                    let rows = self.embeddings.rows(table, 0, &own)?;
                    match &mut looked_up {
                        None => parts.push(rows),
                        Some(looked_up) => {
                            let rows = rows.set_requires_grad(true);
                            parts.push(rows.shallow_clone());
                            looked_up.push(LookedUp { table, vertices: own, rows });
                        }
                    }
                }
                _ => {}
            }
        }
        match &parts[..] {
            [] => Ok(Tensor::f_zeros([0, self.width as i64], (tch::Kind::Float, place.device()))?),
            [all] => Ok(all.shallow_clone()),
            parts => put(parts, &positions),
        }
    }
}
