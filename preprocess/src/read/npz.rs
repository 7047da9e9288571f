//! Members of `.npz` archives as streams of numbers.
//!
//! `np.savez` writes members that are stored, `np.savez_compressed` deflated ones; stored data is not aligned either.
//! Both are read through a buffer, number by number, never as a whole. What a header claims about sizes costs no
//! memory.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use gsplit_store::{NpyHeader, Progress, Unit};
use half::f16;
use zip::ZipArchive;
use zip::read::ZipFile;
use zip::result::ZipError;

use super::text::name_of;
use crate::{Error, Result};

/// An archive opened for reading.
pub struct Npz {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
}

/// One array of an archive, read up to its first element.
pub struct Member<'a> {
    path: &'a Path,
    name: String,
    header: NpyHeader,
    kind: Kind,
    elements: u64,
    bytes: ZipFile<'a, BufReader<File>>,
}

/// An element of any type.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// Of a signed or unsigned type.
    Integer(i128),
    /// Of a floating-point type.
    Real(f64),
}

macro_rules! kinds {
    ($($kind:ident $rust:ty, $descr:literal => $number:expr;)*) => {
        #[derive(Clone, Copy)]
        enum Kind { $($kind),* }

        impl Kind {
            fn from_descr(descr: &str) -> Option<Self> {
                match descr { $($descr => Some(Self::$kind),)* _ => None }
            }

            fn bytes(self) -> usize {
                match self { $(Self::$kind => size_of::<$rust>()),* }
            }

            /// Calls `f` for every element in `bytes`.
            fn decode(self, bytes: &[u8], mut f: impl FnMut(Number) -> Result<()>) -> Result<()> {
                match self {
                    $(Self::$kind => bytes.as_chunks().0.iter().try_for_each(|&element| {
                        f($number(<$rust>::from_le_bytes(element)))
                    }),)*
                }
            }
        }
    };
}
kinds! {
    I1 i8, "|i1" => |x| Number::Integer(i128::from(x));
    I2 i16, "<i2" => |x| Number::Integer(i128::from(x));
    I4 i32, "<i4" => |x| Number::Integer(i128::from(x));
    I8 i64, "<i8" => |x| Number::Integer(i128::from(x));
    U1 u8, "|u1" => |x| Number::Integer(i128::from(x));
    U2 u16, "<u2" => |x| Number::Integer(i128::from(x));
    U4 u32, "<u4" => |x| Number::Integer(i128::from(x));
    U8 u64, "<u8" => |x| Number::Integer(i128::from(x));
    F2 f16, "<f2" => |x| Number::Real(f64::from(x));
    F4 f32, "<f4" => |x| Number::Real(f64::from(x));
    F8 f64, "<f8" => Number::Real;
}

impl Npz {
    /// Opens the archive at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path))?;
        let archive = ZipArchive::new(BufReader::with_capacity(1 << 18, file)).map_err(|error| damaged(path, error))?;
        Ok(Self { path: path.to_path_buf(), archive })
    }

    /// The array called `name`; an error when there is none.
    pub fn member(&mut self, name: &str) -> Result<Member<'_>> {
        if !self.contains(name) {
            return Err(Error::input(&self.path, format!("has no member {name}: expected the binary layout of OGB")));
        }
        let mut bytes = self.archive.by_name(&format!("{name}.npy")).map_err(|error| damaged(&self.path, error))?;
        let problem = |problem| of_member(&self.path, name, problem);
        let header = NpyHeader::read(&mut bytes).map_err(problem)?;
        let kind = Kind::from_descr(&header.descr)
            .ok_or_else(|| problem(format!("type {}: expected little-endian integers or floats", header.descr)))?;
        let elements = header.num_elements().ok_or_else(|| problem(format!("cannot have shape {:?}", header.shape)))?;
        Ok(Member { path: &self.path, name: name.to_string(), header, kind, elements, bytes })
    }

    /// Whether there is an array called `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.archive.index_for_name(&format!("{name}.npy")).is_some()
    }
}

impl Member<'_> {
    /// Length of each dimension.
    pub fn shape(&self) -> &[u64] {
        &self.header.shape
    }

    /// Whether the first index runs fastest.
    pub fn column_major(&self) -> bool {
        self.header.fortran_order
    }

    /// A problem with this member.
    pub fn error(&self, problem: impl Into<String>) -> Error {
        of_member(self.path, &self.name, problem.into())
    }

    /// Calls `f` with the position and the value of every element, in the order they are stored in. What `f` returns is
    /// said of that element. Fails when there are fewer or more elements than the header promises.
    pub fn for_each(
        mut self,
        progress: &dyn Progress,
        mut f: impl FnMut(u64, Number) -> Result<(), ElementError>,
    ) -> Result<()> {
        let size = self.kind.bytes() as u64;
        let stage_name = format!("reading {}/{}", name_of(self.path), self.name);
        let stage = progress.stage(&stage_name, self.elements.checked_mul(size), Unit::Bytes);
        let (path, name, shape, column_major) = (self.path, &self.name, &self.header.shape, self.header.fortran_order);
        let mut buffer = Vec::new();
        let mut position = 0;
        while position < self.elements {
            let wanted = (self.elements - position).min(1 << 16) * size;
            buffer.clear();
            let read =
                (&mut self.bytes).take(wanted).read_to_end(&mut buffer).map_err(|error| damaged(path, error.into()))?;
            self.kind.decode(&buffer, |number| {
                f(position, number).map_err(|error| match error {
                    ElementError::Value(problem) => {
                        of_member(path, name, format!("{}: {problem}", index(position, shape, column_major)))
                    }
                    ElementError::Other(error) => error,
                })?;
                position += 1;
                Ok(())
            })?;
            if (read as u64) < wanted {
                let problem = format!(
                    "its header promises shape {shape:?}, it ends after {position} elements: download it again"
                );
                return Err(of_member(path, name, problem));
            }
            stage.advance(wanted);
        }
        // One read more: it finds bytes that the header did not promise, and lets the archive check its checksum.
        match self.bytes.read(&mut [0]).map_err(|error| damaged(path, error.into()))? {
            0 => Ok(()),
            _ => Err(of_member(path, name, format!("its header promises shape {shape:?}, it goes on after that"))),
        }
    }
}

/// Why reading stops at an element.
pub enum ElementError {
    /// The element is not what it should be.
    Value(String),
    /// Something else failed.
    Other(Error),
}

impl From<String> for ElementError {
    fn from(problem: String) -> Self {
        Self::Value(problem)
    }
}

/// Where the element at `position` lies, as `[row, column]`.
fn index(mut position: u64, shape: &[u64], column_major: bool) -> String {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    if !column_major {
        axes.reverse();
    }
    let mut indices = vec![0; shape.len()];
    for axis in axes {
        indices[axis] = position % shape[axis];
        position /= shape[axis];
    }
    format!("{indices:?}")
}

fn of_member(path: &Path, name: &str, problem: String) -> Error {
    Error::input(path, format!("{name}: {problem}"))
}

fn damaged(path: &Path, error: ZipError) -> Error {
    match error {
        ZipError::Io(error) if error.raw_os_error().is_some() => Error::io(path)(error),
        ZipError::Io(error) => Error::input(path, format!("truncated or damaged archive ({error}): download it again")),
        other => {
            Error::input(path, format!("expected an .npz archive: {other}; truncated or damaged? download it again"))
        }
    }
}
