//! Words and numbers that mean a missing value, in addition to the built-in ones.

use super::field::real;

/// Words and numbers that are missing values in one column of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MissingValues {
    words: Vec<String>,
    /// The words that are numbers: they match the number however a cell writes it.
    numbers: Vec<f64>,
}

impl MissingValues {
    /// The words of `--schema na` that are for the column `name` of a table of `columns`: `WORD`, or
    /// `COLUMN=WORD` for one column.
    pub fn of(words: &[String], name: &str, columns: &[&str]) -> Self {
        let of_column = |word: &String| match word.split_once('=') {
            Some((column, word)) if column == name => Some(word.to_string()),
            Some((column, _)) if columns.contains(&column) => None,
            _ => Some(word.clone()),
        };
        let words: Vec<String> = words.iter().filter_map(of_column).collect();
        let numbers = words.iter().filter_map(|word| real(word.as_bytes())).collect();
        Self { words, numbers }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether `cell`, without blanks around it, is one of them.
    pub fn has(&self, cell: &[u8]) -> bool {
        self.words.iter().any(|word| word.as_bytes() == cell)
            || (!self.numbers.is_empty()
                && real(cell).is_some_and(|number| self.has_number(number)))
    }

    /// Whether `number` is one of them.
    pub fn has_number(&self, number: f64) -> bool {
        self.numbers.contains(&number)
    }
}

/// The option that takes `words` for missing values, quoted for a shell.
pub fn remedy<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words = words.collect::<Vec<_>>().join(",");
    let is_plain =
        words.bytes().all(|byte| byte.is_ascii_alphanumeric() || b",._-+=/".contains(&byte));
    match is_plain {
        true => format!("--schema na={words}"),
        false => format!("--schema na='{}'", words.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers_are_missing_in_all_columns_or_in_one() {
        let words: Vec<String> = ["#N/A", "-", "income=-9999", "a=b"].map(String::from).to_vec();
        let of = |name| MissingValues::of(&words, name, &["income", "age"]);
        for (column, cell, expected) in [
            ("income", "#N/A", true),
            ("age", "-", true),
            ("income", "-9999", true),
            ("income", "-9999.0", true),
            ("age", "-9999", false),
            ("age", "a=b", true),
            ("age", "", false),
            ("income", "#n/a", false),
        ] {
            assert_eq!(of(column).has(cell.as_bytes()), expected, "{column}: {cell}");
        }
        assert!(of("income").has_number(-9999.0) && !of("age").has_number(-9999.0));
        assert!(MissingValues::of(&[], "age", &[]).is_empty());
        assert_eq!(remedy(["#N/A", "it's"].into_iter()), r"--schema na='#N/A,it'\''s'");
        assert_eq!(remedy(["income=-9999"].into_iter()), "--schema na=income=-9999");
    }
}
