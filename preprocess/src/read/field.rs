//! Numbers in lines.

use gsplit_store::FeatureDtype;
use half::{bf16, f16};

/// An unsigned decimal number, `None` for anything else.
pub fn unsigned(field: &[u8]) -> Option<u64> {
    let digit = |byte: u8| Some(byte.wrapping_sub(b'0')).filter(|&digit| digit < 10);
    let add = |number: u64, &byte: &u8| number.checked_mul(10)?.checked_add(u64::from(digit(byte)?));
    if field.is_empty() { None } else { field.iter().try_fold(0, add) }
}

/// A number with a fraction, infinite and NaN included, `None` for anything else.
pub fn real<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The field as an error shows it: short, quoted, no control characters.
pub fn shown(field: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text = String::from_utf8_lossy(&field[..field.len().min(SHOWN)]).escape_debug().to_string();
    if field.len() > SHOWN { format!("`{text}...`") } else { format!("`{text}`") }
}

/// A class at or above this and the number of vertices is a mistake: the model would get an output for each class below.
const PLAUSIBLE_CLASSES: usize = 1_000_000;

/// The class that a label stands for: -1, NaN and nothing (also quoted) mean unlabelled. Says what is wrong otherwise.
pub fn label(field: &[u8], num_vertices: usize) -> Result<i32, String> {
    let field = field.trim_ascii();
    let field = field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field);
    if field.is_empty() {
        return Ok(-1);
    }
    let number = real(field).ok_or_else(|| not_a_class(&shown(field)))?;
    class(number, &shown(field), num_vertices)
}

/// The class that a number stands for, NaN for unlabelled. Says what is wrong otherwise of the label as it was `found`.
pub fn class(number: f64, found: &str, num_vertices: usize) -> Result<i32, String> {
    if number.is_nan() {
        return Ok(-1);
    }
    let class = number as i32;
    if f64::from(class) != number || !(-1..i32::MAX).contains(&class) {
        return Err(not_a_class(found));
    }
    let limit = num_vertices.max(PLAUSIBLE_CLASSES);
    match usize::try_from(class) {
        Ok(class) if class >= limit => Err(format!(
            "label {found}: expected a class number below {limit}, for every class up to the largest counts"
        )),
        _ => Ok(class),
    }
}

fn not_a_class(found: &str) -> String {
    format!("label {found}: expected a class number from 0, or NaN or nothing for unlabelled")
}

/// Whether `value` is finite and stays so when stored as `dtype`. Says what is wrong otherwise.
pub fn check_feature(value: f32, dtype: FeatureDtype) -> Result<(), String> {
    let fits = match dtype {
        FeatureDtype::F32 => true,
        FeatureDtype::F16 => f16::from_f32(value).is_finite(),
        FeatureDtype::Bf16 => bf16::from_f32(value).is_finite(),
    };
    match (value.is_finite(), fits) {
        (false, _) => Err(format!("feature {value}: expected a finite 32-bit number")),
        (true, false) => Err(format!("feature {value} is too large for {dtype}: pass --feature-dtype f32 or bf16")),
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_numbers() {
        for (text, number) in [("0", 0), ("007", 7), ("18446744073709551615", u64::MAX)] {
            assert_eq!(unsigned(text.as_bytes()), Some(number));
        }
        for text in ["", "-1", "+1", "1.0", "x", "18446744073709551616", " 1", "99999999999999999999999"] {
            assert_eq!(unsigned(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn labels() {
        for (text, class) in
            [("3", 3), ("3.0", 3), ("0", 0), ("", -1), ("nan", -1), ("NaN", -1), ("\"\"", -1), ("-1", -1)]
        {
            assert_eq!(label(text.as_bytes(), 5), Ok(class), "{text}");
        }
        for text in ["0.5", "-2", "cat", "inf", "2147483647", "1e10", "0x1"] {
            assert!(label(text.as_bytes(), 5).unwrap_err().contains(text), "{text}");
        }
        assert_eq!(label(b"999999", 5), Ok(999_999));
        assert_eq!(label(b"2000000", 2_000_001), Ok(2_000_000));
        for (text, num_vertices) in [("1000000", 5), ("2000000000", 5), ("2000000", 2_000_000)] {
            let problem = label(text.as_bytes(), num_vertices).unwrap_err();
            assert!(problem.contains(text) && problem.contains("class number below"), "{problem}");
        }
    }

    #[test]
    fn features_that_do_not_fit() {
        use FeatureDtype::*;
        for (value, dtype, fits) in [
            (65504.0, F16, true),
            (70000.0, F16, false),
            (70000.0, Bf16, true),
            (f32::MAX, Bf16, false),
            (f32::MAX, F32, true),
            (f32::NAN, F32, false),
            (f32::INFINITY, F16, false),
        ] {
            assert_eq!(check_feature(value, dtype).is_ok(), fits, "{value} as {dtype}");
        }
    }

    #[test]
    fn long_and_strange_fields_are_shown_short() {
        assert_eq!(shown(b"a\tb"), "`a\\tb`");
        assert_eq!(shown(&[b'9'; 100]), format!("`{}...`", "9".repeat(40)));
    }
}
