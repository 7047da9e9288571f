//! The variables of a MATLAB file of level 5, as `save` (but `save -v7.3`) and `scipy.io.savemat` write it.
//!
//! ```text
//! header      116 characters of text, 8 bytes, 0x0100 as u16, "IM" where numbers are little-endian
//! element     type u32, length u32, data up to a multiple of 8 bytes
//!             or, of up to 4 bytes: type u16, length u16, data up to 4 bytes
//! type 15     a zlib stream of one element
//! type 14     a matrix: the elements flags (class u8, flags u8, ...), dimensions i32, name i8, and by its class
//!   6 to 15     numbers, column by column, of any type that can hold them all
//!   5           sparse: the row of each entry i32, the number of entries before each column i32, the values
//!   2           a struct: the length of names i32, names, and for each a matrix without a name
//! types 1 to 7, 9, 12, 13      i8, u8, i16, u16, i32, u32, f32, f64, i64, u64
//! ```
//!
//! The fields of a struct are variables too, called `struct.field`. What else there is, as text and cells, is known by its name alone.
//! Headers are read and bytes of numbers passed over: they are streamed later, as [`Numbers`]. Each length is checked against the
//! element that it is in, and the shape against the length, so that a damaged file costs no memory.
//!
//! Why not a crate: matfile knows no sparse matrices and no structs, and matrw holds the file and all of its numbers in memory.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use gsplit_store::open_file;

use crate::read::arrays::numbers::{Dtype, Numbers, Packed, Packing, Span};
use crate::{Error, Result};

/// Bytes of the header.
const HEADER: usize = 128;
/// Bytes of dimensions, names and flags at most.
const HELD: u64 = 1 << 16;
/// Most variables.
const MOST: usize = 1 << 12;
/// Most matrices in each other.
const DEPTH: usize = 8;
/// The type of a compressed element.
const COMPRESSED: u32 = 15;
/// The type of a matrix.
const MATRIX: u32 = 14;

/// A variable.
pub struct Variable {
    /// Its name; `struct.field` of a field.
    pub name: String,
    /// Rows and columns; more in an array of more dimensions.
    pub shape: Vec<u64>,
    /// Its contents.
    pub content: Content,
}

/// Contents of a variable.
pub enum Content {
    /// Numbers, the first index runs fastest.
    Dense(Numbers),
    /// A sparse matrix, column by column: the row of each entry, the entries before each column and in all, the values.
    Sparse(Box<[Numbers; 3]>),
    /// Something else.
    Other(&'static str),
}

/// The variables of the file at `path`, in its order.
pub fn variables(path: &Path) -> Result<Vec<Variable>> {
    let mut file = open_file(path).map_err(Error::io(path))?;
    let held = file.metadata().map_err(Error::io(path))?.len();
    let mut header = Vec::new();
    (&mut file).take(HEADER as u64).read_to_end(&mut header).map_err(Error::io(path))?;
    check_header(&header).map_err(|problem| Error::input(path, problem))?;
    let ended = || Error::input(path, "it ends early: truncated or damaged, fetch or write it again");
    let (mut all, mut at) = (Vec::new(), HEADER as u64);
    while at < held {
        let mut tag = [0; 8];
        file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut tag)).map_err(|_| ended())?;
        let (kind, bytes) = pair(tag);
        let end = at + 8 + bytes;
        if end > held {
            return Err(ended());
        }
        let element =
            Packed { start: at, packed_bytes: 8 + bytes, bytes: 8 + bytes, packing: Packing::Stored, crc: None };
        let element = match kind {
            MATRIX => Some(element),
            COMPRESSED => {
                Some(inflated(path, Packed { start: at + 8, packed_bytes: bytes, packing: Packing::Zlib, ..element })?)
            }
            _ => None,
        };
        if let Some(packed) = element {
            MatrixReader::new(path, packed)?.whole(&mut all)?;
        }
        at = end;
    }
    Ok(all)
}

/// Whether a file that starts with `head` says that it is one of MATLAB.
pub fn is_matlab(head: &[u8]) -> bool {
    head.starts_with(b"MATLAB ") && head.len() >= HEADER && matches!(head[126..128], [b'I', b'M'] | [b'M', b'I'])
}

fn check_header(header: &[u8]) -> Result<(), String> {
    const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
    match header {
        _ if header.starts_with(b"MATLAB 7.3") || header.starts_with(HDF5) => {
            Err("a file of save -v7.3, which is HDF5: write it again with save -v7, or scipy.io.savemat".into())
        }
        [.., _, _, b'M', b'I'] if header.len() == HEADER => {
            Err("big-endian: write it again with save -v7 on a little-endian machine, or scipy.io.savemat".into())
        }
        [.., 0, 1, b'I', b'M'] if header.len() == HEADER => Ok(()),
        _ => {
            Err("expected a MATLAB file of level 5: truncated or damaged, or of save -v4: write it again with save -v7"
                .into())
        }
    }
}

