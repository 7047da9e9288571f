//! Columns of Parquet and Arrow files as the rest of the code knows them: integers, floats,
//! booleans and strings.
//!
//! | type in the file | becomes |
//! | --- | --- |
//! | fixed binary (UUIDs, hashes) | strings, in hexadecimal |
//! | decimal without fractions, up to 18 digits | 64-bit integers |
//! | decimal without fractions, longer | strings of digits, so that ids stay exact |
//! | decimal with fractions | doubles |
//! | date, timestamp | doubles: days since 1970-01-01 |

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, Float64Array, Int64Array, PrimitiveArray, StringArray,
};
use arrow_schema::{DataType, TimeUnit};

/// Milliseconds of a day.
const DAY_MS: f64 = 86_400_000.0;
/// Digits that a 64-bit integer always holds.
const MAX_DIGITS: u8 = 18;

/// Whether a column of this type holds dates.
pub fn is_date(value: &DataType) -> bool {
    matches!(value, DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, _))
}

/// The type that a column of type `from` is converted to.
pub fn converted(from: &DataType) -> Option<DataType> {
    match *from {
        DataType::FixedSizeBinary(_) => Some(DataType::Utf8),
        DataType::Decimal128(digits, 0) if digits <= MAX_DIGITS => Some(DataType::Int64),
        DataType::Decimal128(_, 0) => Some(DataType::Utf8),
        DataType::Decimal128(_, _)
        | DataType::Date32
        | DataType::Date64
        | DataType::Timestamp(_, _) => Some(DataType::Float64),
        _ => None,
    }
}

/// The cells of `array` in the type that its type is converted to.
pub fn plain(array: &ArrayRef) -> ArrayRef {
    match (array.data_type(), converted(array.data_type())) {
        (DataType::FixedSizeBinary(_), _) => {
            let hex =
                |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let strings = array.as_fixed_size_binary().iter().map(|bytes| bytes.map(hex));
            Arc::new(strings.collect::<StringArray>())
        }
        (DataType::Decimal128(_, _), Some(DataType::Int64)) => {
            let whole = |value: Option<i128>| value.map(|value| value as i64);
            Arc::new(
                array.as_primitive::<Decimal128Type>().iter().map(whole).collect::<Int64Array>(),
            )
        }
        (DataType::Decimal128(_, _), Some(DataType::Utf8)) => {
            let digits = |value: Option<i128>| value.map(|value| value.to_string());
            Arc::new(
                array.as_primitive::<Decimal128Type>().iter().map(digits).collect::<StringArray>(),
            )
        }
        (&DataType::Decimal128(_, scale), Some(_)) => {
            // The digits are parsed, so that the double is the nearest.
            let nearest = |value: Option<i128>| {
                value.and_then(|value| format!("{value}e{}", -i32::from(scale)).parse().ok())
            };
            Arc::new(
                array
                    .as_primitive::<Decimal128Type>()
                    .iter()
                    .map(nearest)
                    .collect::<Float64Array>(),
            )
        }
        (DataType::Date32, _) => days(array.as_primitive::<Date32Type>(), 1.0),
        (DataType::Date64, _) => days(array.as_primitive::<Date64Type>(), DAY_MS),
        (DataType::Timestamp(TimeUnit::Second, _), _) => {
            days(array.as_primitive::<TimestampSecondType>(), DAY_MS / 1e3)
        }
        (DataType::Timestamp(TimeUnit::Millisecond, _), _) => {
            days(array.as_primitive::<TimestampMillisecondType>(), DAY_MS)
        }
        (DataType::Timestamp(TimeUnit::Microsecond, _), _) => {
            days(array.as_primitive::<TimestampMicrosecondType>(), DAY_MS * 1e3)
        }
        (DataType::Timestamp(TimeUnit::Nanosecond, _), _) => {
            days(array.as_primitive::<TimestampNanosecondType>(), DAY_MS * 1e6)
        }
        _ => array.clone(),
    }
}

/// Converts times to days of `units` units of `array` each.
fn days<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, units: f64) -> ArrayRef
where
    T::Native: Into<i128>,
{
    let day = |value: T::Native| value.into() as f64 / units;
    Arc::new(array.iter().map(|value| value.map(day)).collect::<Float64Array>())
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        Date32Array, Decimal128Array, FixedSizeBinaryArray, TimestampMicrosecondArray,
    };

    use super::*;

    #[test]
    fn types_become_plain_ones() {
        let decimals = |values: Vec<Option<i128>>, digits, scale| -> ArrayRef {
            Arc::new(Decimal128Array::from(values).with_precision_and_scale(digits, scale).unwrap())
        };
        let binary: ArrayRef = Arc::new(
            FixedSizeBinaryArray::try_from_iter([vec![0u8, 255], vec![16, 1]].into_iter()).unwrap(),
        );
        let strings =
            |values: &[Option<&str>]| -> ArrayRef { Arc::new(StringArray::from(values.to_vec())) };
        assert_eq!(&plain(&binary), &strings(&[Some("00ff"), Some("1001")]));
        let whole: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None, Some(-1)]));
        assert_eq!(&plain(&decimals(vec![Some(7), None, Some(-1)], 18, 0)), &whole);
        let long = 8_237_827_382_738_273_827_382;
        assert_eq!(
            &plain(&decimals(vec![Some(long)], 38, 0)),
            &strings(&[Some("8237827382738273827382")])
        );
        let fractions: ArrayRef = Arc::new(Float64Array::from(vec![1.25, -0.1]));
        assert_eq!(&plain(&decimals(vec![Some(125), Some(-10)], 10, 2)), &fractions);
        let dates: ArrayRef = Arc::new(Date32Array::from(vec![Some(18_292), None]));
        assert_eq!(
            &plain(&dates),
            &(Arc::new(Float64Array::from(vec![Some(18_292.0), None])) as ArrayRef)
        );
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![129_600_000_000]));
        assert_eq!(&plain(&times), &(Arc::new(Float64Array::from(vec![1.5])) as ArrayRef));
    }
}
