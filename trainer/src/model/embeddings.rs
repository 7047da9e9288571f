//! Learnt rows of the vertices of types without features.
//!
//! Returns: rows of given vertices, and the optimizer's moments of them. Idea: only the rows of a
//! mini-batch move, as in torch's `SparseAdam`: the moments of a row change only when the row does,
//! and their bias is corrected by the number of all updates. The ranks of a process share one
//! table. It is cut into as many shards as ranks, by vertex, and each rank updates the rows of its
//! shard, so ranks write different memory. Ranks that are processes have a table each, and make all
//! updates. Cost: the gradients of a mini-batch go to every rank. Memory: the rows and the moments,
//! once for each process; more than half of the memory is in a file without a name, of which the
//! rows of a mini-batch are requested together before the first is read.

use std::env::temp_dir;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use gsplit_kernels::{Communicator, Draws, Stream, StreamKey, all_gather_v};
use gsplit_store::memory::Memory;
use gsplit_store::{GraphTypes, ScratchValues};
use rayon::prelude::*;
use tch::Tensor;

use crate::Result;
use crate::autograd::values;
use crate::config::Config;
use crate::operator::filled;

/// Rows that a thread writes at a time.
const BLOCK: usize = 1 << 14;

/// The learnt rows of a graph.
#[derive(Debug)]
pub struct Embeddings {
    tables: Vec<LearntRows>,
}

/// The rows of a type.
#[derive(Debug)]
struct LearntRows {
    name: String,
    count: usize,
    width: usize,
    /// Values of a record: a row, then each moment of it.
    record: usize,
    /// Folder of the files, if the tables are in files.
    folder: Option<PathBuf>,
    /// Record `v / shards` of shard `v % shards` belongs to vertex `v`.
    shards: Vec<RwLock<Shard>>,
}

/// Values in memory or in a file, e.g. the records of a shard; derefs to them.
#[derive(Debug)]
pub enum Shard {
    /// In memory.
    Memory(Vec<f32>),
    /// In a file.
    File(ScratchValues),
}

/// Values of a table for a checkpoint.
#[derive(Debug)]
pub struct LearntValues {
    /// Name in the checkpoint.
    pub name: String,
    /// `[vertices, width]`.
    pub shape: [usize; 2],
    /// Row after row.
    pub values: Shard,
}

/// Rows that a mini-batch has read.
#[derive(Debug)]
pub struct LookedUp {
    /// Place of the table.
    pub table: usize,
    /// Distinct vertices of the type, from 0.
    pub vertices: Vec<u32>,
    /// Their rows, a leaf; or the gradients of the rows.
    pub rows: Tensor,
}

impl Embeddings {
    /// Rows for the `types` without features, from the seed of `config`, in `shards`, with room for
    /// a number of `moments`. They have length 1 in expectation, whatever their width.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) if they take more than half of the memory, and the
    /// disk does not have room for them either.
    pub fn new(types: &GraphTypes, config: &Config, shards: usize, moments: usize) -> Result<Self> {
        let (width, of_types) = (config.model.hidden, types.vertices.iter().enumerate());
        let record = (1 + moments) * width;
        let learnt = of_types.filter(|(_, of)| of.features.is_none());
        let count: u64 = learnt.clone().map(|(_, of)| of.count).sum();
        let memory =
            config.system.memory_bytes().unwrap_or_else(|| Memory::of_this_machine().available());
        let folder = (count * record as u64 * 4 > memory / 2).then(|| folder(config));
        let tables = learnt.map(|(at, of)| {
            let key = StreamKey::new(config.run.seed, Stream::Init);
            let key = StreamKey { step: u32::MAX - at as u32, ..key };
            let bound = (3.0 / width as f64).sqrt() as f32;
            let shard = |shard: usize| {
                let len = (of.count as usize).saturating_sub(shard).div_ceil(shards) * record;
                let mut held = Shard::new(folder.as_deref(), len)?;
                held.par_chunks_exact_mut(record).enumerate().for_each(|(row, values)| {
                    let mut draws = Draws::new(&key, (row * shards + shard) as u32);
                    values[..width].fill_with(|| (2.0 * draws.unit_f32() - 1.0) * bound);
                });
                Ok(RwLock::new(held))
            };
            let (name, count) = (format!("embeddings.{}", of.name), of.count as usize);
            let shards = (0..shards).map(shard).collect::<Result<_>>()?;
            Ok(LearntRows { name, count, width, record, folder: folder.clone(), shards })
        });
        Ok(Self { tables: tables.collect::<Result<_>>()? })
    }

