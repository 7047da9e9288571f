//! NumPy's `.npy` format, version 1 to 3 (NEP 1), for arrays that are mapped or streamed.
//!
//! A file is the magic `\x93NUMPY`, two version bytes, the header's length (u16, u32 from version 2
//! on), the header, a Python dict literal with the keys `descr`, `fortran_order` and `shape`,
//! padded with blanks so that the data starts at a multiple of 64, then the elements. [`NpyWriter`]
//! and [`ColumnWriter`] write little-endian arrays of one or two dimensions, [`Column`] and
//! [`ColumnFile`] read them in place; [`NpyHeader`] also describes files of other tools
//! (column-major arrays, other types).
//!
//! Why not a crate: the ones there are read into vectors; none says where the data starts, so none
//! can map it.

use std::io::Read;

use bytemuck::Pod;
use half::f16;

pub use column::{Column, ColumnFile};
pub use writer::{ColumnWriter, NpyWriter, write_npy};

mod column;
mod writer;

const MAGIC: &[u8] = b"\x93NUMPY";
const ALIGNMENT: usize = 64;
/// Bytes before the data in files that are written here, whatever the shape: two 64-bit lengths
/// fit.
const HEADER_BYTES: usize = 2 * ALIGNMENT;
/// Longest header accepted: far above any real header, far below a length that could exhaust
/// memory.
const MAX_HEADER: usize = 1 << 16;

/// Characters of a header that an error shows.
const MAX_SHOWN: usize = 200;

/// A number whose stored bytes equal its bytes in memory.
pub trait Element: Pod {
    /// NumPy's name of the type, e.g. `<u4`.
    const DESCR: &'static str;
}

