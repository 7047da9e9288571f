//! Text tables: their delimiter, their header if they have one, and what their columns hold, by the first rows.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::choice::{Field, IdKind};
use super::header::{self, Header};
use crate::edges::{Piece, ValueType};
use crate::read::options::{Answer, TextOptions};
use crate::read::text::field::shown;
use crate::read::text::line::Delimiter;
use crate::read::text::sketch::{Fields, Sketch, is_comment};
use crate::read::text::style::{DateOrder, Decimal, Style, styles};
use crate::read::text::value::{CellKind, widened};
use crate::read::text::{TextStream, lines, name_of};
use crate::{Error, Result};

/// The parts of a text table, and what they have in common.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The parts.
    pub files: Vec<PathBuf>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Between fields.
    pub delimiter: Delimiter,
    /// The line of every part that names the columns. `None`: each line that is no comment is a row.
    pub header: Option<Header>,
    /// Style of the cells of every column.
    styles: Vec<Style>,
    /// Name and content of every column.
    pub columns: Vec<(String, CellKind)>,
    /// Rows that were looked at.
    sample: usize,
    /// Number of rows, about.
    pub num_rows: u64,
}

impl Sheet {
    /// Reads the header and the first rows of the table whose parts are `files`. Columns without names are called 1, 2, 3 ...
    pub fn open(path: &Path, files: &[PathBuf], options: TextOptions) -> Result<Self> {
        let bytes = super::total_bytes(files)?;
        let mut found: Option<Self> = None;
        for file in files {
            let (mut stream, mut piece) = (TextStream::open(file)?, Piece::default());
            if !stream.next(&mut piece)? {
                continue;
            }
            let given = found.as_ref().map_or(options.delimiter, |sheet| Some(sheet.delimiter));
            let sketch = match Sketch::of(&piece.bytes, given) {
                // A mark that is given for the edges need not be that of the vertices.
                sketch if options.must_have_header && sketch.lengths()[1] < 2 => Sketch::of(&piece.bytes, None),
                sketch => sketch,
            };
            let sheet = match &mut found {
                Some(sheet) => sheet,
                None => found.insert(Self::of_sketch(file, &sketch, options, (files, bytes))?),
            };
            let first_row = sheet.first_row();
            if sheet.sample == 0 {
                sheet.styles = sheet.styles_of(&sketch, options).map_err(|question| Error::input(file, question))?;
            }
            for (number, row) in sketch.rows.iter().filter(|(number, _)| *number >= first_row) {
                sheet.look_at(row).map_err(|problem| Error::line(file, *number, problem))?;
            }
            if let Some((number, problem)) = sketch.problem {
                return Err(Error::line(file, number, problem));
            }
            if sheet.sample > 0 {
                // As many in a byte of the file as in the first piece.
                let rows = memchr::memchr_iter(b'\n', &piece.bytes).count() as u128 * u128::from(bytes);
                sheet.num_rows = (rows / u128::from(stream.bytes_done().max(1))) as u64;
                break;
            }
        }
        found.ok_or_else(|| Error::input(path, "empty: expected a header line with the names of the columns"))
    }

    fn of_sketch(
        file: &Path,
        sketch: &Sketch<'_>,
        options: TextOptions,
        (files, bytes): (&[PathBuf], u64),
    ) -> Result<Self> {
        let delimiter = sketch.delimiter;
        let header = match header::find(sketch, options.header) {
            // The user can be asked about edges alone.
            Err(_) if options.must_have_header => header::find(sketch, Some(Answer::Yes)),
            found => found,
        };
        let header = header.map_err(|question| Error::input(file, question))?;
        if header.is_none() && options.must_have_header {
            let line = sketch.rows.first().map_or(1, |(line, _)| *line);
            return Err(Error::line(file, line, "expected a header line with the names of the columns, found numbers"));
        }
        let names = match &header {
            Some(Header { line, text, .. }) => {
                header::names_in(text, delimiter).map_err(|problem| Error::line(file, *line, problem))?
            }
            None => {
                let count = sketch.rows.first().map_or(0, |(_, row)| row.len());
                (1..=count).map(|column| column.to_string()).collect()
            }
        };
        let columns = names.into_iter().map(|name| (name, CellKind::Empty)).collect();
        Ok(Self {
            files: files.to_vec(),
            bytes,
            delimiter,
            header,
            styles: Vec::new(),
            columns,
            sample: 0,
            num_rows: 0,
        })
    }

    fn look_at(&mut self, row: &Fields<'_>) -> Result<(), String> {
        self.check_count(row.len())?;
        for (((_, kind), cell), style) in self.columns.iter_mut().zip(row).zip(&self.styles) {
            *kind = widened(*kind, &style.plain(cell.trim_ascii()));
        }
        self.sample += 1;
        Ok(())
    }

    /// Number of the first line that may be a row.
    fn first_row(&self) -> u64 {
        self.header.as_ref().map_or(1, |header| header.line + 1)
    }

