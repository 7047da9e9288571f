//! Members of `.npz` archives.
//!
//! `np.savez` stores members, `np.savez_compressed` deflates them; even stored data is not aligned.
//! Both become [`Numbers`], which are streamed. Sizes claimed by a header allocate no memory.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use gsplit_store::{NpyHeader, open_file};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use crate::read::arrays::numbers::{Numbers, Packed, Packing};
use crate::{Error, Result};

/// An archive opened for reading.
pub struct Npz {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
}

impl Npz {
    /// Opens the archive at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let file = open_file(path).map_err(Error::io(path))?;
        let archive = ZipArchive::new(BufReader::with_capacity(1 << 18, file))
            .map_err(|error| damaged(path, error))?;
        Ok(Self { path: path.to_path_buf(), archive })
    }

    /// The array called `name`, if there is one. Its numbers are read later.
    pub fn numbers(&mut self, name: &str) -> Result<Option<Numbers>> {
        if !self.contains(name) {
            return Ok(None);
        }
        let packed = self.packed(&format!("{name}.npy"))?;
        Numbers::in_archive(&self.path, name, packed).map(Some)
    }

    /// Position of the member called `file` in the archive.
    pub fn packed(&mut self, file: &str) -> Result<Packed> {
        let member = self.archive.by_name(file).map_err(|error| damaged(&self.path, error))?;
        let name = file.strip_suffix(".npy").unwrap_or(file);
        let problem = |problem: &str| of_member(&self.path, name, problem.into());
        let packing = match member.compression() {
            CompressionMethod::Stored => Packing::Stored,
            CompressionMethod::Deflated => Packing::Deflated,
            _ => {
                return Err(problem(
                    "compressed by other means than deflate: save it again with np.savez",
                ));
            }
        };
        let packed = Packed {
            start: member
                .data_start()
                .ok_or_else(|| problem("expected its data in the archive"))?,
            packed_bytes: member.compressed_size(),
            bytes: member.size(),
            packing,
            crc: Some(member.crc32()),
        };
        drop(member);
        let held = std::fs::metadata(&self.path).map_err(Error::io(&self.path))?.len();
        if !packed.is_plausible()
            || packed.start.checked_add(packed.packed_bytes).is_none_or(|end| end > held)
        {
            let claim =
                format!("{} bytes from {} in the archive", packed.bytes, packed.packed_bytes);
            return Err(problem(&format!(
                "{claim}: truncated or damaged, fetch or write it again"
            )));
        }
        Ok(packed)
    }

    /// Whether there is a member called `file`.
    pub fn has(&self, file: &str) -> bool {
        self.archive.index_for_name(file).is_some()
    }

    /// Names of all arrays.
    pub fn arrays(&self) -> Vec<String> {
        let names = self.archive.file_names().flatten();
        names.filter_map(|name| name.strip_suffix(".npy").map(str::to_string)).collect()
    }

    /// The first member whose name ends with `end`.
    pub fn ending(&self, end: &str) -> Option<String> {
        self.archive
            .file_names()
            .flatten()
            .find(|name| name.ends_with(end))
            .map(|name| name.into_owned())
    }

    /// The first bytes of the member called `file` as text, if there is one. An array, which holds
    /// one string, e.g. the format that `scipy.sparse.save_npz` writes, has a header before it.
    pub fn text(&mut self, file: &str) -> Result<Option<String>> {
        if !self.has(file) {
            return Ok(None);
        }
        let mut member = self.archive.by_name(file).map_err(|error| damaged(&self.path, error))?;
        if file.ends_with(".npy") {
            NpyHeader::read(&mut member).map_err(|problem| of_member(&self.path, file, problem))?;
        }
        let mut text = Vec::new();
        (&mut member)
            .take(256)
            .read_to_end(&mut text)
            .map_err(|error| damaged(&self.path, error.into()))?;
        text.retain(|&byte| byte != 0);
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Whether there is an array called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.has(&format!("{name}.npy"))
    }
}

fn of_member(path: &Path, name: &str, problem: String) -> Error {
    Error::input(path, format!("{name}: {problem}"))
}

fn damaged(path: &Path, error: ZipError) -> Error {
    match error {
        ZipError::Io(error) if error.raw_os_error().is_some() => Error::io(path)(error),
        ZipError::Io(error) => {
            Error::input(path, format!("truncated or damaged archive ({error}): download it again"))
        }
        other => Error::input(
            path,
            format!("expected an .npz archive: {other}; truncated or damaged? download it again"),
        ),
    }
}