macro_rules! elements {
    ($($rust:ty => $descr:literal),*) => {
        $(impl Element for $rust { const DESCR: &'static str = $descr; })*
        /// NumPy's name of every type of [`Element`], and its bytes.
        const TYPES: &[(&str, usize)] = &[$(($descr, size_of::<$rust>())),*];
    };
}
elements!(
    i8 => "|i1", i16 => "<i2", i32 => "<i4", i64 => "<i8",
    u8 => "|u1", u16 => "<u2", u32 => "<u4", u64 => "<u8",
    f16 => "<f2", f32 => "<f4", f64 => "<f8"
);

/// The type `descr` and its bytes, if columns may have it.
pub(crate) fn element_type(descr: &str) -> Option<(&'static str, usize)> {
    TYPES.iter().copied().find(|(name, _)| *name == descr)
}

/// Header of a `.npy` file or `.npz` member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    /// Type of the elements, e.g. `<f4`.
    pub descr: String,
    /// Column-major order.
    pub fortran_order: bool,
    /// Length of each dimension, outermost first.
    pub shape: Vec<u64>,
}

impl NpyHeader {
    /// Reads the magic and the header, up to the first element. The error is one clause without a
    /// path, to be completed by the caller.
    pub fn read(reader: &mut impl Read) -> Result<Self, String> {
        let mut fixed = [0u8; 8];
        let short = |_| "expected a .npy header, the file is too short".to_string();
        reader.read_exact(&mut fixed).map_err(short)?;
        if &fixed[..6] != MAGIC {
            return Err("expected .npy magic bytes \\x93NUMPY at the start".into());
        }
        let length_bytes = match fixed[6] {
            1 => 2,
            2 | 3 => 4,
            version => return Err(format!("expected .npy version 1, 2 or 3, found {version}")),
        };
        let mut length = [0u8; 4];
        reader.read_exact(&mut length[..length_bytes]).map_err(short)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(format!(
                "the .npy header claims {length} bytes, expected at most {MAX_HEADER}"
            ));
        }
        let mut text = vec![0u8; length];
        reader.read_exact(&mut text).map_err(short)?;
        let text =
            std::str::from_utf8(&text).map_err(|_| "the .npy header is not text".to_string())?;
        let shown =
            || text.trim().chars().take(MAX_SHOWN).collect::<String>().escape_debug().to_string();
        Self::parse(text).ok_or_else(|| format!("cannot understand the .npy header `{}`", shown()))
    }

    fn parse(text: &str) -> Option<Self> {
        let after = |key: &str| {
            let at = text.find(&format!("'{key}'"))?;
            Some(text[at + key.len() + 2..].trim_start().strip_prefix(':')?.trim_start())
        };
        let descr = after("descr")?.strip_prefix('\'')?;
        let descr = descr[..descr.find('\'')?].to_string();
        if descr.len() > 32 || !descr.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let order = after("fortran_order")?;
        let fortran_order = match (order.starts_with("True"), order.starts_with("False")) {
            (true, _) => true,
            (_, true) => false,
            _ => return None,
        };
        let shape = after("shape")?.strip_prefix('(')?;
        let shape = shape[..shape.find(')')?]
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| part.trim_end_matches('L').parse().ok())
            .collect::<Option<Vec<u64>>>()?;
        Some(Self { descr, fortran_order, shape })
    }

    /// Number of elements, `None` if it does not fit 64 bits.
    pub fn num_elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |product, &length| product.checked_mul(length))
    }

    /// Bytes of one element, from the digits of `descr`.
    pub fn element_bytes(&self) -> Option<u64> {
        self.descr.get(2..)?.parse().ok()
    }

    /// The bytes that open a file with this header of at most two dimensions, version 1.
    fn to_bytes(&self) -> Vec<u8> {
        let shape = match self.shape.as_slice() {
            [only] => format!("({only},)"),
            many => format!("({})", many.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
        };
        let order = if self.fortran_order { "True" } else { "False" };
        let mut dict =
            format!("{{'descr': '{}', 'fortran_order': {order}, 'shape': {shape}, }}", self.descr);
        let unpadded = MAGIC.len() + 4 + dict.len() + 1;
        dict.extend(std::iter::repeat_n(' ', HEADER_BYTES.saturating_sub(unpadded)));
        dict.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((dict.len() as u16).to_le_bytes());
        bytes.extend(dict.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn round_trip_is_exact_and_aligned() {
        let folder = tempfile::tempdir().unwrap();
        for length in [0usize, 1, 5, 1000, 1 << 18] {
            let path = folder.path().join("a/b.npy");
            let values: Vec<u64> = (0..length as u64).map(|i| i * i).collect();
            let record = write_npy(&path, &values).unwrap();
            let column = Column::<u64>::open(&path).unwrap();
            assert_eq!(&column[..], &values[..]);
            assert_eq!(column.as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(crate::checksum_file(&path).unwrap(), (record.bytes, record.checksum));
        }
    }

    #[test]
    fn rows_are_counted_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.npy");
        let mut writer = NpyWriter::<u16>::create_rows(&path, 3).unwrap();
        writer.push(&[1, 2, 3, 4]).unwrap();
        writer.push(&[5, 6]).unwrap();
        let record = writer.finish().unwrap();
        let header = NpyHeader::read(&mut File::open(&path).unwrap()).unwrap();
        assert_eq!((header.shape, header.descr.as_str()), (vec![2, 3], "<u2"));
        assert_eq!(crate::checksum_file(&path).unwrap(), (record.bytes, record.checksum));
        let mut writer = NpyWriter::<u16>::create_rows(&path, 3).unwrap();
        writer.push(&[1]).unwrap();
        assert!(writer.finish().unwrap_err().to_string().contains("not whole rows of 3"));
    }

    #[test]
    fn headers_of_other_writers_are_understood() {
        let numpy = "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 287209), }   \n";
        let header = NpyHeader::parse(numpy).unwrap();
        assert_eq!((header.shape.as_slice(), header.element_bytes()), (&[2, 287_209][..], Some(8)));
        let scalar =
            NpyHeader::parse("{'shape': (), 'fortran_order': True, 'descr': '|b1'}").unwrap();
        assert_eq!((scalar.num_elements(), scalar.fortran_order), (Some(1), true));
        let huge = NpyHeader::parse(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999, 9999999999), }",
        );
        assert_eq!(huge.unwrap().num_elements(), None);
    }

    #[test]
    fn damaged_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        write_npy(&path, &[1u32, 2, 3]).unwrap();
        assert!(
            Column::<u64>::open(&path)
                .unwrap_err()
                .to_string()
                .contains("expected elements <u8, found <u4")
        );
        let good = std::fs::read(&path).unwrap();
        for cut in [0, 3, 9, 40, good.len() - 1] {
            std::fs::write(&path, &good[..cut]).unwrap();
            let message = Column::<u32>::open(&path).unwrap_err().to_string();
            assert!(message.contains("x.npy"), "{message}");
        }
    }
}
