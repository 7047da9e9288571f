//! Arrays of numbers that stay in their files: a `.npy` file, a file without a header, a member of
//! an `.npz` archive, or a pickle.
//!
//! Opening an array reads only its header. The file's length must match the header, so sizes can be
//! trusted afterwards. Files are read at any offset, by any thread. Members of archives are read
//! only from their start, since most are deflated, and their checksum is compared at the end.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use gsplit_store::{NpyHeader, Progress, Unit, open_file};

use crate::read::raw::{Column, describe_column};
use crate::read::text::name_of;
use crate::{Error, Result};
pub use dtype::Dtype;

mod dtype;

/// Approximate number of bytes that a column hands over at a time.
const STEP_BYTES: u64 = 4 << 20;
/// Maximum number of columns of an array that is stored column by column.
const MOST_COLUMNS: u64 = 1 << 16;

/// An array of numbers on disk.
#[derive(Clone, Debug)]
pub struct Numbers {
    path: PathBuf,
    /// The member of the archive, if the array is in one.
    member: Option<String>,
    dtype: Dtype,
    is_bool: bool,
    shape: Vec<u64>,
    column_major: bool,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// In a file, from byte `start` on.
    File { file: Arc<File>, start: u64 },
    /// In an archive or a pickle: a span of a packed member.
    Member { packed: Packed, span: Span },
}

/// Part of a member.
#[derive(Clone, Debug)]
pub struct Span {
    /// First byte of the span, counted in the inflated bytes.
    pub start: u64,
    /// Whether bytes are written as the characters 0 to 255, in UTF-8.
    pub latin1: bool,
}

/// How bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Unpacked.
    Stored,
    /// Deflate.
    Deflated,
}

/// Position of the bytes of an archive's member.
#[derive(Clone, Debug)]
pub struct Packed {
    /// First byte in the archive.
    pub start: u64,
    /// Bytes in the archive.
    pub packed_bytes: u64,
    /// Bytes after inflating.
    pub bytes: u64,
    /// How they are packed.
    pub packing: Packing,
    /// CRC-32 of the inflated bytes, if it is known.
    pub crc: Option<u32>,
}

