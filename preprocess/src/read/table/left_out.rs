//! Columns that are not used as features though they could be: identifiers, codes, and columns that
//! give the label away.

use super::choice::{self, Field};
use super::ends::{has, words};
use super::roles::{LABEL_NAMES, is_text};
use super::statistics::ColumnStatistics;

/// Last words of the names of identifiers.
const IDENTIFIERS: &str = "id ids no nr number key uuid guid hash zip zipcode postcode postal plz phone telephone \
    iban ssn account";
/// Words of the names of times, whose values may all be distinct.
pub const TIMES: &str = "time date timestamp day year age";
/// Most different values of a column whose name is an identifier's that make it a number or a
/// category all the same.
const FEW_IDENTIFIERS: f64 = 20.0;
/// Number of values from which on it is significant that all are distinct.
const MANY: u64 = 50;
/// Number of digits that identifiers have, if all values are distinct and equally long.
const IDENTIFIER_DIGITS: u32 = 7;

/// The reason why a column that was `seen` is not a feature, if there is one, as a clause.
pub fn why_left_out(field: &Field, seen: &ColumnStatistics, labels: &[&str]) -> Option<String> {
    let plain = choice::plain(&field.name);
    let of_label = |label: &&str| {
        let label = choice::plain(label);
        LABEL_NAMES.contains(&label.as_str()) && label.len() > 1 && plain.starts_with(&label)
    };
    if labels.iter().any(of_label) {
        return Some("its name begins as that of the label".into());
    }
    let words = words(&field.name);
    let is_named = words.last().is_some_and(|word| has(IDENTIFIERS, word));
    if is_text(field) {
        return match (seen.many, 2 * seen.keys.len() as u64 > seen.values) {
            (true, _) | (_, true) => Some("hardly any of its strings occurs twice".into()),
            _ if is_named && seen.keys.len() as f64 > FEW_IDENTIFIERS => {
                Some("its name looks like an identifier".into())
            }
            _ => None,
        };
    }
    let distinct = seen.distinct();
    if seen.is_fractional || distinct <= FEW_IDENTIFIERS || seen.values < MANY {
        return None;
    }
    if is_named {
        return Some("its name looks like an identifier".into());
    }
    if seen.is_padded {
        return Some("its numbers have leading zeros, as codes do".into());
    }
    let all_distinct = distinct >= 0.94 * seen.values as f64;
    let is_time = words.iter().any(|word| has(TIMES, word));
    let (least, most) = (seen.numbers.least, seen.numbers.most);
    let counts = most - least + 1.0 <= 1.06 * seen.values as f64;
    let digits = |number: f64| number.abs().max(1.0).log10() as u32 + 1;
    let long = least > 0.0 && digits(least) == digits(most) && digits(most) >= IDENTIFIER_DIGITS;
    match all_distinct && !is_time {
        true if counts => Some("it counts the rows".into()),
        true if long => Some("its numbers are long and all distinct".into()),
        _ => None,
    }
}
