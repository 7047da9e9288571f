//! Files that are packed as they are.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use gsplit_store::{FileRecord, HashingWriter, open_file};

use crate::{Error, Result};

/// A file under construction, digested on the way.
pub struct Output<'a> {
    path: &'a Path,
    out: HashingWriter<BufWriter<File>>,
}

impl<'a> Output<'a> {
    /// Creates the file at `path`, folders included.
    pub fn create(path: &'a Path) -> Result<Self> {
        Ok(Self { path, out: create(path)? })
    }

    /// Appends `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(Error::io(self.path))
    }

    /// Flushes and fsyncs.
    pub fn finish(self) -> Result<FileRecord> {
        finish(self.path, self.out)
    }
}

/// A digesting writer of a new file at `path`, folders included.
pub fn create(path: &Path) -> Result<HashingWriter<BufWriter<File>>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    }
    let file = File::create(path).map_err(Error::io(path))?;
    Ok(HashingWriter::new(BufWriter::with_capacity(1 << 20, file)))
}

/// Flushes and fsyncs what was written to `path`.
pub fn finish(path: &Path, out: HashingWriter<BufWriter<File>>) -> Result<FileRecord> {
    let (mut buffer, bytes, checksum) = out.finish();
    buffer.flush().and_then(|()| buffer.get_ref().sync_all()).map_err(Error::io(path))?;
    Ok(FileRecord { bytes, checksum })
}

/// Copies the file `from` to a new file `to`.
pub fn copy(from: &Path, to: &Path) -> Result<FileRecord> {
    let mut source = open_file(from).map_err(Error::io(from))?;
    let (mut out, mut buffer) = (Output::create(to)?, vec![0; 1 << 20]);
    loop {
        match source.read(&mut buffer).map_err(Error::io(from))? {
            0 => return out.finish(),
            read => out.write(&buffer[..read])?,
        }
    }
}