/// Type and length.
fn pair(tag: [u8; 8]) -> (u32, u64) {
    let tag = u64::from_le_bytes(tag);
    (tag as u32, tag >> 32)
}

/// A compressed element, whose length is that of the matrix in it.
fn inflated(path: &Path, packed: Packed) -> Result<Packed> {
    let damaged = |problem: &str| Error::input(path, format!("byte {}: {problem}: truncated or damaged", packed.start));
    let mut tag = [0; 8];
    let head = Packed { bytes: u64::MAX, ..packed.clone() };
    head.open(path, false)?.read_exact(&mut tag).map_err(|error| damaged(&error.to_string()))?;
    let (kind, bytes) = pair(tag);
    let whole = Packed { bytes: 8 + bytes, ..packed.clone() };
    match kind == MATRIX && whole.is_plausible() {
        true => Ok(whole),
        false => Err(damaged(&format!("{bytes} bytes of type {kind} in {} compressed ones", packed.packed_bytes))),
    }
}

/// A part of a matrix.
struct Element {
    kind: u32,
    /// First byte of its data in the matrix at the top, and their number.
    start: u64,
    bytes: u64,
    /// The data if they were wanted; else the last bytes of them.
    data: Vec<u8>,
}

impl Element {
    fn integers(&self) -> Vec<u64> {
        self.data.as_chunks::<4>().0.iter().map(|&number| u32::from_le_bytes(number).into()).collect()
    }
}

/// A reading of one matrix of the top from its start to its end.
struct MatrixReader<'a> {
    path: &'a Path,
    packed: Packed,
    reader: Box<dyn Read + Send>,
    at: u64,
}

impl<'a> MatrixReader<'a> {
    fn new(path: &'a Path, packed: Packed) -> Result<Self> {
        let reader = packed.open(path, true)?;
        Ok(Self { path, packed, reader, at: 0 })
    }

    fn problem(&self, problem: impl std::fmt::Display) -> Error {
        Error::input(self.path, format!("the variable at byte {}: {problem}", self.packed.start))
    }

    fn damaged(&self, problem: impl std::fmt::Display) -> Error {
        self.problem(format!("{problem}: truncated or damaged, fetch or write it again"))
    }

    /// Adds the variable, and those that are fields of it, to `all`.
    fn whole(mut self, all: &mut Vec<Variable>) -> Result<()> {
        let (kind, bytes) = pair(self.bytes(8)?.try_into().unwrap_or_default());
        self.matrix(kind, bytes, "", 0, all)?;
        // To the end, where a checksum is compared.
        let left = self.packed.bytes - self.at;
        self.pass(left)
    }

