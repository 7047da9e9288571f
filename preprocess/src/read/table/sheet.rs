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

/// Reading of a column of dates.
pub const DATES: &str = "dates, read as days since 1970-01-01";

/// Cells of a column among the first rows.
#[derive(Clone, Debug, Default)]
struct ColumnSample {
    /// Whether one is another number by its style.
    is_restyled: bool,
    /// Number of numbers.
    numbers: u64,
    /// Number of those with a fraction.
    fractions: u64,
    /// First of them, with its line.
    fraction: Option<(u64, String)>,
    /// Number of strings.
    strings: u64,
    /// First of them, with its line.
    stray: Option<(u64, String)>,
}

impl ColumnSample {
    fn look_at(&mut self, line: u64, cell: &[u8], is_restyled: bool) {
        self.is_restyled |= is_restyled;
        let kind = widened(CellKind::Empty, cell);
        self.numbers += u64::from(kind.value().is_some());
        let place = || Some((line, shown(cell)));
        if kind == CellKind::Float {
            self.fractions += 1;
            self.fraction = self.fraction.take().or_else(place);
        } else if kind == CellKind::Text {
            self.strings += 1;
            self.stray = self.stray.take().or_else(place);
        }
    }
}

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
    /// Contents of every column in the first rows.
    samples: Vec<ColumnSample>,
    /// The part that they are of.
    sampled: PathBuf,
    /// Type of ids, where the user says it.
    pub id_type: Option<IdKind>,
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
                sheet.sampled.clone_from(file);
                sheet.styles = sheet.styles_of(&sketch, options).map_err(|question| Error::input(file, question))?;
            }
            // Behind a line that cannot be cut lies what belongs to it.
            let end = sketch.problem.as_ref().map_or(u64::MAX, |(number, _)| *number);
            for (number, row) in sketch.rows.iter().filter(|(number, _)| (first_row..end).contains(number)) {
                sheet.look_at(*number, row).map_err(|problem| Error::line(file, *number, problem))?;
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
        let columns: Vec<_> = names.into_iter().map(|name| (name, CellKind::Empty)).collect();
        Ok(Self {
            files: files.to_vec(),
            bytes,
            delimiter,
            header,
            styles: Vec::new(),
            samples: vec![ColumnSample::default(); columns.len()],
            sampled: file.to_path_buf(),
            id_type: options.id_type,
            columns,
            sample: 0,
            num_rows: 0,
        })
    }

    /// Looks at a row, which is line `number`.
    fn look_at(&mut self, number: u64, row: &Fields<'_>) -> Result<(), String> {
        self.check_count(row.len())?;
        for (at, (((_, kind), cell), style)) in self.columns.iter_mut().zip(row).zip(&self.styles).enumerate() {
            let cell = cell.trim_ascii();
            // A number in another style counts as a fraction. Whoever reads the column refuses it.
            let plain = style.plain(cell);
            let is_restyled = plain.as_ref().is_ok_and(|plain| **plain != *cell);
            let plain = plain.unwrap_or(Cow::Borrowed(b"0.5"));
            self.samples[at].look_at(number, &plain, is_restyled);
            *kind = widened(*kind, &plain);
        }
        self.sample += 1;
        Ok(())
    }

    /// Whether column `at` has nothing in the first rows.
    pub fn is_blank(&self, at: usize) -> bool {
        self.sample > 0 && matches!(self.columns[at].1, CellKind::Empty | CellKind::Missing)
    }

    /// Refuses a string in column `at`, whose first rows hold numbers for the most part.
    pub fn check_stray(&self, at: usize) -> Result<()> {
        let (sample, name) = (&self.samples[at], &self.columns[at].0);
        match &sample.stray {
            Some((line, cell)) if sample.numbers > sample.strings => {
                let problem = format!(
                    "column `{name}` holds numbers for the most part, and {cell}: mend it, or name the columns to keep with \
                     --edge-columns, or none"
                );
                Err(Error::line(&self.sampled, *line, problem))
            }
            _ => Ok(()),
        }
    }

    /// The first fraction in a column whose first rows hold whole numbers for the most part, for a question about ids.
    pub fn fraction(&self) -> Option<String> {
        let columns = self.columns.iter().zip(&self.samples);
        let mut mixed = columns.filter(|(_, sample)| 2 * sample.fractions <= sample.numbers);
        mixed.find_map(|((name, _), sample)| {
            let (line, cell) = sample.fraction.as_ref()?;
            Some(format!("; `{name}` has {cell} in line {line}"))
        })
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

    /// The cell of column `at` as a program would write it, without blanks around it. Says where its style is another.
    pub fn cell<'c>(&self, at: usize, cell: &'c [u8]) -> Result<Cow<'c, [u8]>, String> {
        self.styles.get(at).copied().unwrap_or_default().plain(cell.trim_ascii())
    }

    /// How the cells of columns are read that are no plain numbers, and the names of these columns.
    pub fn readings(&self) -> Vec<(&'static str, Vec<String>)> {
        let reading = |style: &Style| match style {
            Style::Plain => None,
            Style::Marks(Decimal::Point) => Some("commas between thousands (else pass --decimal comma)"),
            Style::Marks(Decimal::Comma) => {
                Some("commas before fractions, points between thousands (else pass --decimal point)")
            }
            Style::Percent => Some("percents, read as hundredths"),
            Style::Date(_) => Some(DATES),
        };
        let mut found: Vec<(&'static str, Vec<String>)> = Vec::new();
        for (((name, _), style), _) in
            self.columns.iter().zip(&self.styles).zip(&self.samples).filter(|(_, sample)| sample.is_restyled)
        {
            let Some(reading) = reading(style) else { continue };
            let name = match style {
                Style::Date(DateOrder::DayMonthYear) => format!("{name} (day before month)"),
                Style::Date(DateOrder::MonthDayYear) => format!("{name} (month before day)"),
                _ => name.clone(),
            };
            match found.iter_mut().find(|(known, _)| *known == reading) {
                Some((_, names)) => names.push(name),
                None => found.push((reading, vec![name])),
            }
        }
        found
    }

    /// Whether the numbers of column `at` have commas before their fractions.
    pub fn has_decimal_commas(&self, at: usize) -> bool {
        let is_restyled = self.samples.get(at).is_some_and(|sample| sample.is_restyled);
        is_restyled && self.styles.get(at) == Some(&Style::Marks(Decimal::Comma))
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
                let fields = if found == 1 { "field" } else { "fields" };
                Err(format!("{found} {fields}: expected {expected}, as in {as_in}"))
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
