//! Feature rows and labels of a mini-batch's vertices.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use gsplit_kernels::{ScaledRow, StoredRow, gather_rows};
use gsplit_store::{Column, FeatureDtype, FeatureTable, MultiLabels};
use half::{bf16, f16};
use rayon::prelude::*;

use crate::batch::Problem;
use crate::memory::{Buffer, Pool};

/// The place of each of `num_vertices` in a cache of the rows of `vertices`, `u32::MAX` outside it.
pub fn cache_places(vertices: &[u32], num_vertices: usize) -> Vec<u32> {
    let mut places = vec![u32::MAX; num_vertices];
    for (place, &v) in (0..).zip(vertices) {
        places[v as usize] = place;
    }
    places
}

/// The feature rows of a mini-batch's vertices.
pub struct Rows {
    /// Rows that are not cached, of each type of vertices that has any.
    pub features: Vec<Features>,
    /// Places of the cached rows, if there is a cache.
    pub hits: Option<Hits>,
}

/// Rows of a mini-batch in a cache, and the others.
#[derive(Default)]
pub struct Hits {
    /// Positions of the rows that are gathered.
    pub missed: Vec<i64>,
    /// The place in the cache of each row; arbitrary for gathered rows.
    pub places: Vec<i64>,
}

/// Gathers the rows of `vertices` that are not in a cache of these [places](cache_places), and
/// returns the places of the cached ones.
pub fn gather(
    table: &FeatureTable,
    widen: bool,
    cached: Option<&[u32]>,
    vertices: &[u32],
    pool: &Pool,
) -> Result<Rows, Problem> {
    let Some(cached) = cached else {
        let of_type = |of: &FeatureTable| {
            let own = vertices.iter().filter(|v| of.vertices().contains(v));
            copied(of, widen, &own.copied().collect::<Vec<u32>>(), pool)
        };
        let features = match table.is_by_type() {
            true => table.by_type().iter().map(of_type).collect::<Result<_, _>>()?,
            false => vec![copied(table, widen, vertices, pool)?],
        };
        return Ok(Rows { features, hits: None });
    };
    let (mut hits, mut missed) = (Hits::default(), Vec::new());
    for (position, &v) in (0..).zip(vertices) {
        let place = cached[v as usize];
        let is_missed = place == u32::MAX;
        if is_missed {
            missed.push(v);
            hits.missed.push(position);
        }
        hits.places.push(if is_missed { 0 } else { place.into() });
    }
    Ok(Rows { features: vec![copied(table, widen, &missed, pool)?], hits: Some(hits) })
}

/// The feature rows of some vertices.
pub struct Features {
    /// A buffer that begins with the rows, one after the other.
    pub memory: Buffer,
    /// Kind of their values.
    pub kind: Kind,
    /// Number of rows.
    pub rows: usize,
    /// Number of values per row.
    pub dim: usize,
}

/// A type of feature values in Python.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    F32,
    /// Two values in the place of one f32.
    F16,
    /// Stored like f16; NumPy has no such type.
    Bf16,
}

/// The feature rows of `vertices`, in memory from `pool`: in their stored type, or as f32 with
/// `widen`; i8 always becomes f32, because each row has a scale.
fn copied(
    table: &FeatureTable,
    widen: bool,
    vertices: &[u32],
    pool: &Pool,
) -> Result<Features, Problem> {
    let (rows, dim) = (vertices.len(), table.dim());
    let count = rows * dim;
    let kind = match table.dtype() {
        FeatureDtype::F16 if !widen => Kind::F16,
        FeatureDtype::Bf16 if !widen => Kind::Bf16,
        _ => Kind::F32,
    };
    let mut memory = pool.take(if kind == Kind::F32 { count } else { count.div_ceil(2) });
    if table.read_by().is_some() {
        read(table, kind, vertices, &mut memory)?;
        return Ok(Features { memory, kind, rows, dim });
    }
    if kind != Kind::F32 {
        copy(table, vertices, &mut cast_slice_mut::<f32, u16>(&mut memory)[..count]);
        return Ok(Features { memory, kind, rows, dim });
    }
    let out = &mut memory[..count];
    match table.dtype() {
        FeatureDtype::F32 => gather_rows(|v| table.row::<f32>(v), vertices, dim, out)?,
        FeatureDtype::F16 => gather_rows(|v| table.row::<f16>(v), vertices, dim, out)?,
        FeatureDtype::Bf16 => gather_rows(|v| table.row::<bf16>(v), vertices, dim, out)?,
        FeatureDtype::I8 => {
            let row = |v| ScaledRow { scale: table.scale(v), values: table.row::<i8>(v) };
            gather_rows(row, vertices, dim, out)?;
        }
    }
    Ok(Features { memory, kind, rows, dim })
}

/// Reads the rows of `vertices` from their file into `memory`, as values of `kind`.
fn read(
    table: &FeatureTable,
    kind: Kind,
    vertices: &[u32],
    memory: &mut [f32],
) -> gsplit_store::Result<()> {
    let dim = table.dim();
    let mut write = |at: usize, bytes: &[u8], scale: f32| {
        if kind != Kind::F32 {
            let out = cast_slice_mut::<f32, u16>(memory);
            return out[at * dim..][..dim].copy_from_slice(cast_slice(bytes));
        }
        let out = &mut memory[at * dim..][..dim];
        match table.dtype() {
            FeatureDtype::F32 => cast_slice::<u8, f32>(bytes).write_to(out),
            FeatureDtype::F16 => cast_slice::<u8, f16>(bytes).write_to(out),
            FeatureDtype::Bf16 => cast_slice::<u8, bf16>(bytes).write_to(out),
            FeatureDtype::I8 => ScaledRow { scale, values: cast_slice(bytes) }.write_to(out),
        }
    };
    table.read_rows(vertices, &mut write).map(drop)
}

/// Copies the stored values of `vertices` to `out`.
fn copy<T: Pod + Send + Sync>(table: &FeatureTable, vertices: &[u32], out: &mut [T]) {
    if table.dim() > 0 {
        let rows = out.par_chunks_exact_mut(table.dim()).with_min_len(512).zip(vertices);
        rows.for_each(|(out, &v)| out.copy_from_slice(table.row(v)));
    }
}

/// Labels of all vertices.
pub enum Labels {
    /// One class each.
    One(Column<i32>),
    /// Any number of classes each.
    Several(MultiLabels),
    /// One number each.
    Number(Column<f32>),
}

/// Labels of some vertices.
pub enum Classes {
    /// Classes, -1 for none.
    One(Vec<i64>),
    /// Numbers, NaN for none.
    Number(Vec<f32>),
    /// Rows of 0 and 1, NaN for a cell without a value, and their width.
    Several(Vec<f32>, usize),
}

impl Labels {
    /// Labels of `vertices`.
    pub fn of(&self, vertices: &[u32]) -> Classes {
        match self {
            Self::One(classes) => {
                Classes::One(vertices.iter().map(|&v| classes[v as usize].into()).collect())
            }
            Self::Number(numbers) => {
                Classes::Number(vertices.iter().map(|&v| numbers[v as usize]).collect())
            }
            Self::Several(labels) => {
                let cells = vertices.iter().flat_map(|&v| labels.numbers(v));
                Classes::Several(cells.collect(), labels.num_classes() as usize)
            }
        }
    }
}
