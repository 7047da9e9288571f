//! CSV, TSV and their like with a header line: what their columns hold, by the first rows.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::choice::{Field, IdKind};
use super::line::{delimiter, fields};
use crate::edges::{Piece, ValueType};
use crate::read::field::{real, shown, unsigned};
use crate::read::text::{TextStream, lines};
use crate::{Error, Result};

/// Rows that types are told from.
const SAMPLE: usize = 1000;
/// What stands for no value, besides nothing.
const MISSING: [&[u8]; 6] = [b"NA", b"null", b"NULL", b"None", b"NaN", b"nan"];

/// What the cells of a column hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing so far.
    Empty,
    /// `true` and `false`.
    Flag,
    /// Whole numbers.
    Integer,
    /// Numbers.
    Float,
    /// Anything.
    Text,
}

/// The parts of a text table, and what they have in common.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// The parts.
    pub files: Vec<PathBuf>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Between fields.
    pub delimiter: u8,
    /// The first line of every part.
    pub header: Vec<u8>,
    /// Name and content of every column.
    pub columns: Vec<(String, Kind)>,
    /// Rows that were looked at.
    sample: usize,
    /// Number of rows, about.
    pub num_rows: u64,
}

impl Sheet {
    /// Reads the header and the first rows of the table whose parts are `files`.
    pub fn open(path: &Path, files: &[PathBuf]) -> Result<Self> {
        let bytes = super::total_bytes(files)?;
        let mut sheet: Option<Self> = None;
        for file in files {
            let (mut stream, mut piece) = (TextStream::open(file)?, Piece::default());
            if !stream.next(&mut piece)? {
                continue;
            }
            let mut lines = lines(&piece);
            let Some((_, header)) = lines.next() else { continue };
            let sheet = match &mut sheet {
                Some(sheet) => sheet,
                None => sheet.insert(Self::of_header(file, header, files, bytes)?),
            };
            for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()).take(SAMPLE) {
                sheet.look_at(line).map_err(|problem| Error::line(file, number, problem))?;
            }
            if sheet.sample > 0 {
                // As many in a byte of the file as in the first piece.
                let rows = memchr::memchr_iter(b'\n', &piece.bytes).count() as u128 * u128::from(bytes);
                sheet.num_rows = (rows / u128::from(stream.bytes_done().max(1))) as u64;
                break;
            }
        }
        sheet.ok_or_else(|| Error::input(path, "empty: expected a header line with the names of the columns"))
    }

    fn of_header(file: &Path, header: &[u8], files: &[PathBuf], bytes: u64) -> Result<Self> {
        let delimiter = delimiter(header);
        let cells = cells(header, delimiter).map_err(|problem| Error::line(file, 1, problem))?;
        if cells.iter().all(|cell| real::<f64>(cell.trim_ascii()).is_some()) {
            let problem = "expected a header line with the names of the columns, found numbers: an edge list without a header is read as such, not as a table";
            return Err(Error::line(file, 1, problem));
        }
        let name = |cell: &Cow<[u8]>| String::from_utf8_lossy(cell.trim_ascii()).trim_start_matches('#').to_string();
        let columns = cells.iter().map(|cell| (name(cell), Kind::Empty)).collect();
        Ok(Self { files: files.to_vec(), bytes, delimiter, header: header.to_vec(), columns, sample: 0, num_rows: 0 })
    }

    fn look_at(&mut self, line: &[u8]) -> Result<(), String> {
        let cells = cells(line, self.delimiter)?;
        self.check_count(cells.len())?;
        for ((_, kind), cell) in self.columns.iter_mut().zip(&cells) {
            *kind = widened(*kind, cell.trim_ascii());
        }
        self.sample += 1;
        Ok(())
    }

    /// Says that a row has another number of fields than the header.
    pub fn check_count(&self, found: usize) -> Result<(), String> {
        let expected = self.columns.len();
        match found == expected {
            true => Ok(()),
            false => Err(format!("{found} fields: expected {expected}, as in the header")),
        }
    }

    /// What the columns can be for edges.
    pub fn fields(&self) -> Vec<Field> {
        let field = |(name, kind): &(String, Kind)| {
            let id = match kind {
                Kind::Integer => Some(IdKind::Number),
                Kind::Text | Kind::Flag => Some(IdKind::Text),
                Kind::Empty | Kind::Float => None,
            };
            let value = match kind {
                Kind::Integer | Kind::Flag => Some((ValueType::I64, 1)),
                Kind::Float => Some((ValueType::F64, 1)),
                Kind::Empty | Kind::Text => None,
            };
            Field { name: name.clone(), id, value, list: false }
        };
        let mut fields: Vec<Field> = self.columns.iter().map(field).collect();
        if self.sample == 0 {
            // A table without rows: any column may be what its name says.
            fields.iter_mut().for_each(|field| field.id = Some(IdKind::Number));
        }
        fields
    }

    /// Whether `line` is a header of a part, and not the one of the first.
    pub fn check_header(&self, line: &[u8]) -> Result<(), String> {
        match line.trim_ascii() == self.header.trim_ascii() {
            true => Ok(()),
            false => {
                Err(format!("expected the header of the first part, {}, found {}", shown(&self.header), shown(line)))
            }
        }
    }
}

