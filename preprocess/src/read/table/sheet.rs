//! Text tables: their delimiter, their header if they have one, and the styles and types of their
//! columns. They are in one file, because each is recognised by the others.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use super::choice::{Field, IdKind, check_names};
use super::contents::{ColumnCells, Value};
use super::header::{self, Header};
use super::parts;
use crate::edges::{Piece, ValueType};
use crate::read::options::{Answer, TextOptions};
use crate::read::text::field::shown;
use crate::read::text::line::{Delimiter, cells};
use crate::read::text::na::MissingValues;
use crate::read::text::sketch::{Fields, Sketch, is_comment};
use crate::read::text::style::{DateOrder, Decimal, Style, styles, unknown_time};
use crate::read::text::value::{CellKind, is_missing};
use crate::read::text::{BYTE_ORDER_MARK, TextStream, lines, name_of, read_pieces};
use crate::{Error, Result};

/// Reading of a column of dates.
pub const DATES: &str = "dates, read as days since 1970-01-01";

/// Numbers for each string from which on a column holds numbers, and the strings are strays.
const NUMBERS_PER_STRAY: u64 = 10;

/// The parts of a text table, and their common properties.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The parts.
    pub files: Vec<PathBuf>,
    /// Between fields.
    pub delimiter: Delimiter,
    /// The line of every part that names the columns. `None`: each line that is not a comment is a
    /// row.
    pub header: Option<Header>,
    /// The lines above it that are titles.
    titles: Vec<(u64, Vec<u8>)>,
    /// Style of the cells of every column.
    styles: Vec<Style>,
    /// Cells of every column that the user takes for missing.
    missing: Vec<MissingValues>,
    /// The cells of every column: of the first rows, or of all.
    cells: Vec<ColumnCells>,
    /// Whether these are all.
    pub is_scanned: bool,
    /// Type of ids, where the user says it.
    pub id_type: Option<IdKind>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Number of rows in the sample.
    sample: usize,
    /// Approximate number of rows.
    pub num_rows: u64,
}

/// The text of a cell that may be a name, without the byte order mark and the quotes of a joined
/// file.
fn as_name(cell: &[u8]) -> &[u8] {
    let cell = cell.trim_ascii();
    let cell = cell.strip_prefix(BYTE_ORDER_MARK).unwrap_or(cell);
    let cell = cell.strip_prefix(b"\"").unwrap_or(cell);
    cell.strip_suffix(b"\"").unwrap_or(cell)
}

impl Sheet {
    /// Reads the header and the first rows of the table whose parts are `files`. Columns without
    /// names are called 1, 2, 3 ...; `missing` are words for missing values.
    ///
    /// All cells decide the style and the type of a column if `options.scans`, or if some column
    /// has no value in the first rows; otherwise the first rows do.
    pub fn open(
        path: &Path,
        files: &[PathBuf],
        bytes: u64,
        options: TextOptions,
        missing: &[String],
        progress: &dyn Progress,
        decisions: &mut Vec<String>,
    ) -> Result<Self> {
        let mut found: Option<Self> = None;
        for (part, file) in files.iter().enumerate() {
            let (mut stream, mut piece) = (TextStream::open(file)?, Piece::default());
            if !stream.next(&mut piece)? {
                continue;
            }
            let given = found.as_ref().map_or(options.delimiter, |sheet| Some(sheet.delimiter));
            let sketch = match Sketch::of(&piece.bytes, given) {
                // A mark that is given for the edges need not be that of the vertices.
                sketch if options.must_have_header && sketch.lengths()[1] < 2 => {
                    Sketch::of(&piece.bytes, None)
                }
                sketch => sketch,
            };
            let sheet = match &mut found {
                Some(sheet) => sheet,
                None => {
                    let sheet =
                        found.insert(Self::of_sketch(file, &sketch, options, files, missing)?);
                    decisions.extend(sheet.skipped(file));
                    parts::check_one_table(path, files, |at| sheet.names_of(&files[at]))?;
                    sheet
                }
            };
            // Lines after one that cannot be cut belong to it.
            let end = sketch.problem.as_ref().map_or(u64::MAX, |(number, _)| *number);
            let lines = sheet.first_row()..end;
            let rows: Vec<&(u64, Fields<'_>)> =
                sketch.rows.iter().filter(|(number, _)| lines.contains(number)).collect();
            for (number, row) in &rows {
                let checked = sheet.check_repeated(row).and_then(|()| sheet.check_count(row.len()));
                checked.map_err(|problem| Error::line(file, *number, problem))?;
            }
            let first_values = |at: usize| -> Vec<Value<'_>> {
                let missing = &sheet.missing[at];
                let cells = rows.iter().map(|(number, row)| {
                    let cell = row[at].trim_ascii();
                    let cell = if missing.has(cell) { &b""[..] } else { cell };
                    ((part, *number), Cow::Borrowed(cell))
                });
                cells.collect()
            };
            let values = (0..sheet.columns.len()).map(first_values).collect();
            sheet.decide_types(file, values, options, progress)?;
            sheet.sample += rows.len();
            if let Some((number, problem)) = sketch.problem {
                return Err(Error::line(file, number, problem));
            }
            if sheet.sample > 0 {
                // Assumes as many rows per byte of the file as in the first piece.
                let rows =
                    memchr::memchr_iter(b'\n', &piece.bytes).count() as u128 * u128::from(bytes);
                sheet.num_rows = (rows / u128::from(stream.bytes_done().max(1))) as u64;
                break;
            }
        }
        found.ok_or_else(|| {
            Error::input(path, "empty: expected a header line with the names of the columns")
        })
    }