impl Numbers {
    /// The array in the `.npy` file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = open_file(path).map_err(Error::io(path))?;
        let header = NpyHeader::read(&mut file).map_err(|problem| Error::input(path, problem))?;
        let start = file.stream_position().map_err(Error::io(path))?;
        let held = file.metadata().map_err(Error::io(path))?.len().saturating_sub(start);
        let numbers =
            Self::described(path, None, header, Place::File { file: Arc::new(file), start })?;
        numbers.holds(held)
    }

    /// The numbers of type `dtype` that fill the file at `path`, in rows of `width`.
    pub fn headerless(path: &Path, dtype: Dtype, width: u64) -> Result<Self> {
        let file = open_file(path).map_err(Error::io(path))?;
        let bytes = file.metadata().map_err(Error::io(path))?.len();
        let row = width.max(1) * dtype.bytes() as u64;
        if !bytes.is_multiple_of(row) {
            let problem = format!(
                "{bytes} bytes without a .npy header: expected rows of {width} {}",
                dtype.descr()
            );
            return Err(Error::input(path, problem));
        }
        let shape = if width == 1 { vec![bytes / row] } else { vec![bytes / row, width] };
        let place = Place::File { file: Arc::new(file), start: 0 };
        let path = path.to_path_buf();
        Ok(Self { path, member: None, dtype, is_bool: false, shape, column_major: false, place })
    }

    /// The array in the member `name` of the archive at `path`.
    pub fn in_archive(path: &Path, name: &str, packed: Packed) -> Result<Self> {
        let mut counted = packed.open(path, false)?.take(u64::MAX);
        let problem = |problem: String| Error::input(path, format!("{name}: {problem}"));
        let header = NpyHeader::read(&mut counted).map_err(problem)?;
        let header_bytes = u64::MAX - counted.limit();
        let held = packed.bytes.saturating_sub(header_bytes);
        let place = Place::Member { packed, span: Span { start: header_bytes, latin1: false } };
        Self::described(path, Some(name.to_string()), header, place)?.holds(held)
    }

    /// The array `name` in a span of packed bytes in the file at `path`. The caller has checked
    /// that the span holds the given `shape`; `column_major` says whether the first index varies
    /// fastest.
    pub fn within(
        path: &Path,
        name: &str,
        packed: Packed,
        span: Span,
        dtype: Dtype,
        shape: Vec<u64>,
        column_major: bool,
    ) -> Self {
        let (path, member, place) =
            (path.to_path_buf(), Some(name.to_string()), Place::Member { packed, span });
        Self { path, member, dtype, is_bool: false, shape, column_major, place }
    }

    fn described(
        path: &Path,
        member: Option<String>,
        header: NpyHeader,
        place: Place,
    ) -> Result<Self> {
        let named = |problem: String| match &member {
            Some(name) => Error::input(path, format!("{name}: {problem}")),
            None => Error::input(path, problem),
        };
        let dtype = Dtype::from_descr(&header.descr).map_err(named)?;
        let (shape, is_bool) = (header.shape, header.descr == "|b1");
        let column_major =
            header.fortran_order && shape.iter().filter(|&&length| length > 1).count() > 1;
        Ok(Self { path: path.to_path_buf(), member, dtype, is_bool, shape, column_major, place })
    }

    /// Fails unless the number of bytes after the header, `held`, matches the header.
    fn holds(self, held: u64) -> Result<Self> {
        let elements =
            self.shape.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
        if elements.and_then(|elements| elements.checked_mul(self.dtype.bytes() as u64))
            == Some(held)
        {
            return Ok(self);
        }
        let problem = format!(
            "its header promises shape {:?} of {}, {held} bytes follow: truncated or damaged, \
             fetch or write it again",
            self.shape,
            self.dtype.descr()
        );
        Err(self.error(problem))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Type of the numbers.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Whether the numbers are bools.
    pub fn is_bool(&self) -> bool {
        self.is_bool
    }

    /// Length of each dimension.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Whether the first index varies fastest.
    pub fn column_major(&self) -> bool {
        self.column_major
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Whether any part can be read directly, without what precedes it.
    pub fn is_file(&self) -> bool {
        matches!(self.place, Place::File { .. })
    }

    /// An error about this array.
    pub fn error(&self, problem: impl std::fmt::Display) -> Error {
        match &self.member {
            Some(name) => Error::input(&self.path, format!("{name}: {problem}")),
            None => Error::input(&self.path, problem.to_string()),
        }
    }

    /// Number of rows and numbers per row, for an array of one or two dimensions stored row by row.
    pub fn rows(&self) -> Result<(u64, usize)> {
        let (rows, width) = match self.shape[..] {
            [rows] => (rows, 1),
            [rows, width] if self.column_major => {
                let problem =
                    format!("shape ({rows}, {width}) stored column by column, expected row by row");
                return Err(
                    self.error(format!("{problem}: save it again through np.ascontiguousarray"))
                );
            }
            [rows, width] => (rows, width),
            _ => {
                return Err(
                    self.error(format!("shape {:?}: expected one or two dimensions", self.shape))
                );
            }
        };
        match i32::try_from(width) {
            Ok(width @ 1..) => Ok((rows, width as usize)),
            _ => Err(self.error(format!("rows of {width} numbers: expected 1 to {}", i32::MAX))),
        }
    }

    /// Returns a reader of the numbers, in sequence, from number `skip` on.
    pub fn reader(&self, skip: u64) -> Result<Box<dyn Read + Send>> {
        let skip = skip * self.dtype.bytes() as u64;
        match &self.place {
            Place::File { start, .. } => {
                let mut file = open_file(&self.path).map_err(Error::io(&self.path))?;
                file.seek(SeekFrom::Start(start + skip)).map_err(Error::io(&self.path))?;
                Ok(Box::new(file))
            }
            Place::Member { packed, span } => {
                let mut reader = packed.open(&self.path, true)?;
                self.skip(&mut reader, span.start)?;
                if span.latin1 {
                    reader = Box::new(Latin1 { text: BufReader::new(reader) });
                }
                self.skip(&mut reader, skip)?;
                Ok(reader)
            }
        }
    }

    /// Byte of the file at which the numbers are as they are, if they are so.
    fn direct(&self) -> Option<u64> {
        match &self.place {
            Place::File { start, .. } => Some(*start),
            Place::Member { packed, span } if packed.packing == Packing::Stored && !span.latin1 => {
                Some(packed.start + span.start)
            }
            Place::Member { .. } => None,
        }
    }

    /// Whether any number can be read without those before it.
    fn is_direct(&self) -> bool {
        self.direct().is_some()
    }

    /// Returns a reader from number `skip` on, without a checksum. Fails unless the array
    /// [is direct](Self::is_direct).
    fn direct_reader(&self, skip: u64) -> Result<std::fs::File> {
        let start = self.direct().ok_or_else(|| self.error("is packed: save it unpacked"))?;
        let mut file = open_file(&self.path).map_err(Error::io(&self.path))?;
        let at = start + skip * self.dtype.bytes() as u64;
        file.seek(SeekFrom::Start(at)).map_err(Error::io(&self.path))?;
        Ok(file)
    }

    fn skip(&self, reader: &mut dyn Read, bytes: u64) -> Result<()> {
        let skipped = std::io::copy(&mut reader.take(bytes), &mut std::io::sink());
        match skipped.map_err(|error| self.cannot_read(error))? {
            skipped if skipped == bytes => Ok(()),
            _ => Err(self.error("truncated or damaged: fetch or write it again")),
        }
    }

    /// Appends the next `count` numbers of `reader`, returned by [`reader`](Self::reader), to
    /// `bytes`.
    pub fn read_next(&self, reader: &mut dyn Read, count: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let wanted = count * self.dtype.bytes() as u64;
        match reader.take(wanted).read_to_end(bytes) {
            Ok(read) if read as u64 == wanted => Ok(()),
            Ok(_) => {
                Err(self.error("it became shorter while it was read: truncated or damaged, fetch or write it again"))
            }
            Err(error) => Err(self.cannot_read(error)),
        }
    }

    /// Calls `take` with all numbers in sequence, together with the position of the first number of
    /// each step.
    pub fn for_steps(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut reader = self.reader(0)?;
        let (mut first, mut bytes) = (0, Vec::new());
        while first < self.len() {
            let count = (self.len() - first).min(1 << 16);
            bytes.clear();
            self.read_next(&mut *reader, count, &mut bytes)?;
            take(first, &bytes)?;
            first += count;
        }
        Ok(())
    }

    /// Appends `count` numbers from number `first` on to `bytes`. Fails unless the array [is in a
    /// file](Self::is_file).
    pub fn read_at(&self, first: u64, count: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let Place::File { file, start } = &self.place else {
            return Err(self.error("is in an archive: expected a separate file"));
        };
        let size = self.dtype.bytes();
        let before = bytes.len();
        bytes.resize(before + count * size, 0);
        let at = start + first * size as u64;
        file.read_exact_at(&mut bytes[before..], at).map_err(|error| self.cannot_read(error))
    }

    fn cannot_read(&self, error: std::io::Error) -> Error {
        match error.raw_os_error() {
            Some(_) => Error::io(&self.path)(error),
            None => self.error(format!("truncated or damaged ({error}): fetch or write it again")),
        }
    }
}

impl Packed {
    /// Whether `packed_bytes` can inflate to `bytes`: sizes must be reliable. Deflate packs at most
    /// 1032 bytes into one.
    pub fn is_plausible(&self) -> bool {
        match self.packing {
            Packing::Stored => self.bytes <= self.packed_bytes,
            Packing::Deflated => self.bytes <= self.packed_bytes.saturating_mul(1032),
        }
    }

    /// Opens the inflated bytes, from the archive at `path`. If `checked`, also compares the
    /// checksum at their end.
    pub fn open(&self, path: &Path, checked: bool) -> Result<Box<dyn Read + Send>> {
        let mut file = open_file(path).map_err(Error::io(path))?;
        file.seek(SeekFrom::Start(self.start)).map_err(Error::io(path))?;
        let packed = BufReader::with_capacity(1 << 18, file.take(self.packed_bytes));
        let inflated: Box<dyn Read + Send> = match self.packing {
            Packing::Stored => Box::new(packed),
            Packing::Deflated => Box::new(DeflateDecoder::new(packed)),
        };
        let expected = self.crc.filter(|_| checked);
        Ok(Box::new(Checked { inflated, crc: Crc::new(), left: self.bytes, expected }))
    }
}

/// A member's bytes; the checksum is compared when the last one is read.
struct Checked {
    inflated: Box<dyn Read + Send>,
    crc: Crc,
    left: u64,
    expected: Option<u32>,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        use std::io::ErrorKind::{InvalidData, UnexpectedEof};
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.inflated.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(std::io::Error::new(UnexpectedEof, "it ends early"));
        }
        self.left -= read as u64;
        if let Some(expected) = self.expected {
            self.crc.update(&buffer[..read]);
            if self.left == 0 && self.crc.sum() != expected {
                return Err(std::io::Error::new(InvalidData, "its checksum does not match"));
            }
        }
        Ok(read)
    }
}

