//! Types of the numbers in arrays, and loops that convert their bytes to ids and values.
//!
//! Every loop is over one type, without a branch per element.

use half::f16;

use crate::edges::ValueType;

/// An invalid number: its position, and the problem.
pub type BadNumber = (u64, String);

macro_rules! dtypes {
    ($($kind:ident $rust:ty, $descr:literal;)*) => {
        /// Type of an array's numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Dtype { $(
            #[doc = concat!("NumPy's `", $descr, "`.")]
            $kind,
        )* }

        impl Dtype {
            /// NumPy's name.
            pub fn descr(self) -> &'static str {
                match self { $(Self::$kind => $descr),* }
            }

            /// Bytes of one number.
            pub fn bytes(self) -> usize {
                match self { $(Self::$kind => size_of::<$rust>()),* }
            }

            fn known(descr: &str) -> Option<Self> {
                match descr { $($descr => Some(Self::$kind),)* "|b1" => Some(Self::U1), _ => None }
            }
        }
    };
}
dtypes! {
    I1 i8, "|i1";
    I2 i16, "<i2";
    I4 i32, "<i4";
    I8 i64, "<i8";
    U1 u8, "|u1";
    U2 u16, "<u2";
    U4 u32, "<u4";
    U8 u64, "<u8";
    F2 f16, "<f2";
    F4 f32, "<f4";
    F8 f64, "<f8";
}

impl Dtype {
    /// The type that NumPy calls `descr`; bools are bytes. The error is one clause with the remedy.
    pub fn from_descr(descr: &str) -> Result<Self, String> {
        Self::known(descr).ok_or_else(|| {
            let remedy = match descr.as_bytes() {
                [b'>', ..] => {
                    "big-endian; save it again through .astype(array.dtype.newbyteorder('<'))"
                }
                [_, b'O', ..] => "Python objects; save it again through .astype of a number type",
                _ => "another; save it again through .astype of such a type",
            };
            let descr = descr.escape_debug();
            format!(
                "type {descr}: expected little-endian integers or floats of up to 8 bytes, \
                     found {remedy}"
            )
        })
    }

    /// Whether the type is an integer.
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::F2 | Self::F4 | Self::F8)
    }

    /// Appends the integers in `bytes` to `ids`. Fails for negative integers and for floats.
    pub fn ids(self, bytes: &[u8], ids: &mut Vec<u64>) -> Result<(), BadNumber> {
        let before = ids.len();
        macro_rules! extend {
            ($rust:ty) => {
                ids.extend(
                    bytes.as_chunks().0.iter().map(|&number| <$rust>::from_le_bytes(number) as u64),
                )
            };
        }
        match self {
            Self::I1 => extend!(i8),
            Self::I2 => extend!(i16),
            Self::I4 => extend!(i32),
            Self::I8 => extend!(i64),
            Self::U1 => extend!(u8),
            Self::U2 => extend!(u16),
            Self::U4 => extend!(u32),
            Self::U8 => extend!(u64),
            Self::F2 | Self::F4 | Self::F8 => {
                return Err((
                    0,
                    format!("type {}: expected integer ids; save it again as int64", self.descr()),
                ));
            }
        }
        let is_signed = matches!(self, Self::I1 | Self::I2 | Self::I4 | Self::I8);
        let ids = &ids[before..];
        if !is_signed || ids.iter().fold(0, |all, id| all | id) as i64 >= 0 {
            return Ok(());
        }
        match ids.iter().position(|&id| (id as i64) < 0) {
            Some(at) => {
                Err((at as u64, format!("{}: expected an id or count from 0", ids[at] as i64)))
            }
            None => Ok(()),
        }
    }

    /// The type in which values of edges are kept: single and double precision unchanged, half as
    /// single, integers as 64 bits.
    pub fn value_type(self) -> ValueType {
        match self {
            Self::F2 | Self::F4 => ValueType::F32,
            Self::F8 => ValueType::F64,
            _ => ValueType::I64,
        }
    }

    /// Appends the numbers in `bytes` to `values`, little-endian, in the type
    /// [`value_type`](Self::value_type).
    pub fn values(self, bytes: &[u8], values: &mut Vec<u8>) -> Result<(), BadNumber> {
        match self {
            Self::F4 | Self::F8 | Self::I8 => values.extend_from_slice(bytes),
            Self::F2 => {
                let halves = bytes.as_chunks().0.iter();
                values.extend(
                    halves.flat_map(|&half| f16::from_le_bytes(half).to_f32().to_le_bytes()),
                );
            }
            Self::I1 => values.extend(widened(bytes, |number| i8::from_le_bytes(number).into())),
            Self::I2 => values.extend(widened(bytes, |number| i16::from_le_bytes(number).into())),
            Self::I4 => values.extend(widened(bytes, |number| i32::from_le_bytes(number).into())),
            Self::U1 => values.extend(widened(bytes, |number| u8::from_le_bytes(number).into())),
            Self::U2 => values.extend(widened(bytes, |number| u16::from_le_bytes(number).into())),
            Self::U4 => values.extend(widened(bytes, |number| u32::from_le_bytes(number).into())),
            Self::U8 => {
                let numbers = bytes.as_chunks().0;
                let too_large = |&number: &[u8; 8]| u64::from_le_bytes(number) > i64::MAX as u64;
                if let Some(at) = numbers.iter().position(too_large) {
                    let found = u64::from_le_bytes(numbers[at]);
                    return Err((at as u64, format!("{found}: expected values up to 2^63-1")));
                }
                values.extend_from_slice(bytes);
            }
        }
        Ok(())
    }
}

