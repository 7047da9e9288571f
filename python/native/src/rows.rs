//! Feature rows and labels of a mini-batch's vertices.

use bytemuck::{Pod, Zeroable};
use gsplit_kernels::{KernelError, ScaledRow, gather_rows};
use gsplit_store::{Column, FeatureDtype, FeatureTable, MultiLabels};
use half::{bf16, f16};
use rayon::prelude::*;

/// A matrix, row after row, with its width.
pub enum Rows {
    F32(Vec<f32>, usize),
    /// f16, by their bits.
    F16(Vec<u16>, usize),
    /// bf16, by their bits.
    Bf16(Vec<u16>, usize),
    /// One number a row.
    I64(Vec<i64>),
}

/// The feature rows of `vertices`. As they are stored, or f32 with `widen`; i8 always becomes f32, because each row has a scale.
pub fn gather(table: &FeatureTable, widen: bool, vertices: &[u32]) -> Result<Rows, KernelError> {
    let dim = table.dim();
    let widened = |fill: &dyn Fn(&mut [f32]) -> Result<(), KernelError>| {
        let mut out = vec![0.0; vertices.len() * dim];
        fill(&mut out)?;
        Ok(Rows::F32(out, dim))
    };
    match (table.dtype(), widen) {
        (FeatureDtype::F32, _) => widened(&|out| gather_rows(|v| table.row::<f32>(v), vertices, dim, out)),
        (FeatureDtype::F16, true) => widened(&|out| gather_rows(|v| table.row::<f16>(v), vertices, dim, out)),
        (FeatureDtype::Bf16, true) => widened(&|out| gather_rows(|v| table.row::<bf16>(v), vertices, dim, out)),
        (FeatureDtype::I8, _) => widened(&|out| {
            let row = |v| ScaledRow { scale: table.scale(v), values: table.row::<i8>(v) };
            gather_rows(row, vertices, dim, out)
        }),
        (FeatureDtype::F16, false) => Ok(Rows::F16(copied(table, vertices), dim)),
        (FeatureDtype::Bf16, false) => Ok(Rows::Bf16(copied(table, vertices), dim)),
    }
}

/// The stored values of `vertices`, two bytes each.
fn copied<T: Pod + Zeroable + Send>(table: &FeatureTable, vertices: &[u32]) -> Vec<T> {
    let dim = table.dim();
    let mut out = vec![T::zeroed(); vertices.len() * dim];
    if dim > 0 {
        let rows = out.par_chunks_exact_mut(dim).with_min_len(512).zip(vertices);
        rows.for_each(|(out, &v)| out.copy_from_slice(table.row(v)));
    }
    out
}

/// The classes of all vertices.
pub enum Labels {
    /// One each.
    One(Column<i32>),
    /// Any number each.
    Several(MultiLabels),
}

impl Labels {
    /// Those of `vertices`: the class, -1 for none; where there can be several a row of 0 and 1.
    pub fn of(&self, vertices: &[u32]) -> Rows {
        match self {
            Self::One(classes) => Rows::I64(vertices.iter().map(|&v| classes[v as usize].into()).collect()),
            Self::Several(labels) => {
                let classes = labels.num_classes();
                let has = |&v: &u32| (0..classes).map(move |class| f32::from(u8::from(labels.has(v, class))));
                Rows::F32(vertices.iter().flat_map(has).collect(), classes as usize)
            }
        }
    }
}