    /// Bytes of rows and moments that are in a file.
    pub fn bytes_in_files(&self) -> u64 {
        let shards = self.tables.iter().flat_map(LearntRows::held);
        let bytes = shards.map(|shard| match &*shard {
            Shard::Memory(_) => 0,
            Shard::File(values) => size_of_val(&values[..]) as u64,
        });
        bytes.sum()
    }

    /// Number of learnt values.
    pub fn num_values(&self) -> usize {
        self.tables.iter().map(|of| of.count * of.width).sum()
    }

    /// Rows of `vertices`, of the type of `table` from 0, f32 `[vertices, width]`; or, if `which`
    /// is not 0, the moment of them with this number from 1.
    pub fn rows(&self, table: usize, which: usize, vertices: &[u32]) -> Result<Tensor> {
        let of = &self.tables[table];
        let (shards, held) = (of.shards.len() as u32, of.held());
        let record = |v: u32| (&held[(v % shards) as usize], (v / shards) as usize * of.record);
        if which == 0 {
            vertices.par_iter().with_min_len(256).for_each(|&v| {
                if let (Shard::File(values), at) = (&**record(v).0, record(v).1) {
                    values.expect(at..at + of.record);
                }
            });
        }
        filled(&[vertices.len(), of.width], |out| {
            let rows = out.par_chunks_exact_mut(of.width).with_min_len(256);
            rows.zip(vertices).for_each(|(out, &v)| {
                let (shard, at) = record(v);
                out.copy_from_slice(&shard[at + which * of.width..][..of.width]);
            });
            Ok(())
        })
    }

    /// Overwrites the rows of the distinct `vertices`, then each moment of them, as
    /// [`Embeddings::rows`] returns them.
    pub fn write(&self, table: usize, vertices: &[u32], moved: &[Tensor]) -> Result<()> {
        let (of, shards) = (&self.tables[table], self.tables[table].shards.len() as u32);
        let moved = moved.iter().map(values::<f32>).collect::<Result<Vec<_>>>()?;
        for (shard, held) in (0..).zip(&of.shards) {
            let own = vertices.iter().zip(0usize..).filter(|(v, _)| **v % shards == shard);
            let mut own: Vec<(u32, usize)> = own.map(|(v, at)| (v / shards, at)).collect();
            if own.is_empty() {
                continue;
            }
            own.par_sort_unstable();
            let mut held = held.write().unwrap_or_else(PoisonError::into_inner);
            let blocks = held.par_chunks_mut(BLOCK * of.record).enumerate();
            blocks.for_each(|(block, records)| {
                let first = (block * BLOCK) as u32;
                let start = own.partition_point(|(row, _)| *row < first);
                for &(row, at) in
                    own[start..].iter().take_while(|(row, _)| row - first < BLOCK as u32)
                {
                    let record = &mut records[(row - first) as usize * of.record..];
                    for (to, from) in record.chunks_exact_mut(of.width).zip(&moved) {
                        to.copy_from_slice(&from[at * of.width..][..of.width]);
                    }
                }
            });
        }
        Ok(())
    }

