//! Text tables: their delimiter, their header if they have one, and what their columns hold, by the
//! first rows. They are in one file, because each is recognised by the others.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gsplit_store::Progress;

use super::choice::{Field, IdKind, check_names};
use super::header::{self, Header};
use super::parts;
use crate::edges::{Piece, ValueType};
use crate::read::options::{Answer, TextOptions};
use crate::read::text::field::shown;
use crate::read::text::line::{Delimiter, cells, fields};
use crate::read::text::na::MissingValues;
use crate::read::text::sketch::{Fields, MAX_LINES, Sketch, is_comment};
use crate::read::text::style::{DateOrder, Decimal, Style, styles};
use crate::read::text::value::{CellKind, is_missing, widened};
use crate::read::text::{BYTE_ORDER_MARK, TextStream, lines, name_of, read_pieces};
use crate::{Error, Result};

/// Reading of a column of dates.
pub const DATES: &str = "dates, read as days since 1970-01-01";

/// Numbers for each string from which on a column holds numbers, and the strings are strays.
const NUMBERS_PER_STRAY: u64 = 10;

/// A line: the place of its file among the parts, and its number there.
type Line = (usize, u64);

/// A cell of a column, and its line.
type Value<'a> = (Line, Cow<'a, [u8]>);

/// The first values of a column: from the first rows, or, if these have none, the first values
/// below them.
#[derive(Clone, Debug, Default)]
struct ColumnSample {
    /// Whether one is another number by its style.
    is_restyled: bool,
    /// Number of numbers.
    numbers: u64,
    /// Number of numbers with a fraction.
    fractions: u64,
    /// First of them, with its line.
    fraction: Option<(Line, String)>,
    /// Number of strings.
    strings: u64,
    /// First of them, with its line.
    stray: Option<(Line, String)>,
}