fn cells(line: &[u8], delimiter: u8) -> Result<Vec<Cow<'_, [u8]>>, String> {
    let mut cells = Vec::new();
    fields(line, delimiter, |_, cell| {
        cells.push(cell);
        true
    })?;
    Ok(cells)
}

fn widened(kind: Kind, cell: &[u8]) -> Kind {
    let found = match cell {
        cell if is_missing(cell) => match kind {
            // An integer has no way to say so.
            Kind::Integer | Kind::Flag => return Kind::Float,
            kind => return kind,
        },
        cell if flag(cell).is_some() => Kind::Flag,
        cell if integer(cell).is_some() || unsigned(cell).is_some() => Kind::Integer,
        cell if real::<f64>(cell).is_some() => Kind::Float,
        _ => Kind::Text,
    };
    match (kind, found) {
        (Kind::Flag, Kind::Integer | Kind::Float) | (Kind::Integer | Kind::Float, Kind::Flag) => Kind::Text,
        (kind, found) => kind.max(found),
    }
}

/// Whether a cell says that there is no value.
pub fn is_missing(cell: &[u8]) -> bool {
    cell.is_empty() || MISSING.contains(&cell)
}

/// Whether a cell is one of the spellings of true and false.
pub fn flag(cell: &[u8]) -> Option<bool> {
    match cell {
        b"true" | b"True" | b"TRUE" => Some(true),
        b"false" | b"False" | b"FALSE" => Some(false),
        _ => None,
    }
}

/// A signed whole number.
pub fn integer(cell: &[u8]) -> Option<i64> {
    match cell.split_first() {
        Some((b'-', digits)) => 0i64.checked_sub_unsigned(unsigned(digits)?),
        Some((b'+', digits)) => i64::try_from(unsigned(digits)?).ok(),
        _ => i64::try_from(unsigned(cell)?).ok(),
    }
}

/// Writes the number in `cell` as `value`, little-endian. Nothing is NaN among floats, and wrong among integers.
pub fn write_number(cell: &[u8], value: ValueType, out: &mut [u8]) -> Result<(), String> {
    let wrong = |expected: &str| format!("{}: expected {expected}", shown(cell));
    let truth = |cell| flag(cell).map(u8::from);
    match value {
        ValueType::I64 => {
            let number = integer(cell).or_else(|| truth(cell).map(i64::from));
            let number = number.ok_or_else(|| wrong("a whole number, as in the first rows"))?;
            out.copy_from_slice(&number.to_le_bytes());
        }
        ValueType::F32 | ValueType::F64 if is_missing(cell) => match value {
            ValueType::F32 => out.copy_from_slice(&f32::NAN.to_le_bytes()),
            _ => out.copy_from_slice(&f64::NAN.to_le_bytes()),
        },
        ValueType::F32 => {
            let number = real::<f32>(cell).or_else(|| truth(cell).map(f32::from));
            out.copy_from_slice(&number.ok_or_else(|| wrong("a number, as in the first rows"))?.to_le_bytes());
        }
        ValueType::F64 => {
            let number = real::<f64>(cell).or_else(|| truth(cell).map(f64::from));
            out.copy_from_slice(&number.ok_or_else(|| wrong("a number, as in the first rows"))?.to_le_bytes());
        }
    }
    Ok(())
}