    fn of_sketch(
        file: &Path,
        sketch: &Sketch<'_>,
        options: TextOptions,
        files: &[PathBuf],
        missing: &[String],
    ) -> Result<Self> {
        let delimiter = sketch.delimiter;
        let header = match header::find(sketch, options.header) {
            // The user can only be asked about tables of edges.
            Err(_) if options.must_have_header => header::find(sketch, Some(Answer::Yes)),
            found => found,
        };
        let mut header = header.map_err(|question| Error::input(file, question))?;
        match &mut header {
            Some(header) => header.is_certain |= options.must_have_header,
            None if options.must_have_header => {
                let (line, count) =
                    sketch.rows.first().map_or((1, 0), |(line, row)| (*line, row.len()));
                let problem = format!(
                    "expected a header line with the names of the columns, found numbers: write \
                     one above it, {count} names such as id and label, separated by {delimiter}"
                );
                return Err(Error::line(file, line, problem));
            }
            None => {}
        }
        let names = match &header {
            Some(Header { line, text, .. }) => header::names_in(text, delimiter)
                .map_err(|problem| Error::line(file, *line, problem))?,
            None => {
                let count = sketch.rows.first().map_or(0, |(_, row)| row.len());
                (1..=count).map(|column| column.to_string()).collect()
            }
        };
        check_names(&names).map_err(|problem| match &header {
            Some(header) => Error::line(file, header.line, problem),
            None => Error::input(file, problem),
        })?;
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let missing = all.iter().map(|name| MissingValues::of(missing, name, &all)).collect();
        Ok(Self {
            files: files.to_vec(),
            delimiter,
            header,
            titles: sketch.titles.iter().map(|&(number, line)| (number, line.to_vec())).collect(),
            styles: vec![Style::Plain; names.len()],
            missing,
            cells: vec![ColumnCells::default(); names.len()],
            is_scanned: false,
            id_type: options.id_type,
            columns: names,
            sample: 0,
            num_rows: 0,
        })
    }