    /// The style of every column by the rows of `sketch`.
    fn styles_of(&self, sketch: &Sketch<'_>, options: TextOptions) -> Result<Vec<Style>, String> {
        let rows = || sketch.rows.iter().filter(|(number, _)| *number >= self.first_row()).map(|(_, row)| row);
        let columns: Vec<(&str, Vec<&[u8]>)> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, (name, _))| {
                (name.as_str(), rows().filter_map(|row| row.get(at)).map(|cell| cell.trim_ascii()).collect())
            })
            .collect();
        styles(&columns, options.decimal, options.date_order)
    }

    /// The line of row `row`, from 0, as messages name it: found by reading the lines once more.
    pub fn place(&self, row: u64) -> String {
        let (mut left, mut piece) = (row, Piece::default());
        for file in &self.files {
            let Ok(mut stream) = TextStream::open(file) else { break };
            while stream.next(&mut piece).is_ok_and(|more| more) {
                for (number, line) in lines(&piece) {
                    if !matches!(self.row(number, line), Ok(Some(_))) {
                        continue;
                    }
                    if left == 0 {
                        let of = if self.files.len() > 1 { format!("{}, ", name_of(file)) } else { String::new() };
                        return format!("{of}line {number}");
                    }
                    left -= 1;
                }
            }
        }
        format!("row {row}")
    }

    /// The cell of column `at` as a program would write it, without blanks around it.
    pub fn cell<'c>(&self, at: usize, cell: &'c [u8]) -> Cow<'c, [u8]> {
        match self.styles.get(at) {
            None | Some(Style::Plain) => Cow::Borrowed(cell.trim_ascii()),
            Some(style) => style.plain(cell.trim_ascii()),
        }
    }

    /// Whether the numbers of column `at` have commas before their fractions.
    pub fn has_decimal_commas(&self, at: usize) -> bool {
        self.styles.get(at) == Some(&Style::Marks(Decimal::Comma))
    }

    /// Names of the columns of dates, with the order of their days and months where it is not ISO 8601.
    pub fn dates(&self) -> Vec<String> {
        let said = |((name, _), style): (&(String, CellKind), &Style)| match style {
            Style::Date(DateOrder::YearMonthDay) => Some(name.clone()),
            Style::Date(DateOrder::DayMonthYear) => Some(format!("{name} (day before month)")),
            Style::Date(DateOrder::MonthDayYear) => Some(format!("{name} (month before day)")),
            _ => None,
        };
        self.columns.iter().zip(&self.styles).filter_map(said).collect()
    }

    /// Order of day and month in the first column of dates that are not of ISO 8601.
    pub fn date_order(&self) -> Option<DateOrder> {
        self.styles.iter().find_map(|style| match *style {
            Style::Date(order) if order != DateOrder::YearMonthDay => Some(order),
            _ => None,
        })
    }

    /// Says that a row has another number of fields than the header.
    pub fn check_count(&self, found: usize) -> Result<(), String> {
        let expected = self.columns.len();
        match found == expected {
            true => Ok(()),
            false => {
                let as_in = if self.header.is_some() { "the header" } else { "the first line" };
                Err(format!("{found} fields: expected {expected}, as in {as_in}"))
            }
        }
    }

    /// The fields that the columns make for edges.
    pub fn fields(&self) -> Vec<Field> {
        let field = |((name, kind), style): (&(String, CellKind), &Style)| {
            let id = match kind {
                _ if matches!(style, Style::Date(_)) => None,
                CellKind::Integer | CellKind::Whole => Some(IdKind::Number),
                CellKind::Text | CellKind::Flag | CellKind::Long => Some(IdKind::Text),
                CellKind::Empty | CellKind::Missing | CellKind::Float => None,
            };
            Field {
                name: name.clone(),
                id,
                value: match style {
                    Style::Date(_) => Some((ValueType::F64, 1)),
                    _ => kind.value().map(|value| (value, 1)),
                },
                list: false,
                is_fractional: *kind == CellKind::Whole,
            }
        };
        let mut fields: Vec<Field> = self.columns.iter().zip(&self.styles).map(field).collect();
        if self.sample == 0 {
            // A table without rows: any column may be what its name says.
            fields.iter_mut().for_each(|field| field.id = Some(IdKind::Number));
        }
        fields
    }

    /// The row that line `number` of a part is; `None` for a header, a comment or nothing. Says what is wrong with a header.
    pub fn row<'l>(&self, number: u64, line: &'l [u8]) -> Result<Option<&'l [u8]>, String> {
        let text = line.trim_ascii();
        match &self.header {
            _ if text.is_empty() => Ok(None),
            Some(header) if number < header.line && is_comment(text) => Ok(None),
            Some(header) if number <= header.line => match text == header.text.trim_ascii() {
                true => Ok(None),
                false => Err(format!(
                    "expected the header of the first part, {}, found {}",
                    shown(&header.text),
                    shown(line)
                )),
            },
            None if is_comment(text) => Ok(None),
            _ => Ok(Some(line)),
        }
    }
}
