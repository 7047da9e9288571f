//! Feature rows of one rank.
//!
//! Returns: the rows of given vertices at the rank's place, in the type of its rows. Input: a table
//! of rows on the host. Idea: on the host rows are gathered in place. A GPU reads a pinned table
//! over the bus, and finds rows of the [`Caches`] in its own memory or in that of other GPUs. For a
//! table in a file, mapped or read, the host gathers the rows that no GPU keeps, rounds them, and
//! copies them: on a separate stream, if mini-batches are made ahead. Cost: the bytes of the rows.
//!
//! ```text
//! load.rs        the rows of a mini-batch
//! streams.rs     from the stream that makes a mini-batch to the one that computes it
//! gpu_rows.rs    rows that a GPU gathers
//! tiered.rs      rows that a GPU keeps, and rows that the host gathers
//! gpu_table.rs   the table that GPUs read, and the rows that they keep
//! prepare.rs     both for all ranks of a process
//! ```
//!
//! [`Caches`]: crate::residence::cache::Caches

mod gpu_rows;
mod gpu_table;
mod load;
mod prepare;
mod streams;
mod tiered;

use std::sync::{Mutex, OnceLock, PoisonError};

use gsplit_kernels::{CacheHits, Gpu};
use gsplit_store::{FeatureTable, RowsRead};
use tch::{Kind, Tensor};

use crate::Result;
use crate::autograd::values;
use crate::model::Input;
use crate::operator::{Place, filled_with_room, gather_features, with_row};
use crate::residence::cache::SimulatedCache;

use gpu_rows::AnyRows;
pub use gpu_rows::Gathered;
pub use gpu_table::{GpuTable, open_gpu_table};
pub use load::{InputRows, Loaded, load};
pub use prepare::{HostStorage, prepare_gpu_table, sources};
pub use streams::{hand_over, prepare_backward};
use tiered::AnyTiered;

/// The feature rows of a graph, for one rank.
pub struct FeatureSource<'a> {
    table: &'a FeatureTable,
    place: Place,
    rows: Option<Box<dyn AnyRows + 'a>>,
    /// Rows that the GPU can read, if the host gathers the others.
    tiered: Option<Box<dyn AnyTiered + 'a>>,
    simulated: Option<SimulatedCache>,
    /// The stream that copies rows which the host gathers ahead of time.
    side: OnceLock<Gpu>,
    /// Rows read from the table's file, and rows found in memory instead, since the last query.
    reads: Mutex<RowsRead>,
}

impl<'a> FeatureSource<'a> {
    /// Creates a source of the rows of `table`, for a rank at `place`, gathered by the host.
    pub fn new(table: &'a FeatureTable, place: &Place) -> Self {
        let (side, reads) = Default::default();
        Self { table, place: place.clone(), rows: None, tiered: None, simulated: None, side, reads }
    }

    /// Creates a source of the rows of `table`, which GPUs read as `gpu_table`, for `rank` at
    /// `place`, a GPU.
    pub fn with_gpu_table(
        table: &'a FeatureTable,
        place: &Place,
        gpu_table: &'a GpuTable<'_>,
        rank: usize,
    ) -> Result<Self> {
        let Some(gpu) = place.gpu() else { return Ok(Self::new(table, place)) };
        let (rows, tiered) =
            (gpu_table.rows(rank, gpu, place.row_kind())?, gpu_table.tiered(rank, gpu)?);
        Ok(Self { rows, tiered, ..Self::new(table, place) })
    }

    /// This source, with loads counted by `simulated` if the host gathers.
    pub fn with_count(self, simulated: Option<SimulatedCache>) -> Self {
        Self { simulated, ..self }
    }

