//! Numbers in lines.

use gsplit_store::FeatureDtype;
use half::{bf16, f16};

/// An unsigned decimal number, `None` for anything else.
pub fn unsigned(field: &[u8]) -> Option<u64> {
    let digit = |byte: u8| Some(byte.wrapping_sub(b'0')).filter(|&digit| digit < 10);
    let add =
        |number: u64, &byte: &u8| number.checked_mul(10)?.checked_add(u64::from(digit(byte)?));
    if field.is_empty() { None } else { field.iter().try_fold(0, add) }
}

/// The unsigned decimal number at the start of `text`, and where it ends. Eight digits at a time,
/// so 8 bytes must follow its start, and it has at most 16 digits; `None` for anything else, which
/// [`unsigned`] may still understand.
pub fn leading_unsigned(text: &[u8]) -> Option<(u64, usize)> {
    let (first, digits) = up_to_eight(text)?;
    if digits < 8 {
        return Some((first, digits));
    }
    // Eight digits, and perhaps more.
    match up_to_eight(&text[8..]) {
        None => text.get(8).filter(|byte| !byte.is_ascii_digit()).map(|_| (first, 8)),
        Some((_, 8)) => None,
        Some((second, digits)) => Some((first * 10u64.pow(digits as u32) + second, 8 + digits)),
    }
}

/// The number that the first digits of `text` make, at least one and at most eight, and how many
/// they are.
fn up_to_eight(text: &[u8]) -> Option<(u64, usize)> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let bytes = u64::from_le_bytes(*text.first_chunk()?) ^ (ONES * u64::from(b'0'));
    // The high bit of every byte that is not a digit; carries reach only bytes behind the first of
    // them.
    let others = (bytes.wrapping_add(ONES * 0x76) | bytes) & (ONES * 0x80);
    let digits = (others.trailing_zeros() / 8) as usize;
    if digits == 0 {
        return None;
    }
    // Moves leading zeros in front, then combines pairs, fours and eights of digits to numbers.
    let bytes = bytes << (64 - 8 * digits);
    let pairs = bytes.wrapping_mul(10).wrapping_add(bytes >> 8);
    let even = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let odd = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    Some((even.wrapping_add(odd) >> 32, digits))
}

/// Whether a number has zeros before it that it would lose.
pub fn is_padded(field: &[u8]) -> bool {
    matches!(field, [b'0', digit, ..] if digit.is_ascii_digit())
}

/// A number with a fraction, infinite and NaN included, `None` for anything else.
pub fn real<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Like [`real`], and faster for numbers of few digits: both steps of their division are exact.
pub fn double(field: &[u8]) -> Option<f64> {
    short_double(field).or_else(|| real(field))
}

fn short_double(field: &[u8]) -> Option<f64> {
    const POWERS: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    let (mut number, mut point) = (0u64, None);
    if !(1..=POWERS.len()).contains(&digits.len()) {
        return None;
    }
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => number = number * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() && digits.len() > 1 => point = Some(at),
            _ => return None,
        }
    }
    let fraction = point.map_or(0, |at| digits.len() - 1 - at);
    let double = number as f64 / POWERS[fraction];
    let double = if digits.len() < field.len() { -double } else { double };
    (number < 1 << f64::MANTISSA_DIGITS).then_some(double)
}

/// The field as an error shows it: short, quoted, no control characters.
pub fn shown(field: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text = String::from_utf8_lossy(&field[..field.len().min(SHOWN)]).escape_debug().to_string();
    if field.len() > SHOWN { format!("`{text}...`") } else { format!("`{text}`") }
}

/// `count` of `things`, whose plural ends in s.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A class at or above this and the number of vertices is a mistake: the model would get an output
/// for each class below.
const PLAUSIBLE_CLASSES: usize = 1_000_000;

