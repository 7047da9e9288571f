//! The rows of a finished layer, for the layer above: in memory where they fit, else in a file that is mapped.
//!
//! The file has no name any more once it is written: it goes with the map, whatever becomes of the process.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use gsplit_store::{Error as StoreError, MappedFile};

use crate::{Error, Result};

/// Bytes that are written to the file at once.
const BUFFER: usize = 1 << 20;

/// f32 rows of all vertices, one after the other.
pub enum Hidden {
    /// In memory.
    Memory(Vec<f32>),
    /// In a file.
    Mapped(MappedFile),
}

impl Hidden {
    /// The values, row after row.
    pub fn values(&self) -> &[f32] {
        match self {
            Self::Memory(values) => values,
            // Maps begin with a page, so they are aligned.
            Self::Mapped(file) => bytemuck::try_cast_slice(file).unwrap_or_default(),
        }
    }
}

/// [`Hidden`] rows under way.
pub enum HiddenWriter {
    /// In memory.
    Memory(Vec<f32>),
    /// In the file at this path.
    File(PathBuf, BufWriter<File>),
}

impl HiddenWriter {
    /// Begins `len` values: in a new file at `spill`, or in memory.
    ///
    /// # Errors
    /// [`Error::Store`] where the file cannot be made, [`Error::Option`] where the machine would never have the memory.
    pub fn begin(spill: Option<&Path>, len: usize) -> Result<Self> {
        if let Some(path) = spill {
            let file = File::create(path).map_err(StoreError::io(path))?;
            return Ok(Self::File(path.to_path_buf(), BufWriter::with_capacity(BUFFER, file)));
        }
        let mut values = Vec::new();
        let gib = len as f64 * size_of::<f32>() as f64 / f64::from(1 << 30);
        let refused = |_| {
            let remedy = "pass --eval-every 0, and run `gsplit infer` afterwards";
            Error::Option(format!("--eval-every: evaluation takes {gib:.0} GiB, more than there is: {remedy}"))
        };
        values.try_reserve_exact(len).map_err(refused)?;
        Ok(Self::Memory(values))
    }

    /// Appends rows.
    pub fn push(&mut self, rows: &[f32]) -> Result<()> {
        match self {
            Self::Memory(values) => values.extend_from_slice(rows),
            Self::File(path, file) => {
                file.write_all(bytemuck::cast_slice(rows)).map_err(StoreError::io(path))?;
            }
        }
        Ok(())
    }

    /// All rows, to be read.
    pub fn finish(self) -> Result<Hidden> {
        match self {
            Self::Memory(values) => Ok(Hidden::Memory(values)),
            Self::File(path, mut file) => {
                file.flush().map_err(StoreError::io(&path))?;
                let map = MappedFile::open(&path)?;
                std::fs::remove_file(&path).map_err(StoreError::io(&path))?;
                Ok(Hidden::Mapped(map))
            }
        }
    }
}
