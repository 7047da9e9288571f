//! CSV, TSV and their like with a header line: what their columns hold, by the first rows.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::choice::{Field, IdKind};
use super::line::{delimiter, fields};
use crate::edges::Piece;
use crate::read::text::field::{real, shown};
use crate::read::text::value::{CellKind, widened};
use crate::read::text::{TextStream, lines};
use crate::{Error, Result};

/// Rows that types are told from.
const SAMPLE: usize = 1000;

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
    pub columns: Vec<(String, CellKind)>,
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
        let columns = cells.iter().map(|cell| (name(cell), CellKind::Empty)).collect();
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

    /// The fields that the columns make for edges.
    pub fn fields(&self) -> Vec<Field> {
        let field = |(name, kind): &(String, CellKind)| {
            let id = match kind {
                CellKind::Integer => Some(IdKind::Number),
                CellKind::Text | CellKind::Flag => Some(IdKind::Text),
                CellKind::Empty | CellKind::Missing | CellKind::Float => None,
            };
            Field { name: name.clone(), id, value: kind.value().map(|value| (value, 1)), list: false }
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