    fn bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = (&mut self.reader).take(count).read_to_end(&mut bytes);
        self.at += count;
        match read {
            Ok(read) if read as u64 == count => Ok(bytes),
            Ok(_) => Err(self.damaged("it ends early")),
            Err(error) => Err(self.damaged(error)),
        }
    }

    fn pass(&mut self, count: u64) -> Result<()> {
        self.at += count;
        match std::io::copy(&mut (&mut self.reader).take(count), &mut std::io::sink()) {
            Ok(passed) if passed == count => Ok(()),
            Ok(_) => Err(self.damaged("it ends early")),
            Err(error) => Err(self.damaged(error)),
        }
    }

    /// The next part of a matrix that ends at `end`; its data only if they are `wanted`.
    fn element(&mut self, end: u64, wanted: bool) -> Result<Element> {
        let (kind, bytes) = pair(self.bytes(8)?.try_into().unwrap_or_default());
        if kind >> 16 != 0 {
            // Its data stand in the tag.
            let (data, length) = (bytes as u32, u64::from(kind >> 16).min(4));
            let data = data.to_le_bytes()[..length as usize].to_vec();
            return Ok(Element { kind: kind & 0xffff, start: self.at - 4, bytes: length, data });
        }
        let start = self.at;
        if start + bytes > end || wanted && bytes > HELD {
            return Err(self.damaged(format!("a part of {bytes} bytes")));
        }
        // The last number of what is not wanted says how many entries there are: to look for it again would inflate all of it again.
        self.pass(if wanted { 0 } else { bytes.saturating_sub(4) })?;
        let data = self.bytes(start + bytes - self.at)?;
        self.pass((start + bytes).next_multiple_of(8).min(end) - self.at)?;
        Ok(Element { kind, start, bytes, data })
    }

    /// Reads a matrix of `bytes` bytes, which begin here, and passes what is not read of it.
    fn matrix(&mut self, kind: u32, bytes: u64, within: &str, depth: usize, all: &mut Vec<Variable>) -> Result<()> {
        let end = self.at + bytes;
        if kind != MATRIX || end > self.packed.bytes {
            return Err(self.damaged(format!("{bytes} bytes of type {kind}, expected a matrix")));
        }
        if depth > DEPTH || all.len() >= MOST {
            return Err(self.problem(format!(
                "expected {MOST} variables at most, {DEPTH} in each other: save the matrices alone"
            )));
        }
        // An empty field has no parts at all.
        if bytes == 0 {
            return Ok(());
        }
        let flags = self.element(end, true)?;
        let [class, flags, ..] = flags.data[..] else { return Err(self.damaged("no flags")) };
        let shape = self.element(end, true)?.integers();
        let name = shown(&self.element(end, true)?.data);
        // A field has its name from the struct.
        let name = if within.is_empty() { name } else { within.to_string() };
        let content = match class {
            _ if flags & 8 != 0 => Content::Other("complex numbers"),
            5 => self.sparse(&name, &shape, end)?,
            6..=15 => {
                let numbers = self.element(end, false)?;
                Content::Dense(self.numbers(&name, &numbers, shape.clone())?)
            }
            2 if shape == [1, 1] => {
                self.fields(&name, end, depth, all)?;
                Content::Other("a struct")
            }
            1 => Content::Other("cells"),
            4 => Content::Other("text"),
            _ => Content::Other("no numbers"),
        };
        all.push(Variable { name, shape, content });
        self.pass(end.checked_sub(self.at).ok_or_else(|| self.damaged("parts beyond its end"))?)
    }

    fn fields(&mut self, name: &str, end: u64, depth: usize, all: &mut Vec<Variable>) -> Result<()> {
        let length = self.element(end, true)?.integers().first().copied().unwrap_or(0);
        let names = self.element(end, true)?.data;
        for field in names.chunks(length.clamp(1, HELD) as usize) {
            let field = field.split(|&byte| byte == 0).next().unwrap_or(&[]);
            let field = format!("{name}.{}", shown(field));
            let (kind, bytes) = pair(self.bytes(8)?.try_into().unwrap_or_default());
            self.matrix(kind, bytes, &field, depth + 1, all)?;
        }
        Ok(())
    }

    fn sparse(&mut self, name: &str, shape: &[u64], end: u64) -> Result<Content> {
        let [rows, ends, values] = [self.element(end, false)?, self.element(end, false)?, self.element(end, false)?];
        let &[_, columns] = shape else { return Err(self.damaged(format!("a sparse matrix of shape {shape:?}"))) };
        let (last, ends) = (ends.integers(), self.numbers(name, &ends, vec![columns + 1])?);
        let (&[entries], 4) = (&last[..], ends.dtype().bytes()) else {
            return Err(self.damaged(format!("{name}: expected i32 of each column")));
        };
        // There may be room for more entries than there are.
        let first = |element: &Element| {
            let room = dtype(element.kind).map_or(0, |dtype| element.bytes / dtype.bytes() as u64);
            if room < entries {
                return Err(self.damaged(format!("{name}: room for {room} of {entries} entries")));
            }
            Ok(self.numbers(name, element, vec![room])?.first(entries))
        };
        Ok(Content::Sparse(Box::new([first(&rows)?, ends, first(&values)?])))
    }

    /// The numbers in `element`, which must be as many as `shape` says.
    fn numbers(&self, name: &str, element: &Element, shape: Vec<u64>) -> Result<Numbers> {
        let Some(dtype) = dtype(element.kind) else {
            return Err(self.damaged(format!("{name}: numbers of type {}", element.kind)));
        };
        let bytes = shape.iter().try_fold(dtype.bytes() as u64, |product, &length| product.checked_mul(length));
        if bytes != Some(element.bytes) {
            let held = element.bytes;
            return Err(self.damaged(format!("{name}: shape {shape:?} of {} in {held} bytes", dtype.descr())));
        }
        let span = Span { start: element.start, latin1: false };
        let column_major = shape.iter().filter(|&&length| length > 1).count() > 1;
        Ok(Numbers::within(self.path, name, (self.packed.clone(), span), dtype, (shape, column_major)))
    }
}

/// A name, without line ends if the file is damaged.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

fn dtype(kind: u32) -> Option<Dtype> {
    let descr = match kind {
        1 => "|i1",
        2 => "|u1",
        3 => "<i2",
        4 => "<u2",
        5 => "<i4",
        6 => "<u4",
        7 => "<f4",
        9 => "<f8",
        12 => "<i8",
        13 => "<u8",
        _ => return None,
    };
    Dtype::from_descr(descr).ok()
}
