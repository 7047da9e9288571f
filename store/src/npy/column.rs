//! Arrays read in place from mapped `.npy` files.

use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use super::{ALIGNMENT, Element, NpyHeader, element_type};
use crate::{Error, MappedFile, Result};

/// A mapped `.npy` file of numbers of any type: one dimension, or rows of equal width.
#[derive(Clone, Debug)]
pub struct ColumnFile {
    map: Arc<MappedFile>,
    start: usize,
    descr: &'static str,
    rows: usize,
    width: Option<usize>,
}

impl ColumnFile {
    /// Maps the array at `path` and checks its header against its length. No element is read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let map = MappedFile::open(path)?;
        let corrupt = |problem: String| Error::corrupt(path, problem);
        let mut rest: &[u8] = &map;
        let header = NpyHeader::read(&mut rest).map_err(corrupt)?;
        let start = map.len() - rest.len();
        let Some((descr, bytes)) = element_type(&header.descr) else {
            return Err(corrupt(format!(
                "elements {}, expected little-endian numbers",
                header.descr
            )));
        };
        let (rows, width) = match header.shape[..] {
            [rows] => (rows, None),
            [rows, width] if width > 0 && !header.fortran_order => (rows, Some(width)),
            _ => {
                let order = if header.fortran_order { "column-major, " } else { "" };
                let shape = &header.shape;
                return Err(corrupt(format!(
                    "expected one dimension or row-major rows, found {order}shape {shape:?}"
                )));
            }
        };
        let elements = rows.checked_mul(width.unwrap_or(1));
        if elements.and_then(|elements| elements.checked_mul(bytes as u64))
            != Some(rest.len() as u64)
        {
            let (shape, found) = (&header.shape, rest.len() / bytes);
            return Err(corrupt(format!(
                "the header promises {shape:?} elements, the file holds {found}"
            )));
        }
        if !(rest.as_ptr() as usize).is_multiple_of(bytes) {
            return Err(corrupt(format!(
                "data starts at byte {start}, expected a multiple of {ALIGNMENT}"
            )));
        }
        // Both fit: their product with the width is the length of the file.
        let (rows, width) = (rows as usize, width.map(|width| width as usize));
        Ok(Self { map: Arc::new(map), start, descr, rows, width })
    }

    /// NumPy's name of the elements' type, e.g. `<f4`.
    pub fn descr(&self) -> &'static str {
        self.descr
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements per row: 1 for one dimension.
    pub fn width(&self) -> usize {
        self.width.unwrap_or(1)
    }

    /// Number of dimensions: 1 or 2.
    pub fn dimensions(&self) -> usize {
        1 + usize::from(self.width.is_some())
    }

    /// The elements as stored in the file, row after row, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.map[self.start..]
    }

    /// The elements, row after row. Fails unless `T` is the type in the file.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.check_type::<T>()?;
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// Element `at` of all, to the nearest f64; `None` where there is none, and for floats of 16
    /// bits.
    pub fn number(&self, at: usize) -> Option<f64> {
        macro_rules! nth {
            ($($type:ty),*) => {
                $(if self.descr == <$type>::DESCR {
                    return self.as_slice::<$type>().ok()?.get(at).map(|&value| value as f64);
                })*
            };
        }
        nth!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);
        None
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    fn check_type<T: Element>(&self) -> Result<()> {
        if self.descr == T::DESCR {
            return Ok(());
        }
        Err(Error::corrupt(
            self.path(),
            format!("expected elements {}, found {}", T::DESCR, self.descr),
        ))
    }
}

/// A one-dimensional array read in place from a mapped `.npy` file.
#[derive(Clone, Debug)]
pub struct Column<T> {
    file: ColumnFile,
    element: PhantomData<T>,
}

impl<T: Element> Column<T> {
    /// Maps the array at `path` and checks type, shape, length and alignment.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let file = ColumnFile::open(path)?;
        file.check_type::<T>()?;
        if let Some(width) = file.width {
            let rows = file.rows;
            return Err(Error::corrupt(
                file.path(),
                format!("expected one dimension, found shape [{rows}, {width}]"),
            ));
        }
        Ok(Self { file, element: PhantomData })
    }

    /// A copy of `values` in memory, called `name` in messages.
    pub fn in_memory(name: &str, values: &[T]) -> Result<Self> {
        // No values lie behind something, so that they are aligned.
        let (bytes, start) =
            if values.is_empty() { (&[0; 64][..], 64) } else { (bytemuck::cast_slice(values), 0) };
        let map = Arc::new(MappedFile::in_memory(name, bytes)?);
        let file = ColumnFile { map, start, descr: T::DESCR, rows: values.len(), width: None };
        Ok(Self { file, element: PhantomData })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl<T: Element> Deref for Column<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(self.file.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ColumnWriter, TYPES, write_npy};
    use super::*;

    #[test]
    fn any_type_and_width_is_mapped() {
        let folder = tempfile::tempdir().unwrap();
        for &(descr, size) in TYPES {
            for width in [1, 3] {
                let path = folder.path().join("column.npy");
                let bytes: Vec<u8> = (0..size * width * 5).map(|i| i as u8).collect();
                let mut writer = ColumnWriter::create(&path, descr, width).unwrap();
                writer.push(&bytes[..size * width]).unwrap();
                writer.push(&bytes[size * width..]).unwrap();
                assert_eq!(writer.rows(), 5);
                let record = writer.finish().unwrap();
                assert_eq!(crate::checksum_file(&path).unwrap(), (record.bytes, record.checksum));
                let file = ColumnFile::open(&path).unwrap();
                let shape = (file.descr(), file.rows(), file.width(), file.dimensions());
                assert_eq!(shape, (descr, 5, width, if width == 1 { 1 } else { 2 }));
                assert_eq!(file.bytes(), bytes);
            }
        }
    }

    #[test]
    fn types_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        write_npy(&path, &[1.5f32, 2.5]).unwrap();
        let file = ColumnFile::open(&path).unwrap();
        assert_eq!(file.as_slice::<f32>().unwrap(), [1.5, 2.5]);
        assert!(
            file.as_slice::<i32>()
                .unwrap_err()
                .to_string()
                .contains("expected elements <i4, found <f4")
        );
        let mut writer = ColumnWriter::create(&path, "<f4", 2).unwrap();
        writer.push(&[0; 8]).unwrap();
        writer.finish().unwrap();
        assert!(Column::<f32>::open(&path).unwrap_err().to_string().contains("found shape [1, 2]"));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        write_npy(&path, &[7u32; 12]).unwrap();
        let good = std::fs::read(&path).unwrap();
        for (found, bad) in [
            ("(12,)", "(13,)"),
            ("(12,)", "(4611686018427387904, 4)"),
            ("(12,)", "(0, 12)"),
            ("(12,)", "(12, 0)"),
            ("(12,)", "(2, 2, 3)"),
            ("(12,)", "()"),
            ("<u4", ">u4"),
            ("<u4", "|S4"),
            ("False, 'shape': (12,)", "True, 'shape': (3, 4)"),
        ] {
            let text = String::from_utf8_lossy(&good[10..128]).into_owned();
            let text = text.trim_end().replacen(found, bad, 1);
            let bytes = [&good[..10], format!("{text:117}\n").as_bytes(), &good[128..]].concat();
            std::fs::write(&path, bytes).unwrap();
            let message = ColumnFile::open(&path).unwrap_err().to_string();
            assert!(message.contains("x.npy: "), "{bad}: {message}");
        }
    }
}