/// Decodes UTF-8 text to bytes: each character is one byte (Latin-1).
struct Latin1<R> {
    text: BufReader<R>,
}

impl<R: Read> Read for Latin1<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let not_latin1 = || {
            std::io::Error::new(std::io::ErrorKind::InvalidData, "characters that are not bytes")
        };
        let mut written = 0;
        while written < buffer.len() {
            let text = self.text.fill_buf()?;
            let (byte, used) = match *text {
                [] => break,
                [byte @ 0..0x80, ..] => (byte, 1),
                [lead @ (0xc2 | 0xc3), tail @ 0x80..0xc0, ..] => (lead << 6 | tail & 0x3f, 2),
                // The second byte of the character is in the next buffer.
                [lead @ (0xc2 | 0xc3)] => {
                    self.text.consume(1);
                    let mut tail = [0];
                    self.text.read_exact(&mut tail)?;
                    let tail = tail
                        .first()
                        .copied()
                        .filter(|tail| (0x80..0xc0).contains(tail))
                        .ok_or_else(not_latin1)?;
                    (lead << 6 | tail & 0x3f, 0)
                }
                _ => return Err(not_latin1()),
            };
            self.text.consume(used);
            buffer[written] = byte;
            written += 1;
        }
        Ok(written)
    }
}