    /// The gradients of the rows that the ranks have `looked_up`, summed over the ranks in their
    /// order, for the rows of this rank's shard. Collective.
    pub fn summed(
        &self,
        looked_up: Vec<LookedUp>,
        comm: &dyn Communicator,
    ) -> Result<Vec<LookedUp>> {
        let mut looked_up = looked_up.into_iter().peekable();
        let sum = |table: usize| {
            let of = &self.tables[table];
            let own = looked_up.next_if(|own| own.table == table);
            let (vertices, rows) = own.map_or((Vec::new(), Tensor::new()), |own| {
                let gradient = own.rows.grad();
                match gradient.defined() {
                    true => (own.vertices, gradient.contiguous()),
                    false => (Vec::new(), Tensor::new()),
                }
            });
            if comm.size() == 1 {
                return Ok(LookedUp { table, vertices, rows });
            }
            let own: &[f32] = if vertices.is_empty() { &[] } else { values(&rows)? };
            let (all, rows) = (all_gather_v(comm, &vertices)?, all_gather_v(comm, own)?);
            let shard = comm.rank() % of.shards.len();
            let vertices = all.iter().enumerate().flat_map(|(rank, vertices)| {
                vertices.iter().enumerate().map(move |(at, &v)| (v, rank, at))
            });
            let mut parts: Vec<(u32, usize, usize)> =
                vertices.filter(|(v, ..)| *v as usize % of.shards.len() == shard).collect();
            parts.par_sort_unstable();
            let sums: Vec<_> = parts.chunk_by(|one, other| one.0 == other.0).collect();
            let rows = filled(&[sums.len(), of.width], |out| {
                let out = out.par_chunks_exact_mut(of.width).with_min_len(64);
                out.zip(&sums).for_each(|(sum, parts)| {
                    sum.fill(0.0);
                    for &(_, rank, at) in *parts {
                        let row = &rows[rank][at * of.width..][..of.width];
                        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                    }
                });
                Ok(())
            })?;
            Ok(LookedUp { table, vertices: sums.iter().map(|parts| parts[0].0).collect(), rows })
        };
        (0..self.tables.len()).map(sum).collect()
    }

    /// Whether each rank updates a shard, instead of all rows.
    pub fn is_shared(&self) -> bool {
        self.tables.first().is_some_and(|of| of.shards.len() > 1)
    }

    /// Place and shape, `[vertices, width]`, of each table.
    pub fn shapes(&self) -> impl Iterator<Item = (usize, [usize; 2])> {
        self.tables.iter().map(|of| [of.count, of.width]).enumerate()
    }

    /// Name in a checkpoint of the rows, or of the moment `which` of them.
    pub fn name(&self, table: usize, which: usize) -> String {
        let name = &self.tables[table].name;
        if which == 0 { name.clone() } else { format!("{name}.moment_{which}") }
    }

    /// The rows of each table, or the moment `which` of them, for a checkpoint; in a temporary file
    /// where the table is.
    pub fn state(&self, which: usize) -> Result<Vec<LearntValues>> {
        let of_table = |(table, shape): (usize, [usize; 2])| {
            let (of, held) = (&self.tables[table], self.tables[table].held());
            let mut values = Shard::new(of.folder.as_deref(), of.count * of.width)?;
            values.par_chunks_exact_mut(of.width.max(1)).enumerate().for_each(|(v, row)| {
                let at = v / held.len() * of.record + which * of.width;
                row.copy_from_slice(&held[v % held.len()][at..][..of.width]);
            });
            Ok(LearntValues { name: self.name(table, which), shape, values })
        };
        self.shapes().map(of_table).collect()
    }

    /// Overwrites the rows of a table, or the moment `which` of them, with `values`, which are in
    /// the order of [`Embeddings::state`].
    pub fn restore(&self, table: usize, which: usize, values: &[f32]) {
        let of = &self.tables[table];
        for (shard, held) in of.shards.iter().enumerate() {
            let mut held = held.write().unwrap_or_else(PoisonError::into_inner);
            held.par_chunks_exact_mut(of.record.max(1)).enumerate().for_each(|(row, record)| {
                let from = (row * of.shards.len() + shard) * of.width;
                record[which * of.width..][..of.width].copy_from_slice(&values[from..][..of.width]);
            });
        }
    }
}