    /// Place of the rank.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Table that holds the rows.
    pub fn table(&self) -> &'a FeatureTable {
        self.table
    }

    /// Whether operators can read the rows where they are stored.
    pub fn is_read_in_place(&self) -> bool {
        matches!(self.place, Place::Host(_)) && self.table.read_by().is_none()
    }

    /// Rows read from the table's file, and rows found in memory instead, since the last call.
    pub fn take_reads(&self) -> RowsRead {
        std::mem::take(&mut *self.reads.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The GPU, and its access to the rows, if it gathers rows itself.
    pub fn gathering(&self) -> Option<(&Gpu, &(dyn AnyRows + 'a))> {
        self.place.gpu().zip(self.rows.as_deref())
    }

    /// Number of the rows of `vertices` that would be in caches, if the host counts them.
    pub fn count(&self, vertices: &[u32]) -> CacheHits {
        self.simulated
            .as_ref()
            .map_or_else(CacheHits::default, |simulated| simulated.hits(vertices))
    }

    /// Rows of `vertices`, transformed by `input`, `[vertices, width]`, in the type of the place's
    /// rows. On the host they have room for `room` rows behind them
    /// ([`Finish::room`](crate::operator::Finish)).
    pub fn rows(&self, vertices: &[u32], input: &Input, room: usize) -> Result<Tensor> {
        if let Some((gpu, rows)) = self.gathering() {
            return rows.tensor(gpu, self.place.device(), gpu.upload(vertices)?.slice(), input);
        }
        match (&self.tiered, self.place.gpu()) {
            (Some(tiered), Some(gpu)) => {
                let rows = self.gather_tiered(tiered.as_ref(), gpu, vertices, input)?;
                rows.tensor(self.place.device(), self.table.dim())
            }
            _ => self.place.bring(&self.on_host(vertices, input, room)?),
        }
    }

    /// Feature rows of the vertices among `vertices` that have any, by type, for [`Encoders`]:
    /// transformed by `input`, `[vertices of the type, its width]` in the order of `vertices`, on
    /// the host.
    ///
    /// [`Encoders`]: crate::model::Encoders
    pub fn rows_by_type(&self, vertices: &[u32], input: &Input) -> Result<Vec<Tensor>> {
        let of_type = |table: &FeatureTable| {
            let (range, vertices) = (table.vertices(), vertices.iter().copied());
            let own: Vec<u32> = vertices.filter(|v| range.contains(v)).collect();
            filled_with_room([own.len(), table.dim()], 0, |rows| {
                self.add_reads(input.read(table, &own, rows)?);
                Ok(())
            })
        };
        self.table.by_type().iter().map(of_type).collect()
    }

    /// Like [`FeatureSource::rows`], gathered by the host and copied on a separate stream, which is
    /// also returned.
    pub fn rows_brought(
        &self,
        gpu: &Gpu,
        vertices: &[u32],
        input: &Input,
    ) -> Result<(Box<dyn Gathered>, Gpu)> {
        let side = match self.side.get() {
            Some(side) => side,
            None => {
                let made = gpu.side_stream()?;
                self.side.get_or_init(|| made)
            }
        };
        if let Some(tiered) = &self.tiered {
            return Ok((self.gather_tiered(tiered.as_ref(), side, vertices, input)?, side.clone()));
        }
        let rows = self.on_host(vertices, input, 0)?;
        let brought: Box<dyn Gathered> =
            with_row!(rows.kind(), |O| Box::new(side.upload(values::<O>(&rows)?)?));
        Ok((brought, side.clone()))
    }

    fn on_host(&self, vertices: &[u32], input: &Input, room: usize) -> Result<Tensor> {
        self.read(vertices, self.place.row_kind(), room, |rows| {
            input.read(self.table, vertices, rows)
        })
    }

    /// Rows of `vertices` in memory of the stream of `gpu`. The host gathers the rows that no GPU
    /// keeps.
    fn gather_tiered(
        &self,
        tiered: &dyn AnyTiered,
        gpu: &Gpu,
        vertices: &[u32],
        input: &Input,
    ) -> Result<Box<dyn Gathered>> {
        let (rows, kept) =
            tiered.gather(gpu, vertices, input, self.place.row_kind(), &|vertices, kind| {
                self.read(vertices, kind, 0, |rows| gather_features(self.table, vertices, rows))
            })?;
        self.add_reads(RowsRead { kept, ..RowsRead::default() });
        Ok(rows)
    }

    fn add_reads(&self, reads: RowsRead) {
        *self.reads.lock().unwrap_or_else(PoisonError::into_inner) += reads;
    }

    /// The rows that `read` writes for `vertices`, converted to `kind`, with room for `room` rows
    /// behind them.
    fn read(
        &self,
        vertices: &[u32],
        kind: Kind,
        room: usize,
        read: impl FnOnce(&mut [f32]) -> Result<RowsRead>,
    ) -> Result<Tensor> {
        let rows = filled_with_room([vertices.len(), self.table.dim()], room, |rows| {
            self.add_reads(read(rows)?);
            Ok(())
        })?;
        Ok(rows.f_totype(kind)?)
    }
}