    /// Decides the styles and the types of the columns by their first `values`; by all rows if
    /// `options.scans`, or if a column has no value among the first.
    fn decide_types(
        &mut self,
        file: &Path,
        mut values: Vec<Vec<Value<'_>>>,
        options: TextOptions,
        progress: &dyn Progress,
    ) -> Result<()> {
        let wrong = |question| Error::input(file, question);
        let is_blank = |values: &Vec<Value<'_>>| values.iter().all(|(_, cell)| is_missing(cell));
        let blank: Vec<bool> = values.iter().map(is_blank).collect();
        self.styles = self.styles_of(&values, options).map_err(wrong)?;
        let has_rows = values.first().is_some_and(|values| !values.is_empty());
        if !has_rows || !(options.scans || blank.contains(&true)) {
            let looked = values.iter().enumerate().map(|(at, values)| {
                let mut cells = ColumnCells::default();
                for (line, cell) in values {
                    cells.add(*line, cell, self.cell(at, cell));
                }
                cells
            });
            self.cells = looked.collect();
            return Ok(());
        }
        self.scan(progress)?;
        // Strings below the first rows may be numbers in a style.
        for (at, values) in values.iter_mut().enumerate() {
            let last = values.last().map(|(line, _)| *line);
            let strays = if blank[at] { &self.cells[at].strays } else { self.strays(at) };
            values.extend(strays.iter().filter(|(line, _)| Some(*line) > last).cloned());
        }
        let styles = self.styles_of(&values, options).map_err(wrong)?;
        if styles != self.styles {
            self.styles = styles;
            self.scan(progress)?;
        }
        Ok(())
    }

    fn styles_of(
        &self,
        values: &[Vec<Value<'_>>],
        options: TextOptions,
    ) -> Result<Vec<Style>, String> {
        let cells = values.iter().map(|values| values.iter().map(|(_, cell)| &**cell).collect());
        let names = self.columns.iter().map(String::as_str);
        let columns: Vec<(&str, Vec<&[u8]>)> = names.zip(cells).collect();
        styles(&columns, options.decimal, options.date_order)
    }

    /// Looks at the cells of all rows.
    fn scan(&mut self, progress: &dyn Progress) -> Result<()> {
        let columns: Vec<usize> = (0..self.columns.len()).collect();
        let mut all = vec![ColumnCells::default(); columns.len()];
        for (part, file) in self.files.iter().enumerate() {
            let look = |piece: &Piece| {
                let cut = self.cut(part, piece, &columns, |_, cell| Ok(Cow::Borrowed(cell)));
                let mut found = vec![ColumnCells::default(); columns.len()];
                for (at, found) in found.iter_mut().enumerate() {
                    for (&line, cell) in cut.lines.iter().zip(cut.cells(at).iter()) {
                        found.add((part, line), cell.trim_ascii(), self.cell(at, cell));
                    }
                }
                cut.problem.map_or(Ok(found), Err)
            };
            read_pieces(file, progress, look, |found: Vec<ColumnCells>| {
                all.iter_mut().zip(found).for_each(|(all, found)| all.merge(found));
                Ok(())
            })?;
        }
        (self.cells, self.is_scanned) = (all, true);
        Ok(())
    }

    /// A line on the lines above the header that are skipped.
    fn skipped(&self, file: &Path) -> Option<String> {
        let ((_, first), header) = (self.titles.first()?, self.header.as_ref()?);
        let (file, first, line) = (file.display(), shown(first.trim_ascii()), header.line);
        Some(format!(
            "{file}: the header is line {line}: skipped the lines above it, such as {first}"
        ))
    }

    /// Names of the columns in the header of `file`, where this table has one.
    fn names_of(&self, file: &Path) -> Result<Vec<String>> {
        let Some(header) = &self.header else { return Ok(Vec::new()) };
        let mut piece = Piece::default();
        TextStream::open(file)?.next(&mut piece)?;
        let line = lines(&piece)
            .find(|(number, line)| *number >= header.line && !line.trim_ascii().is_empty());
        Ok(line
            .and_then(|(_, line)| header::names_in(line, self.delimiter).ok())
            .unwrap_or_default())
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.sample == 0
    }

    /// Type of the numbers in column `at`, if it holds some strings too.
    pub fn numbers_with_strays(&self, at: usize) -> Option<ValueType> {
        let kinds = self.cells[at].kinds;
        self.strays(at).first().and_then(|_| kinds.without(CellKind::Text).value())
    }

    /// Whether column `at` holds whole numbers and a few strings: ids, if the strings are strays.
    pub fn are_mostly_whole(&self, at: usize) -> bool {
        let cells = &self.cells[at];
        cells.fractions == 0 && cells.numbers >= NUMBERS_PER_STRAY * cells.strings
    }

    /// Strings in column `at`, if it holds numbers for the most part: the first of each.
    pub fn strays(&self, at: usize) -> &[Value<'static>] {
        let cells = &self.cells[at];
        if cells.numbers > cells.strings { &cells.strays } else { &[] }
    }

    /// A string in column `at` that begins with a date whose time or zone is not known, where most of
    /// the strings are so.
    pub fn unknown_time(&self, at: usize) -> Option<&Value<'static>> {
        unknown_time(&self.cells[at].strays, |(_, cell)| std::str::from_utf8(cell).unwrap_or(""))
    }