impl LearntRows {
    /// All shards, to read.
    fn held(&self) -> Vec<RwLockReadGuard<'_, Shard>> {
        let shards = self.shards.iter();
        shards.map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner)).collect()
    }
}

impl Shard {
    /// `len` zeros, in a file in `folder` if there is one.
    fn new(folder: Option<&Path>, len: usize) -> Result<Self> {
        Ok(match folder {
            Some(folder) if len > 0 => Self::File(ScratchValues::new(folder, len)?),
            _ => Self::Memory(vec![0.0; len]),
        })
    }
}

impl Deref for Shard {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Memory(values) => values,
            Self::File(values) => values,
        }
    }
}

impl DerefMut for Shard {
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Memory(values) => values,
            Self::File(values) => values,
        }
    }
}

/// Folder for files of learnt rows: that of the checkpoint, or the first above it that exists, else
/// the folder for temporary files.
fn folder(config: &Config) -> PathBuf {
    let checkpoint = config.run.checkpoint.as_ref().and_then(|path| std::path::absolute(path).ok());
    let above = checkpoint.iter().flat_map(|path| path.ancestors());
    above.filter(|path| path.is_dir()).map(Path::to_path_buf).next().unwrap_or_else(temp_dir)
}

#[cfg(test)]
mod tests {
    use gsplit_store::{Size, VertexType};

    use super::*;

    #[test]
    fn rows_in_files_are_those_in_memory() {
        let of = |name: &str, count| VertexType { name: name.into(), count, features: None };
        let types = GraphTypes { vertices: vec![of("a", 1000), of("b", 3)], relations: Vec::new() };
        let checkpoint = tempfile::tempdir().unwrap();
        let made = |bytes: u64| {
            let mut config = Config::default();
            (config.model.hidden, config.system.memory) = (5, Some(Size::Bytes(bytes)));
            config.run.checkpoint = Some(checkpoint.path().join("new/run"));
            Embeddings::new(&types, &config, 2, 2).unwrap()
        };
        let [in_memory, in_files] = [1 << 30, 1 << 10].map(made);
        let bytes = 1003 * 3 * 5 * 4;
        assert_eq!([in_memory.bytes_in_files(), in_files.bytes_in_files()], [0, bytes]);
        let vertices = [7, 0, 999, 500];
        let moved = [1.0, 2.0, 3.0].map(|value| Tensor::full([4, 5], value, tch::kind::FLOAT_CPU));
        for of in [&in_memory, &in_files] {
            assert_eq!(
                of.rows(0, 1, &vertices).unwrap(),
                Tensor::zeros([4, 5], tch::kind::FLOAT_CPU)
            );
            of.write(0, &vertices, &moved).unwrap();
            for (which, moved) in moved.iter().enumerate() {
                assert_eq!(of.rows(0, which, &vertices).unwrap(), *moved);
            }
        }
        for which in 0..3 {
            let [one, other] = [&in_memory, &in_files].map(|of| of.state(which).unwrap());
            for (one, other) in one.iter().zip(&other) {
                assert_eq!((&one.name, &one.values[..]), (&other.name, &other.values[..]));
            }
            let [restored, _] = [1 << 30, 1 << 10].map(made);
            one.iter()
                .enumerate()
                .for_each(|(table, of)| restored.restore(table, which, &of.values));
            let again = restored.state(which).unwrap();
            assert!(one.iter().zip(&again).all(|(one, again)| one.values[..] == again.values[..]));
        }
        assert_eq!(std::fs::read_dir(checkpoint.path()).unwrap().count(), 0);
    }
}