impl ColumnSample {
    fn look_at(&mut self, line: Line, cell: &[u8], is_restyled: bool) {
        self.is_restyled |= is_restyled;
        let kind = widened(CellKind::Empty, cell);
        self.numbers += u64::from(kind.value().is_some());
        if kind == CellKind::Float {
            self.fractions += 1;
            self.fraction.get_or_insert_with(|| (line, shown(cell)));
        }
        if kind == CellKind::Text {
            self.strings += 1;
            self.stray.get_or_insert_with(|| (line, shown(cell)));
        }
    }
}

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
    /// The first values of every column.
    samples: Vec<ColumnSample>,
    /// Type of ids, where the user says it.
    pub id_type: Option<IdKind>,
    /// Name and content of every column.
    pub columns: Vec<(String, CellKind)>,
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
    /// The type of a column is that of its first values. Where the first rows have none, all files
    /// are read for them once.
    pub fn open(
        path: &Path,
        files: &[PathBuf],
        bytes: u64,
        options: TextOptions,
        missing: &[String],
        progress: &dyn Progress,
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
                    sheet.note_titles(file, progress);
                    parts::check_one_table(path, files, |at| sheet.names_of(&files[at]))?;
                    sheet
                }
            };
            // Lines after one that cannot be cut belong to it.
            let end = sketch.problem.as_ref().map_or(u64::MAX, |(number, _)| *number);
            let rows: Vec<&(u64, Fields<'_>)> = sketch
                .rows
                .iter()
                .filter(|(number, _)| (sheet.first_row()..end).contains(number))
                .collect();
            for (number, row) in &rows {
                let checked = sheet.check_repeated(row).and_then(|()| sheet.check_count(row.len()));
                checked.map_err(|problem| Error::line(file, *number, problem))?;
            }
            let first_values = |at: usize| -> Vec<Value<'_>> {
                let missing = &sheet.missing[at];
                let cells = rows.iter().map(|(number, row)| {
                    let cell = row[at].trim_ascii();
                    (
                        (part, *number),
                        Cow::Borrowed(if missing.has(cell) { &b""[..] } else { cell }),
                    )
                });
                cells.collect()
            };
            let mut values: Vec<_> = (0..sheet.columns.len()).map(first_values).collect();
            let is_blank = |at: &usize| values[*at].iter().all(|(_, cell)| is_missing(cell));
            let blank: Vec<usize> = (0..values.len()).filter(is_blank).collect();
            if !rows.is_empty() && !blank.is_empty() {
                for (&at, late) in blank.iter().zip(sheet.late_values(&blank, progress)?) {
                    values[at].extend(late);
                }
            }
            sheet.look_at(&values, options).map_err(|question| Error::input(file, question))?;
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
        let columns: Vec<_> = names.into_iter().map(|name| (name, CellKind::Empty)).collect();
        Ok(Self {
            files: files.to_vec(),
            delimiter,
            header,
            titles: sketch.titles.iter().map(|&(number, line)| (number, line.to_vec())).collect(),
            styles: Vec::new(),
            missing,
            samples: vec![ColumnSample::default(); columns.len()],
            id_type: options.id_type,
            columns,
            sample: 0,
            num_rows: 0,
        })
    }

    /// Decides the styles and the contents of the columns by these `values` of each.
    fn look_at(&mut self, values: &[Vec<Value<'_>>], options: TextOptions) -> Result<(), String> {
        let mut columns: Vec<(&str, Vec<&[u8]>)> = Vec::new();
        for ((name, _), values) in self.columns.iter().zip(values) {
            columns.push((name, values.iter().map(|(_, cell)| &**cell).collect()));
        }
        self.styles = styles(&columns, options.decimal, options.date_order)?;
        for (at, values) in values.iter().enumerate() {
            for (line, cell) in values {
                // A number in another style counts as a fraction. Reading the column refuses it.
                let plain = self.styles[at].plain(cell);
                let is_restyled = plain.as_ref().is_ok_and(|plain| **plain != **cell);
                let plain = plain.unwrap_or(Cow::Borrowed(b"0.5"));
                self.samples[at].look_at(*line, &plain, is_restyled);
                self.columns[at].1 = widened(self.columns[at].1, &plain);
            }
        }
        Ok(())
    }

    /// The first values of the columns at `blank`, of which the first rows have none, by one pass
    /// over all files.
    fn late_values(
        &self,
        blank: &[usize],
        progress: &dyn Progress,
    ) -> Result<Vec<Vec<Value<'static>>>> {
        let mut all: Vec<Vec<Value<'static>>> = vec![Vec::new(); blank.len()];
        for (part, file) in self.files.iter().enumerate() {
            let parse = |piece: &Piece| {
                let mut found = vec![Vec::new(); blank.len()];
                self.read(part, lines(piece), blank, |number, slot, cell| {
                    if !is_missing(cell) && found[slot].len() < MAX_LINES {
                        found[slot].push(((part, number), Cow::Owned(cell.to_vec())));
                    }
                    Ok(())
                })?;
                Ok(found)
            };
            read_pieces(file, progress, parse, |found: Vec<Vec<Value<'static>>>| {
                for (all, found) in all.iter_mut().zip(found) {
                    let room = MAX_LINES - all.len();
                    all.extend(found.into_iter().take(room));
                }
                Ok(())
            })?;
            if all.iter().all(|values| values.len() == MAX_LINES) {
                break;
            }
        }
        Ok(all)
    }

    /// Calls `take` with every cell of the `lines` of a part that is in one of `columns`: the
    /// number of its line, its place among `columns`, which ascend, and the cell in plain notation.
    /// Returns the number of rows.
    pub fn read<'l>(
        &self,
        part: usize,
        lines: impl Iterator<Item = (u64, &'l [u8])>,
        columns: &[usize],
        mut take: impl FnMut(u64, usize, &[u8]) -> Result<(), String>,
    ) -> Result<usize> {
        let mut slots = vec![None; self.columns.len()];
        columns.iter().enumerate().for_each(|(slot, &at)| slots[at] = Some(slot));
        let mut read = |number: u64, row: &[u8]| {
            let (mut count, mut wrong) = (0, None);
            fields(row, self.delimiter, |at, cell| {
                count = at + 1;
                if let Some(slot) = slots.get(at).copied().flatten() {
                    let taken = self.cell(at, &cell).and_then(|cell| take(number, slot, &cell));
                    wrong = taken
                        .err()
                        .map(|problem| format!("column `{}`: {problem}", self.columns[at].0));
                }
                wrong.is_none()
            })?;
            wrong.map_or_else(|| self.check_count(count), Err)
        };
        let mut rows = 0;
        for (number, line) in lines {
            let row = self.row(number, line);
            rows += usize::from(matches!(row, Ok(Some(_))));
            row.and_then(|row| row.map_or(Ok(()), |row| read(number, row)))
                .map_err(|problem| Error::line(&self.files[part], number, problem))?;
        }
        Ok(rows)
    }

    /// Prints which lines above the header are skipped.
    fn note_titles(&self, file: &Path, progress: &dyn Progress) {
        if let (Some((_, first)), Some(header)) = (self.titles.first(), &self.header) {
            let (file, first, line) = (file.display(), shown(first.trim_ascii()), header.line);
            progress.decide(&format!(
                "{file}: the header is line {line}: skipped the lines above it, such as {first}"
            ));
        }
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

    /// The columns of numbers among which a few strings are: ids, if the strings are strays.
    pub fn mostly_numbers(&self) -> impl Iterator<Item = usize> {
        let mostly = |sample: &ColumnSample| {
            sample.strings > 0
                && sample.fractions == 0
                && sample.numbers >= NUMBERS_PER_STRAY * sample.strings
        };
        (0..self.samples.len()).filter(move |&at| mostly(&self.samples[at]))
    }

    /// Refuses a string in column `at`, whose first rows hold numbers for the most part.
    pub fn check_stray(&self, at: usize) -> Result<()> {
        let (sample, name) = (&self.samples[at], &self.columns[at].0);
        match &sample.stray {
            Some(((part, line), cell)) if sample.numbers > sample.strings => {
                let problem = format!(
                    "column `{name}` holds numbers for the most part, and {cell}: fix it, pass \
                     --na if it means that a value is missing, or name the columns to keep with \
                     --edge-columns, or none"
                );
                Err(Error::line(&self.files[*part], *line, problem))
            }
            _ => Ok(()),
        }
    }

    /// The first fraction in a column whose first rows hold whole numbers for the most part, for a
    /// question about ids.
    pub fn fraction(&self) -> Option<String> {
        let mut columns = self.columns.iter().zip(&self.samples);
        columns.find_map(|((name, _), sample)| {
            let ((_, line), cell) =
                sample.fraction.as_ref().filter(|_| 2 * sample.fractions <= sample.numbers)?;
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
                        let of = if self.files.len() > 1 {
                            format!("{}, ", name_of(file))
                        } else {
                            String::new()
                        };
                        return format!("{of}line {number}");
                    }
                    left -= 1;
                }
            }
        }
        format!("row {row}")
    }

    /// Reads the cells of the column called `name` as they are written: as strings.
    pub fn take_as_strings(&mut self, name: &str) {
        for ((_, kind), style) in
            self.columns.iter_mut().zip(&mut self.styles).filter(|((column, _), _)| column == name)
        {
            (*kind, *style) = (CellKind::Text, Style::Plain);
        }
    }

    /// The cell of column `at` in plain notation, without blanks around it; empty if it is a
    /// missing value. Fails if the cell has another style.
    pub fn cell<'c>(&self, at: usize, cell: &'c [u8]) -> Result<Cow<'c, [u8]>, String> {
        let (cell, missing) = (cell.trim_ascii(), &self.missing[at]);
        let plain = || self.styles.get(at).copied().unwrap_or_default().plain(cell);
        if missing.is_empty() {
            return plain();
        }
        match missing.has(cell) {
            true => Ok(Cow::Borrowed(b"")),
            false => plain()
                .map(|plain| if missing.has(&plain) { Cow::Borrowed(&b""[..]) } else { plain }),
        }
    }

    /// How columns whose cells are not plain numbers are read, and their names.
    pub fn readings(&self) -> Vec<(&'static str, Vec<String>)> {
        let reading = |style: &Style| match style {
            Style::Plain => None,
            Style::Marks(Decimal::Point) => {
                Some("commas between thousands (else pass --decimal comma)")
            }
            Style::Marks(Decimal::Comma) => Some(
                "commas before fractions, points between thousands (else pass --decimal point)",
            ),
            Style::Percent => Some("percents, read as hundredths"),
            Style::Money(..) => Some("amounts of money, read without their sign"),
            Style::Date(_) => Some(DATES),
        };
        let mut found: Vec<(&'static str, Vec<String>)> = Vec::new();
        for (((name, _), style), _) in self
            .columns
            .iter()
            .zip(&self.styles)
            .zip(&self.samples)
            .filter(|(_, sample)| sample.is_restyled)
        {
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
            self.samples[*at].is_restyled && self.styles[*at] == Style::Marks(Decimal::Comma)
        };
        (0..self.columns.len()).filter(has).collect()
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
                is_empty: matches!(kind, CellKind::Empty | CellKind::Missing),
            }
        };
        let mut fields: Vec<Field> = self.columns.iter().zip(&self.styles).map(field).collect();
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
        let first = self.columns.first().map_or(&b""[..], |(name, _)| name.as_bytes());
        match first.is_empty() {
            true => text == header.text.trim_ascii(),
            false => as_name(text)
                .get(..first.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(first)),
        }
    }

    /// Refuses a row that is the header once more, as joined files leave it.
    fn check_repeated(&self, row: &[Cow<'_, [u8]>]) -> Result<(), String> {
        let Some(header) = &self.header else { return Ok(()) };
        let is_same = |(cell, (name, _)): (&Cow<'_, [u8]>, &(String, CellKind))| {
            as_name(cell).eq_ignore_ascii_case(name.as_bytes())
        };
        match row.len() == self.columns.len() && row.iter().zip(&self.columns).all(is_same) {
            false => Ok(()),
            true if !header.is_certain => Err(header::question(&self.columns[0].0, header.line)),
            true => Err(format!(
                "repeats the header of line {}, as files do that were joined with their headers: \
                 remove this line",
                header.line
            )),
        }
    }
}
