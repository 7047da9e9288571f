//! Layers between vertices of several types, as edges and rows by type.
//!
//! Returns: for each relation the ends of its edges, and for each type its vertices and the rows
//! that move between ranks. Input: a layer whose targets are rows of in-edges ([`RowLayout`]).
//! Idea: a position in a list of vertices of all types becomes the position among the vertices of
//! its type, whose order stays as it is, so targets still come first. Cost: a pass over edges and
//! vertices.

use gsplit_kernels::RowLayout;
use gsplit_sample::{HostExchange, HostLayer, HostSample, RowCounts};
use gsplit_store::{GraphTypes, Relation};
use rayon::prelude::*;

use crate::batch::{Problem, check_size};

/// Types of vertices, and the relations between them.
pub struct Types {
    pub layout: RowLayout,
    relations: Vec<Relation>,
    /// For each type the relations into it, by their places, with the types of their sources.
    into: Vec<Vec<(usize, usize)>>,
}

/// A layer of a rank, by type and by relation.
pub struct TypedLayer {
    /// For each relation the sources of its edges, then their targets, as rows of their types.
    pub ends: Vec<Vec<i64>>,
    /// For each type the vertices of the rows that the layer reads, from 0.
    pub src: Vec<Vec<i64>>,
    /// For each type the number of rows that the layer computes: the first of the rows it reads.
    pub num_dst: Vec<usize>,
    /// For each type the rows of the layer below that move; empty if none move.
    pub exchanges: Vec<HostExchange>,
}

impl Types {
    pub fn new(types: &GraphTypes) -> Result<Self, Problem> {
        let source = |place: usize| types.position(&types.relations[place].source);
        let into = |at| {
            let places = types.into_type(at).into_iter();
            places.map(|place| (place, source(place).unwrap_or_default())).collect()
        };
        Ok(Self {
            layout: RowLayout::new(types.shapes())?,
            relations: types.relations.clone(),
            into: (0..types.vertices.len()).map(into).collect(),
        })
    }

    /// The layers of `sample`, from the seeds down, and the vertices whose rows are loaded.
    pub fn layers(&self, sample: HostSample) -> Result<(Vec<TypedLayer>, Vec<u32>), Problem> {
        let depths = sample.layers.iter().enumerate();
        let layers = depths.map(|(depth, layer)| self.layer(layer, sample.read(depth)));
        Ok((layers.collect::<Result<_, _>>()?, sample.input))
    }

    /// A layer that reads the rows of the vertices `read`.
    fn layer(&self, layer: &HostLayer, read: &[u32]) -> Result<TypedLayer, Problem> {
        check_size(layer.edges.num_edges().max(read.len()))?;
        let of_types = self.layout.types();
        let (read_by_type, targets) =
            (self.layout.positions(read)?, self.layout.positions(&layer.frontier)?);
        let mut places = vec![0; read.len()];
        for positions in &read_by_type {
            (0u32..).zip(positions).for_each(|(place, &at)| places[at as usize] = place);
        }
        let (indptr, sources) = (layer.edges.indptr(), layer.edges.sources());
        let mut blocks = vec![Default::default(); self.relations.len()];
        let mut first = 0;
        for (into, targets) in self.into.iter().zip(&targets) {
            for (&(relation, of), row) in into.iter().zip(first..) {
                blocks[relation] = (of, row, into.len(), targets.len());
            }
            first += into.len() * targets.len();
        }
        let ends = |(relation, (of, row, step, count)): (usize, (usize, usize, usize, usize))| {
            let (mut from, mut to) = (Vec::new(), Vec::new());
            for target in 0..count {
                let row = row + target * step;
                for &source in &sources[indptr[row] as usize..indptr[row + 1] as usize] {
                    let vertex = read[source as usize];
                    if !of_types[of].vertices.contains(&vertex) {
                        let relation = &self.relations[relation];
                        return Err(Problem::Data(format!(
                            "an edge of {relation} is from vertex {vertex}, which is no {}",
                            relation.source
                        )));
                    }
                    from.push(places[source as usize].into());
                    to.push(target as i64);
                }
            }
            from.append(&mut to);
            Ok(from)
        };
        let ids = |(of, positions): (usize, &Vec<u32>)| {
            let start = of_types[of].vertices.start;
            positions.iter().map(|&at| (read[at as usize] - start).into()).collect()
        };
        let exchange = layer.exchange.as_ref();
        Ok(TypedLayer {
            ends: blocks.into_par_iter().enumerate().map(ends).collect::<Result<_, _>>()?,
            src: read_by_type.iter().enumerate().map(ids).collect(),
            num_dst: targets.iter().map(Vec::len).collect(),
            exchanges: exchange
                .map_or_else(Vec::new, |exchange| self.exchanges(exchange, read, &places)),
        })
    }

    /// The part of `exchange` that each type has. `places` has the position of each vertex of
    /// `read` among the vertices of its type.
    fn exchanges(
        &self,
        exchange: &HostExchange,
        read: &[u32],
        places: &[u32],
    ) -> Vec<HostExchange> {
        let RowCounts { send, receive } = &exchange.counts;
        let none = HostExchange {
            read: Vec::new(),
            counts: RowCounts { send: vec![0; send.len()], receive: vec![0; send.len()] },
            asked: Vec::new(),
            order: None,
        };
        let mut parts = vec![none; self.into.len()];
        let (mut asked, mut row) =
            (exchange.asked.iter(), read.len() - receive.iter().sum::<usize>());
        let type_of = |at: usize| self.layout.type_of(read[at]).unwrap_or_default();
        for (rank, (&to, &from)) in send.iter().zip(receive).enumerate() {
            for &at in asked.by_ref().take(to) {
                let part = &mut parts[type_of(at as usize)];
                part.asked.push(places[at as usize]);
                part.counts.send[rank] += 1;
            }
            (row..row + from).for_each(|at| parts[type_of(at)].counts.receive[rank] += 1);
            row += from;
        }
        parts
    }
}
