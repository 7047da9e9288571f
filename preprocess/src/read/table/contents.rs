//! Facts about the cells of a column of text: their kinds, how many are numbers, and the strings
//! among them. Facts about parts of a column are merged, so that threads share the rows.

use std::borrow::Cow;

use crate::read::text::field::shown;
use crate::read::text::value::{CellKind, CellKinds};

/// Different strings of a column that are kept.
const MOST_STRAYS: usize = 16;

/// A line: the place of its file among the parts, and its number there.
pub type Line = (usize, u64);

/// A cell of a column, and its line.
pub type Value<'a> = (Line, Cow<'a, [u8]>);

/// Facts about the cells of a column.
#[derive(Clone, Debug, Default)]
pub struct ColumnCells {
    /// Kinds of the cells.
    pub kinds: CellKinds,
    /// Whether one is another number by its style.
    pub is_restyled: bool,
    /// Number of numbers.
    pub numbers: u64,
    /// Number of numbers with a fraction.
    pub fractions: u64,
    /// First of them, with its line.
    pub fraction: Option<(Line, String)>,
    /// Number of strings.
    pub strings: u64,
    /// The first of them, with their lines.
    pub strays: Vec<Value<'static>>,
}

impl ColumnCells {
    /// Adds `cell`; `plain` is the cell in plain notation.
    pub fn add(&mut self, line: Line, cell: &[u8], plain: Result<Cow<'_, [u8]>, String>) {
        self.is_restyled |= plain.as_ref().is_ok_and(|plain| !plain.is_empty() && **plain != *cell);
        // A number in another style counts as a fraction. Reading the column refuses it.
        let kind = self.kinds.add(plain.as_deref().unwrap_or(b"0.5"));
        self.numbers += u64::from(kind.value().is_some());
        if kind == CellKind::Float {
            self.fractions += 1;
            self.fraction.get_or_insert_with(|| (line, shown(cell)));
        }
        if kind == CellKind::Text {
            self.strings += 1;
            self.add_stray(line, Cow::Borrowed(cell));
        }
    }

    /// Adds the cells of `other`, which are below these.
    pub fn merge(&mut self, other: Self) {
        self.kinds.merge(other.kinds);
        self.is_restyled |= other.is_restyled;
        self.numbers += other.numbers;
        self.fractions += other.fractions;
        self.strings += other.strings;
        self.fraction = self.fraction.take().or(other.fraction);
        other.strays.into_iter().for_each(|(line, cell)| self.add_stray(line, cell));
    }

    fn add_stray(&mut self, line: Line, cell: Cow<'_, [u8]>) {
        let is_known = || self.strays.iter().any(|(_, known)| *known == cell);
        if self.strays.len() < MOST_STRAYS && !is_known() {
            self.strays.push((line, Cow::Owned(cell.into_owned())));
        }
    }
}