    /// The error for a `problem` with a cell of column `at`.
    pub fn wrong(&self, at: usize, ((part, line), cell): &Value<'_>, problem: &str) -> Error {
        let problem = format!("column `{}`: {}: {problem}", self.columns[at], shown(cell));
        Error::line(&self.files[*part], *line, problem)
    }

    /// The first fraction in a column that holds whole numbers for the most part, for a question about
    /// ids.
    pub fn fraction(&self) -> Option<String> {
        let mut columns = self.columns.iter().zip(&self.cells);
        columns.find_map(|(name, cells)| {
            let ((_, line), cell) =
                cells.fraction.as_ref().filter(|_| 2 * cells.fractions <= cells.numbers)?;
            Some(format!("; `{name}` has {cell} in line {line}"))
        })
    }

    /// Number of the first line that may be a row.
    fn first_row(&self) -> u64 {
        self.header.as_ref().map_or(1, |header| header.line + 1)
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
                        return match self.files.len() {
                            1 => format!("line {number}"),
                            _ => format!("{}, line {number}", name_of(file)),
                        };
                    }
                    left -= 1;
                }
            }
        }
        format!("row {row}")
    }

    /// Reads the cells of the column called `name` as they are written: as strings.
    pub fn take_as_strings(&mut self, name: &str) {
        for at in (0..self.columns.len()).filter(|&at| self.columns[at] == name) {
            self.cells[at].kinds.add(b"text");
            self.styles[at] = Style::Plain;
        }
    }

    /// The cell of column `at` in plain notation, without blanks around it; empty if it is a
    /// missing value. Fails if the cell has another style.
    #[inline]
    pub fn cell<'c>(&self, at: usize, cell: &'c [u8]) -> Result<Cow<'c, [u8]>, String> {
        let cell = cell.trim_ascii();
        match self.missing[at].is_empty() && self.styles[at] == Style::Plain {
            true => Ok(Cow::Borrowed(cell)),
            false => self.styled(at, cell),
        }
    }

    fn styled<'c>(&self, at: usize, cell: &'c [u8]) -> Result<Cow<'c, [u8]>, String> {
        let missing = &self.missing[at];
        let or_missing =
            |cell: Cow<'c, [u8]>| if missing.has(&cell) { Cow::Borrowed(&b""[..]) } else { cell };
        match missing.has(cell) {
            true => Ok(Cow::Borrowed(b"")),
            false => self.styles[at].plain(cell).map(or_missing),
        }
    }

    /// How columns whose cells are not plain numbers are read, and their names.
    pub fn readings(&self) -> Vec<(&'static str, Vec<String>)> {
        let reading = |style: &Style| match style {
            Style::Plain => None,
            Style::Marks(Decimal::Point) => {
                Some("commas between thousands (else pass --schema decimal=comma)")
            }
            Style::Marks(Decimal::Comma) => Some(
                "commas before fractions, points between thousands (else pass --schema decimal=point)",
            ),
            Style::Percent => Some("percents, read as hundredths"),
            Style::Money(..) => Some("amounts of money, read without their sign"),
            Style::Date(_) => Some(DATES),
        };
        let mut found: Vec<(&'static str, Vec<String>)> = Vec::new();
        let columns = self.columns.iter().zip(&self.styles).zip(&self.cells);
        for ((name, style), _) in columns.filter(|(_, cells)| cells.is_restyled) {
            let Some(reading) = reading(style) else { continue };
            let name = match style {
                Style::Date(DateOrder::DayMonthYear) => format!("{name} (day before month)"),
                Style::Date(DateOrder::MonthDayYear) => format!("{name} (month before day)"),
                Style::Money(sign, _) => format!("{name} ({sign})"),
                _ => name.clone(),
            };
            match found.iter_mut().find(|(known, _)| *known == reading) {
                Some((_, names)) => names.push(name),
                None => found.push((reading, vec![name])),
            }
        }
        found
    }

    /// The columns whose numbers have commas before their fractions.
    pub fn decimal_commas(&self) -> Vec<usize> {
        let has = |at: &usize| {
            self.cells[*at].is_restyled && self.styles[*at] == Style::Marks(Decimal::Comma)
        };
        (0..self.columns.len()).filter(has).collect()
    }

    /// Mark before the fractions of the first column of numbers that are not plain.
    pub fn decimal(&self) -> Option<Decimal> {
        self.styles.iter().find_map(|style| match *style {
            Style::Marks(decimal) | Style::Money(_, decimal) => Some(decimal),
            _ => None,
        })
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
        if found == expected {
            return Ok(());
        }
        let as_in = if self.header.is_some() { "the header" } else { "the first line" };
        let fields = if found == 1 { "field" } else { "fields" };
        Err(format!("{found} {fields}: expected {expected}, as in {as_in}"))
    }

    /// The fields that the columns make for edges.
    pub fn fields(&self) -> Vec<Field> {
        let field = |((name, cells), style): ((&String, &ColumnCells), &Style)| {
            let kind = cells.kinds.kind();
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
                is_fractional: kind == CellKind::Whole,
                is_empty: matches!(kind, CellKind::Empty | CellKind::Missing),
            }
        };
        let columns = self.columns.iter().zip(&self.cells).zip(&self.styles);
        let mut fields: Vec<Field> = columns.map(field).collect();
        if self.sample == 0 {
            // A table without rows: any column may be what its name says.
            fields.iter_mut().for_each(|field| field.id = Some(IdKind::Number));
        }
        fields
    }

    /// The row in line `number` of a part; `None` for a header, a comment or an empty line. Fails
    /// if a header is wrong.
    pub fn row<'l>(&self, number: u64, line: &'l [u8]) -> Result<Option<&'l [u8]>, String> {
        let text = line.trim_ascii();
        match &self.header {
            _ if text.is_empty() => Ok(None),
            Some(header)
                if number < header.line && (is_comment(text) || self.is_title(number, line)) =>
            {
                Ok(None)
            }
            Some(header) if number <= header.line => match text == header.text.trim_ascii() {
                true => Ok(None),
                false => Err(format!(
                    "expected the header of the first part, {}, found {}",
                    shown(&header.text),
                    shown(line)
                )),
            },
            None if is_comment(text) => Ok(None),
            Some(header) if self.may_repeat(header, text) => {
                self.check_repeated(&cells(line, self.delimiter)?).map(|()| Some(line))
            }
            _ => Ok(Some(line)),
        }
    }

    /// Whether line `number` is a title, as in the first part.
    fn is_title(&self, number: u64, line: &[u8]) -> bool {
        self.titles.iter().any(|(of, title)| *of == number && title == line)
    }

    /// Whether `text` begins as the header does. Few rows do, and those are cut into cells and
    /// compared.
    fn may_repeat(&self, header: &Header, text: &[u8]) -> bool {
        let name = self.columns.first().map_or(&b""[..], |name| name.as_bytes());
        let (Some(first), Some(found)) = (name.first(), text.first()) else {
            return text == header.text.trim_ascii();
        };
        // The first byte rules most rows out: a quote or a byte order mark may come before it.
        (first.eq_ignore_ascii_case(found) || matches!(found, b'"' | 0xef))
            && as_name(text).get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    }

    /// Refuses a row that is the header once more, as joined files leave it.
    fn check_repeated(&self, row: &[Cow<'_, [u8]>]) -> Result<(), String> {
        let Some(header) = &self.header else { return Ok(()) };
        let is_same = |(cell, name): (&Cow<'_, [u8]>, &String)| {
            as_name(cell).eq_ignore_ascii_case(name.as_bytes())
        };
        match row.len() == self.columns.len() && row.iter().zip(&self.columns).all(is_same) {
            false => Ok(()),
            true if !header.is_certain => Err(header::question(&self.columns[0], header.line)),
            true => Err(format!(
                "repeats the header of line {}, as files do that were joined with their headers: \
                 remove this line",
                header.line
            )),
        }
    }
}
