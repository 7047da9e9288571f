//! Exact inference: every layer over all vertices with full neighbourhoods, one layer after the other.
//!
//! Vertices go through a layer in chunks of bounded edges; what a chunk needs is relabelled as in training, so a model's
//! layers are the same code in both. Memory: the rows of two layers, 4 · n · (width below + width above) bytes.

use gsplit_kernels::{EdgeIds, Fanout, Graph, SampledLayer, Sampler, Stream, StreamKey, Uniform, gather_f32};
use gsplit_store::{FeatureTable, Stage};

use crate::autograd::Buffer;
use crate::job::Job;
use crate::model::{LayerEdges, Model};
use crate::operator::Rows;
use crate::step::to_rows;
use crate::{Error, Result};

/// Edges of a chunk, unless a single vertex has more.
const CHUNK_EDGES: u64 = 1 << 18;
/// Vertices of a chunk.
const CHUNK_VERTICES: usize = 1 << 14;

/// The logits of every vertex, row after row.
pub fn infer(model: &Model, job: &Job<'_>, stage: &dyn Stage) -> Result<Vec<f32>> {
    let (graph, features) = (&job.graph, &job.features);
    let n = graph.num_vertices();
    let mut below: Option<Vec<f32>> = None;
    let mut sampler = Sampler::default();
    for index in 0..model.num_layers() {
        let in_dim = if index == 0 { features.dim() } else { model.out_dim(index - 1) };
        let mut above = with_room(n * model.out_dim(index))?;
        let mut start = 0;
        while start < n {
            job.check_stop()?;
            let end = chunk_end(graph, start);
            let (chunk, below) = (start as u32..end as u32, below.as_deref().map(|rows| (rows, in_dim)));
            above.extend(infer_chunk(model, index, &mut sampler, graph, chunk, features, below)?);
            stage.advance((end - start) as u64);
            start = end;
        }
        below = Some(above);
    }
    Ok(below.unwrap_or_default())
}

/// An empty vector with room for `len` values, or an error where the machine would never have so much memory.
fn with_room(len: usize) -> Result<Vec<f32>> {
    let mut values = Vec::new();
    let gib = len as f64 * size_of::<f32>() as f64 / f64::from(1 << 30);
    let refused = |_| {
        Error::Option(format!("--eval-every: evaluation takes {gib:.0} GiB, more than there is: pass --eval-every 0"))
    };
    values.try_reserve_exact(len).map_err(refused)?;
    Ok(values)
}

fn chunk_end(graph: &Graph<'_>, start: usize) -> usize {
    let limit = graph.indptr[start] + CHUNK_EDGES;
    let most = (start + CHUNK_VERTICES).min(graph.num_vertices());
    let fits = graph.indptr[start + 1..=most].partition_point(|&end| end <= limit);
    start + fits.max(1)
}

fn infer_chunk(
    model: &Model,
    index: usize,
    sampler: &mut Sampler,
    graph: &Graph<'_>,
    vertices: std::ops::Range<u32>,
    features: &FeatureTable,
    below: Option<(&[f32], usize)>,
) -> Result<Vec<f32>> {
    let frontier: Vec<u32> = vertices.collect();
    let (key, mut all) = (StreamKey::new(0, Stream::Sample), SampledLayer::default());
    sampler.start(&frontier);
    sampler.layer(graph, &Uniform::new(Fanout::All), &key, EdgeIds::Drop, &mut all)?;
    let vertices = sampler.mixed();
    let hidden = below.map(|(below, dim)| {
        let mut rows = Buffer::new(vertices.len() * dim)?;
        gather_f32(below, dim, vertices, rows.as_mut_slice())?;
        rows.into_tensor(&[vertices.len() as i64, dim as i64])
    });
    let hidden = hidden.transpose()?;
    let edges = LayerEdges::new(*graph, &all.indptr, &all.local, vertices);
    let below = hidden.as_ref().map_or(Rows::Stored { features, vertices }, Rows::Hidden);
    to_rows(&model.infer_layer(index, &edges, below)?)
}

/// Share of `vertices` whose largest logit is their label; unlabelled ones are left out. `None` when none is labelled.
pub fn accuracy(logits: &[f32], classes: usize, labels: &[i32], vertices: &[u32]) -> Option<f64> {
    let labelled: Vec<u32> = vertices.iter().copied().filter(|&v| labels[v as usize] >= 0).collect();
    let right = labelled.iter().filter(|&&v| {
        let row = &logits[v as usize * classes..(v as usize + 1) * classes];
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        best.is_some_and(|(class, _)| class as i32 == labels[v as usize])
    });
    let right = right.count();
    (!labelled.is_empty()).then(|| right as f64 / labelled.len() as f64)
}
