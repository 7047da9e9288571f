//! A mini-batch as one graph, as PyG has it: each vertex is expanded once, at the layer that
//! reached it first.
//!
//! Returns: vertices in the order in which they were reached, the seeds first, and edges layer
//! after layer. Input: distinct seeds. Idea: only the vertices that a layer reaches for the first
//! time are the next frontier; the sampler draws their in-edges as in training at that layer, so
//! these edges are a subset of the edges of blocks. A vertex's position in the whole list is looked
//! up in one array, once per vertex of a layer. Cost: that of sampling; 4 bytes per vertex of the
//! graph, and one pass over the edges.

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Draw, EdgeIds, Graph, KernelError, SampledCsc, Sampler};

use crate::batch::Plan;

const UNSEEN: u32 = u32::MAX;

/// The edges of a mini-batch, by positions in its list of vertices.
#[derive(Default)]
pub struct Subgraph {
    /// All sources, then all targets.
    pub ends: Vec<i64>,
    /// The position of each edge in the graph's `indices`; empty unless asked for.
    pub ids: Vec<u64>,
    /// Vertices that each layer reached first; the seeds come before.
    pub new_vertices: Vec<usize>,
    /// Edges of each layer.
    pub num_edges: Vec<usize>,
}

/// Positions of vertices in the list of the present mini-batch.
#[derive(Default)]
pub struct Numbering {
    positions: Vec<u32>,
    /// Position in the whole list of each vertex of a layer.
    of_layer: Vec<u32>,
}

impl Numbering {
    /// Samples a mini-batch. Returns its vertices and edges.
    pub fn sample(
        &mut self,
        plan: &Plan,
        graph: &Graph<'_>,
        seeds: Vec<u32>,
        step: Step,
        sampler: &mut Sampler,
    ) -> Result<(Vec<u32>, Subgraph), KernelError> {
        self.positions.resize(graph.num_vertices(), UNSEEN);
        let mut vertices = seeds;
        for (position, &v) in (0..).zip(&vertices) {
            self.positions[v as usize] = position;
        }
        let sampled = self.layers(plan, graph, &mut vertices, step, sampler);
        vertices.iter().for_each(|&v| self.positions[v as usize] = UNSEEN);
        Ok((vertices, sampled?))
    }

    fn layers(
        &mut self,
        plan: &Plan,
        graph: &Graph<'_>,
        vertices: &mut Vec<u32>,
        step: Step,
        sampler: &mut Sampler,
    ) -> Result<Subgraph, KernelError> {
        let mut found = Subgraph::default();
        let mut layers = Vec::with_capacity(plan.fanouts.len());
        let mut first = 0;
        for (key, fanout) in step.layers(&plan.fanouts) {
            let mut layer = SampledCsc::default();
            let ids = if plan.edge_ids { EdgeIds::Keep } else { EdgeIds::Drop };
            sampler.start(&vertices[first..]);
            sampler.layer(graph, &Draw::of(fanout), &key, ids, &mut layer)?;
            let before = vertices.len();
            self.of_layer.clear();
            self.of_layer.extend(first as u32..before as u32);
            for &v in &sampler.mixed_frontier()[before - first..] {
                let position = &mut self.positions[v as usize];
                if *position == UNSEEN {
                    *position = vertices.len() as u32;
                    vertices.push(v);
                }
                self.of_layer.push(*position);
            }
            layer.local.iter_mut().for_each(|source| *source = self.of_layer[*source as usize]);
            found.ids.append(&mut layer.edges);
            found.new_vertices.push(vertices.len() - before);
            found.num_edges.push(layer.num_edges());
            layers.push((layer, first));
            first = before;
        }
        found.ends.reserve_exact(2 * found.num_edges.iter().sum::<usize>());
        for (layer, _) in &layers {
            found.ends.extend(layer.local.iter().map(|&source| i64::from(source)));
        }
        for (layer, first) in &layers {
            for (target, ends) in (*first as i64..).zip(layer.indptr.windows(2)) {
                found.ends.extend(std::iter::repeat_n(target, (ends[1] - ends[0]) as usize));
            }
        }
        Ok(found)
    }
}
