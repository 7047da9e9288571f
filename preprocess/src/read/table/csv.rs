//! Ids and values from text tables, piece by piece.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use super::cells::write_fill;
use super::choice::{Choice, IdKind};
use super::header;
use super::sheet::Sheet;
use crate::edges::{EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType, row_bytes};
use crate::read::text::field::{is_padded, shown};
use crate::read::text::line::fields;
use crate::read::text::na;
use crate::read::text::names::TextNames;
use crate::read::text::value::{self, write_number};
use crate::read::text::{TextStream, lines};
use crate::{Error, Result};

/// Lines are numbered through all files: the n-th file starts at n times this.
const LINES_PER_FILE: u64 = 1 << 40;

/// The id columns of a text table, two for edges and one for vertices, and its columns of numbers.
pub struct Text {
    sheet: Sheet,
    kind: IdKind,
    /// Role of every column.
    roles: Vec<Role>,
    num_ids: usize,
    columns: Vec<EdgeColumn>,
    row_bytes: usize,
    state: Mutex<State>,
    done: AtomicU64,
    /// Whether an empty cell is the empty string.
    nulls: bool,
    /// Value of edges that have none.
    fill: Option<f64>,
    /// Hashes of the words of a header that may be an edge, and the number, from 1, of the word that is also an id.
    doubtful: Vec<u64>,
    repeated: AtomicUsize,
}

#[derive(Clone, Copy)]
enum Role {
    Ignored,
    /// The source or the target.
    Id(usize),
    /// A value at a byte of the row's values.
    Value(usize, ValueType),
}

#[derive(Default)]
struct State {
    /// The current file, or the next one.
    file: usize,
    stream: Option<TextStream>,
    bytes_before: u64,
}

impl Text {
    /// Reads the columns at `ids`, and the values of `choice`.
    pub fn new(sheet: Sheet, ids: &[usize], choice: &Choice) -> Self {
        let mut roles = vec![Role::Ignored; sheet.columns.len()];
        let mut offset = 0;
        for (&at, column) in choice.values.iter().zip(&choice.columns) {
            roles[at] = Role::Value(offset, column.value);
            offset += column.value.bytes();
        }
        ids.iter().enumerate().for_each(|(which, &at)| roles[at] = Role::Id(which));
        // The header of a table of vertices is known to be one.
        let is_doubtful = sheet.header.as_ref().is_some_and(|header| !header.is_certain) && ids.len() == 2;
        let words = ids.iter().filter(|_| is_doubtful && choice.kind == IdKind::Text);
        let doubtful = words.map(|&at| xxh3_64(sheet.columns[at].0.as_bytes())).collect();
        Self {
            sheet,
            kind: choice.kind,
            roles,
            num_ids: ids.len(),
            columns: choice.columns.clone(),
            row_bytes: row_bytes(&choice.columns),
            state: Mutex::default(),
            done: AtomicU64::new(0),
            nulls: false,
            fill: choice.fill,
            doubtful,
            repeated: AtomicUsize::new(0),
        }
    }

    /// Reads empty cells as the empty string, if ids are strings.
    pub fn with_nulls(mut self) -> Self {
        self.nulls = true;
        self
    }

    /// Largest id in the first piece.
    fn largest(&self) -> Result<u64> {
        let (mut piece, mut batch) = (Piece::default(), EdgeBatch::default());
        for (at, file) in self.sheet.files.iter().enumerate() {
            if TextStream::open(file)?.next(&mut piece)? {
                piece.start += at as u64 * LINES_PER_FILE;
                self.parse(&mut piece, &mut batch)?;
                break;
            }
        }
        Ok(batch.sources.iter().chain(&batch.targets).fold(0, |largest, &id| largest.max(id)))
    }

    /// Parses a line into its ids and appends its values.
    fn parse_line(&self, line: &[u8], names: &mut TextNames, values: &mut Vec<u8>) -> Result<[u64; 2], String> {
        let start = values.len();
        values.resize(start + self.row_bytes, 0);
        let (mut ids, mut count, mut wrong) = ([0; 2], 0, None);
        let mut take = |place: usize, cell: &[u8]| match self.roles.get(place) {
            Some(&Role::Id(which)) => self.id(&self.sheet.cell(place, cell)?, names).map(|id| ids[which] = id),
            Some(&Role::Value(at, value)) => {
                let (cell, out) = (self.sheet.cell(place, cell)?, &mut values[start + at..start + at + value.bytes()]);
                match self.fill.filter(|_| value::is_missing(&cell)) {
                    Some(fill) => write_fill(fill, value, out),
                    None => write_number(&cell, value, out).map_err(|problem| match value::is_number(&cell) {
                        true => problem,
                        false => {
                            let words = [String::from_utf8_lossy(&cell)];
                            let remedy = na::remedy(words.iter().map(AsRef::as_ref));
                            format!("{problem}; pass {remedy} if it means that the value is missing")
                        }
                    }),
                }
            }
            _ => Ok(()),
        };
        fields(line, self.sheet.delimiter, |place, cell| {
            count = place + 1;
            let problem = take(place, &cell).err();
            wrong = problem.map(|problem| format!("column `{}`: {problem}", self.sheet.columns[place].0));
            wrong.is_none()
        })?;
        match wrong {
            Some(problem) => Err(problem),
            None => self.sheet.check_count(count).map(|()| ids),
        }
    }