/// Numbers of every vertex: an array of shape (n,) or (n, d).
pub struct NumbersColumn {
    numbers: Numbers,
    name: String,
    rows: u64,
    width: usize,
}

impl NumbersColumn {
    /// Makes `numbers` the column called `name`; fails for other shapes.
    pub fn new(numbers: Numbers, name: &str) -> Result<Self> {
        let (rows, width) = match numbers.shape[..] {
            [rows, width @ 1..=MOST_COLUMNS] if numbers.column_major && numbers.is_direct() => {
                (rows, width as usize)
            }
            _ => numbers.rows()?,
        };
        Ok(Self { numbers, name: name.to_string(), rows, width })
    }
}

impl NumbersColumn {
    /// Hands over the rows of an array that is stored column by column.
    fn transpose(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let size = self.numbers.dtype.bytes();
        let row_bytes = self.width * size;
        if !self.numbers.is_file() {
            // The checksum of a member is that of all of it.
            self.numbers.for_steps(|_, _| Ok(()))?;
        }
        let (mut column_bytes, mut out) = (Vec::new(), Vec::new());
        for start in (0..self.rows).step_by((STEP_BYTES as usize / row_bytes).max(1)) {
            let rows = (self.rows - start).min((STEP_BYTES / row_bytes as u64).max(1));
            out.clear();
            out.resize(rows as usize * row_bytes, 0);
            for column in 0..self.width {
                let mut reader = self.numbers.direct_reader(column as u64 * self.rows + start)?;
                column_bytes.clear();
                self.numbers.read_next(&mut reader, rows, &mut column_bytes)?;
                let to = out.chunks_exact_mut(row_bytes);
                for (row, number) in to.zip(column_bytes.chunks_exact(size)) {
                    row[column * size..][..size].copy_from_slice(number);
                }
            }
            take(&out)?;
        }
        Ok(())
    }
}

impl Column for NumbersColumn {
    describe_column!(self:
        self.numbers.path(),
        &self.name,
        self.numbers.dtype.descr(),
        self.width,
        Some(self.rows)
    );

    fn read(
        &self,
        progress: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.numbers.column_major {
            return self.transpose(take);
        }
        let row_bytes = (self.width * self.numbers.dtype.bytes()) as u64;
        let name = match &self.numbers.member {
            Some(member) => format!("reading {}/{member}", name_of(self.path())),
            None => format!("reading {}", name_of(self.path())),
        };
        let stage = progress.stage(&name, Some(self.rows * row_bytes), Unit::Bytes);
        let rows_each = (STEP_BYTES / row_bytes).max(1);
        let mut reader = self.numbers.reader(0)?;
        let mut bytes = Vec::new();
        let mut left = self.rows;
        while left > 0 {
            let rows = left.min(rows_each);
            bytes.clear();
            self.numbers.read_next(&mut *reader, rows * self.width as u64, &mut bytes)?;
            take(&bytes)?;
            stage.advance(bytes.len() as u64);
            left -= rows;
        }
        Ok(())
    }
}