/// Converts a number to a class; -1 and NaN are unlabelled. Fails for other numbers.
pub fn class(number: f64, num_vertices: usize) -> Result<i32, String> {
    if number.is_nan() {
        return Ok(-1);
    }
    let class = number as i32;
    if f64::from(class) != number || !(-1..i32::MAX).contains(&class) {
        let kind = if number.fract() == 0.0 {
            ""
        } else {
            "; pass --schema label-kind=number for a number to learn"
        };
        return Err(format!(
            "label {number}: expected a class number from 0, or NaN or nothing for unlabelled{kind}"
        ));
    }
    let limit = num_vertices.max(PLAUSIBLE_CLASSES);
    match usize::try_from(class) {
        Ok(class) if class >= limit => Err(format!(
            "label {number}: expected a class number below {limit}, for every class up to the \
             largest counts"
        )),
        _ => Ok(class),
    }
}

/// Fails unless `value` is finite, also after conversion to `dtype`.
pub fn check_feature(value: f32, dtype: FeatureDtype) -> Result<(), String> {
    let fits = match dtype {
        FeatureDtype::F32 | FeatureDtype::I8 => true,
        FeatureDtype::F16 => f16::from_f32(value).is_finite(),
        FeatureDtype::Bf16 => bf16::from_f32(value).is_finite(),
    };
    match (value.is_finite(), fits) {
        (false, _) if value.is_nan() => Err(format!(
            "feature {value}: expected a finite 32-bit number: pass --schema fill=NUMBER or \
             --schema fill=mean for missing values"
        )),
        (false, _) => Err(format!("feature {value}: expected a finite 32-bit number")),
        (true, false) => Err(format!(
            "feature {value} is too large for {dtype}: pass --feature-dtype f32 or bf16"
        )),
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
        for text in
            ["", "-1", "+1", "1.0", "x", "18446744073709551616", " 1", "99999999999999999999999"]
        {
            assert_eq!(unsigned(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn differential_doubles() {
        let mut texts: Vec<String> =
            ["", "-", ".", "-.", "1.", ".5", "-0", "1..2", "1e5", "+1", "007.50", "inf", "1-2"]
                .map(String::from)
                .to_vec();
        let mut state = 1u64;
        texts.extend((0..20_000).map(|at| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at);
            let (number, places) = (state >> (state & 31), (state >> 32) as usize % 18);
            format!("{}{:.places$}", ["", "-"][at as usize & 1], number as f64 / 1e9)
        }));
        for text in texts {
            let found = double(text.as_bytes()).map(f64::to_bits);
            assert_eq!(found, real::<f64>(text.as_bytes()).map(f64::to_bits), "{text}");
        }
    }

    #[test]
    fn differential_leading_numbers() {
        for text in [
            "0\t",
            "7 8",
            "12345678,",
            "123456789\n",
            "1234567812345678",
            "12345678123456789",
            "x1",
            "",
            "00012 ",
        ] {
            let text = text.to_string();
            let padded = format!("{text}{}", " ".repeat(16));
            let digits = padded.bytes().take_while(u8::is_ascii_digit).count();
            let expected = (1..16)
                .contains(&digits)
                .then(|| (unsigned(&padded.as_bytes()[..digits]).unwrap(), digits));
            assert_eq!(leading_unsigned(padded.as_bytes()), expected, "{text}");
        }
        for digits in 1..16 {
            for number in [
                10u64.pow(digits) - 1,
                10u64.pow(digits - 1),
                123_456_789_012_345 % 10u64.pow(digits),
            ] {
                let text = format!("{number}\t{number}\nmore");
                assert_eq!(
                    leading_unsigned(text.as_bytes()),
                    Some((number, number.to_string().len()))
                );
            }
        }
        assert_eq!(leading_unsigned(b"1234567"), None); // too short to load eight bytes
    }

    #[test]
    fn labels() {
        for (number, expected) in [(3.0, 3), (0.0, 0), (f64::NAN, -1), (-1.0, -1)] {
            assert_eq!(class(number, 5), Ok(expected), "{number}");
        }
        for number in [0.5, -2.0, f64::INFINITY, 2_147_483_647.0, 1e10] {
            assert!(class(number, 5).unwrap_err().contains(&format!("label {number}")), "{number}");
        }
        assert_eq!(class(999_999.0, 5), Ok(999_999));
        assert_eq!(class(2_000_000.0, 2_000_001), Ok(2_000_000));
        for (number, num_vertices) in [(1e6, 5), (2e9, 5), (2e6, 2_000_000)] {
            assert!(class(number, num_vertices).unwrap_err().contains("class number below"));
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