/// Converts numbers of `N` bytes each to 64-bit integers.
fn widened<const N: usize>(
    bytes: &[u8],
    number: impl Fn([u8; N]) -> i64,
) -> impl Iterator<Item = u8> {
    bytes.as_chunks::<N>().0.iter().flat_map(move |&bytes| number(bytes).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_integer_type() {
        for descr in ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8"] {
            let dtype = Dtype::from_descr(descr).unwrap();
            let numbers = |list: &[u8]| -> Vec<u8> {
                list.iter().flat_map(|&n| [vec![n], vec![0; dtype.bytes() - 1]].concat()).collect()
            };
            let mut ids = vec![99];
            dtype.ids(&numbers(&[3, 0, 127, 7]), &mut ids).unwrap();
            assert_eq!(ids, [99, 3, 0, 127, 7], "{descr}");
        }
    }

    #[test]
    fn what_is_no_id_is_found() {
        let bytes: Vec<u8> = [5i32, 6, 7, -8, 9, 1].iter().flat_map(|n| n.to_le_bytes()).collect();
        let bad = Dtype::I4.ids(&bytes, &mut vec![]).unwrap_err();
        assert_eq!(bad, (3, "-8: expected an id or count from 0".into()));
        assert!(Dtype::F4.ids(&bytes, &mut vec![]).unwrap_err().1.contains("expected integer ids"));
        let mut ids = vec![];
        Dtype::U8.ids(&u64::MAX.to_le_bytes(), &mut ids).unwrap();
        assert_eq!(ids, [u64::MAX]);
    }

    #[test]
    fn values_keep_their_numbers() {
        let mut values = vec![];
        Dtype::I2.values(&(-3i16).to_le_bytes(), &mut values).unwrap();
        Dtype::U1.values(&[200], &mut values).unwrap();
        Dtype::I1.values(&[255], &mut values).unwrap();
        let numbers: Vec<i64> =
            values.as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes)).collect();
        assert_eq!(numbers, [-3, 200, -1]);
        let mut values = vec![];
        Dtype::F2.values(&f16::from_f32(1.5).to_le_bytes(), &mut values).unwrap();
        assert_eq!(values, 1.5f32.to_le_bytes());
        let problem = Dtype::U8
            .values(&[0u64, 1 << 63].map(u64::to_le_bytes).concat(), &mut values)
            .unwrap_err();
        assert_eq!(problem, (1, "9223372036854775808: expected values up to 2^63-1".into()));
    }

    #[test]
    fn other_types_are_refused_with_a_remedy() {
        for (descr, remedy) in [
            (">i8", "newbyteorder"),
            ("|O", "Python objects"),
            ("<c16", ".astype"),
            ("|S3", ".astype"),
        ] {
            let problem = Dtype::from_descr(descr).unwrap_err();
            assert!(problem.contains(descr) && problem.contains(remedy), "{problem}");
        }
    }
}