    fn id(&self, cell: &[u8], names: &mut TextNames) -> Result<u64, String> {
        match self.kind {
            _ if cell.is_empty() && !self.nulls => Err("is empty: expected an id in every row".into()),
            IdKind::Number if is_padded(cell) && self.sheet.id_type.is_none() => Err(format!(
                "id {} has leading zeros, which numbers do not keep: pass --id-type text to keep ids as they are written, or \
                 --id-type number",
                shown(cell)
            )),
            IdKind::Number => value::id(cell).ok_or_else(|| match cell.starts_with(b"-") {
                true => format!("{}: expected ids from 0", shown(cell)),
                false => format!(
                    "{}: expected a whole number below 2^64, as in other rows: fix or remove the line, or pass --id-type text if ids are \
                     strings",
                    shown(cell)
                ),
            }),
            IdKind::Text => {
                let text = std::str::from_utf8(cell).map_err(|_| format!("{}: expected UTF-8", shown(cell)))?;
                let id = names.id(text);
                if let Some(word) = self.doubtful.iter().position(|&word| word == id) {
                    self.repeated.store(word + 1, Relaxed);
                }
                Ok(id)
            }
        }
    }
}

impl EdgeSource for Text {
    fn rewind(&self) -> Result<()> {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
        self.done.store(0, Relaxed);
        self.repeated.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let file = state.file;
            let stream = match &mut state.stream {
                Some(stream) => stream,
                none => match self.sheet.files.get(file) {
                    Some(file) => none.insert(TextStream::open(file)?),
                    None => return Ok(false),
                },
            };
            let more = stream.next(piece)?;
            let (done, length) = (stream.bytes_done(), stream.len());
            self.done.store((state.bytes_before + done).min(self.sheet.bytes), Relaxed);
            if more {
                piece.start += state.file as u64 * LINES_PER_FILE;
                piece.end = piece.start;
                return Ok(true);
            }
            let before = state.bytes_before + length;
            *state = State { file: state.file + 1, stream: None, bytes_before: before };
        }
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        let file = (piece.start / LINES_PER_FILE) as usize;
        let mut names = TextNames::default();
        for (number, line) in lines(piece) {
            let number = number % LINES_PER_FILE;
            let wrong = |problem| Error::line(&self.sheet.files[file], number, problem);
            if let Some(line) = self.sheet.row(number, line).map_err(wrong)? {
                let [source, target] = self.parse_line(line, &mut names, &mut batch.values).map_err(wrong)?;
                batch.sources.push(source);
                if self.num_ids == 2 {
                    batch.targets.push(target);
                }
            }
        }
        names.append_to(&mut batch.names);
        Ok(())
    }

    fn finish(&self, _seen: &Seen) -> Result<Ending> {
        match (self.repeated.load(Relaxed), &self.sheet.header) {
            (word @ 1.., Some(header)) => {
                let at = self.roles.iter().position(|role| matches!(role, Role::Id(which) if *which == word - 1));
                let name = at.map_or("", |at| self.sheet.columns[at].0.as_str());
                Err(Error::line(&self.sheet.files[0], header.line, header::question(name, header.line)))
            }
            _ => Ok(Ending::default()),
        }
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn has_string_ids(&self) -> bool {
        self.kind == IdKind::Text
    }

    fn place(&self, number: u64) -> String {
        self.sheet.place(number)
    }

    fn estimate(&self) -> Result<Estimate> {
        let edges = self.sheet.num_rows;
        let vertices = match self.kind {
            // Hashes have no largest id; real graphs have several edges per vertex.
            IdKind::Text => edges / 4 + 1,
            IdKind::Number => self.largest()?.saturating_add(1),
        };
        Ok(Estimate { edges, vertices, bytes: self.sheet.bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.done.load(Relaxed)
    }
}
