//! SNAP edge lists: one edge per line, `u v` for u -> v, so that u is an in-neighbour of v.
//!
//! Plain or compressed. Ids are unsigned 64-bit numbers separated by tabs, blanks or commas.
//! Further columns (weights, times) are ignored, unless `--edge-columns` names them: whole numbers
//! are kept as i64, others as f64, decided by the first piece. `#` and `%` start comments; line
//! ends may be CRLF. Ids are compacted in ascending order, unless `--keep-ids`.
//!
//! Three kinds of header are checked against the edges:
//! * a comment `# Nodes: N Edges: M`: M lines must follow with N distinct ids;
//! * KONECT's second comment `% EDGES SOURCES TARGETS`: EDGES lines must follow;
//! * a bare first line `n m`: a header exactly if m lines follow and all their ids are below n, or
//!   from 1 to n and m is larger; n is then the number of vertices. If ids are from 1 to n and m is
//!   one of them, it may also be an edge: the user is asked. If it names two ids above all others,
//!   the smaller first, it is taken as a wrong header.

use std::path::{Path, PathBuf};

use super::field::{counted, leading_unsigned, shown, unsigned};
use super::value::{CellKinds, write_number};
use crate::edges::{
    EdgeBatch, EdgeColumn, EdgeSource, Ending, Estimate, Piece, Seen, ValueType, pass_on,
};
use crate::read::options::{Answer, ReadOptions};
use crate::read::raw::{Ids, Raw, check_size};
use crate::read::text::{TextPieces, first_line, lines, words};
use crate::{Error, Result};

/// Opens the edge list at `path`.
pub fn open(path: &Path, options: &ReadOptions) -> Result<Raw> {
    let edges = SnapEdges::open(path, options, &[], None)?;
    let ids = if options.keep_ids { Ids::Dense(None) } else { Ids::Sparse };
    Ok(Raw::of(edges, ids, vec![path.to_path_buf()]))
}

/// The lines `source,target` of the file at `path`, which are `num_edges` by another file. Line i
/// of each table of `values` holds the numbers of edge i, for a column of the name given.
pub fn open_counted(
    path: &Path,
    num_edges: u64,
    values: &[(String, PathBuf)],
) -> Result<impl EdgeSource + use<>> {
    let header = PromisedCounts { line: None, nodes: None, edges: Some(num_edges) };
    let options = ReadOptions { keep_ids: true, ..ReadOptions::default() };
    SnapEdges::open(path, &options, values, Some(header))
}

/// An edge list on disk.
struct SnapEdges {
    path: PathBuf,
    keep_ids: bool,
    ignore_header: bool,
    bipartite: Option<Answer>,
    columns: Vec<EdgeColumn>,
    /// Whether a line has nothing after the columns.
    is_exact: bool,
    head: Head,
    estimate: Estimate,
    text: TextPieces,
    /// The first line with an edge, if it has columns that are ignored.
    more_columns: Option<u64>,
}

/// Lines up to the first edge.
struct Head {
    header: Option<PromisedCounts>,
    /// The first line with an edge, and the edge.
    first: Option<(u64, EdgeBatch)>,
}

/// Counts in the comment `# Nodes: N Edges: M`, or in another file.
#[derive(Clone, Copy)]
struct PromisedCounts {
    /// The line of the comment; `None` for counts of another file.
    line: Option<u64>,
    nodes: Option<u64>,
    edges: Option<u64>,
}

impl SnapEdges {
    fn open(
        path: &Path,
        options: &ReadOptions,
        values: &[(String, PathBuf)],
        header: Option<PromisedCounts>,
    ) -> Result<Self> {
        let text = TextPieces::pasted(path, values.iter().map(|(_, path)| path.clone()).collect());
        let wanted = options.schema.edge_columns().unwrap_or_default();
        let mut names: Vec<(&str, usize)> = wanted.iter().map(|name| (name.as_str(), 1)).collect();
        for (name, path) in values {
            let first = first_line(path)?.unwrap_or_default();
            names.push((name, fields(&first).count().max(1)));
        }
        let is_exact = !values.is_empty();
        let mut source = Self {
            path: path.to_path_buf(),
            keep_ids: options.keep_ids,
            ignore_header: options.schema.ignore_header == Some(Answer::Yes),
            bipartite: options.schema.bipartite,
            columns: columns(&text, &names, is_exact)?,
            is_exact,
            head: Head { header, first: None },
            estimate: Estimate::default(),
            text,
            more_columns: None,
        };
        source.read_head()?;
        Ok(source)
    }

    /// Reads up to the first edge, and estimates sizes from the piece that has it.
    fn read_head(&mut self) -> Result<()> {
        let mut stream = self.text.open()?;
        self.estimate.bytes = stream.len();
        let (mut piece, mut konect) = (Piece::default(), false);
        while self.head.first.is_none() && stream.next(&mut piece)? {
            for (number, line) in lines(&piece) {
                let line = line.trim_ascii();
                if line.starts_with(b"%") && super::mtx::recognises(&self.path, line) {
                    return Err(Error::line(
                        &self.path,
                        number,
                        "a Matrix Market file, expected an edge list",
                    ));
                }
                if is_edge(line) {
                    let mut batch = EdgeBatch::default();
                    self.edge(line, &mut batch)
                        .map_err(|problem| Error::line(&self.path, number, problem))?;
                    let has_more = self.columns.is_empty() && fields(line).nth(2).is_some();
                    self.more_columns = has_more.then_some(number);
                    self.head.first = Some((number, batch));
                    self.estimate(&piece, stream.text_len())?;
                    break;
                }
                self.head.header =
                    self.head.header.or_else(|| header(number, line)).or_else(|| {
                        let promised = konect.then(|| konect_counts(number, line)).flatten();
                        konect = false;
                        promised
                    });
                konect |= is_konect(line);
                if self.bipartite.is_none() && line.starts_with(b"% bip") {
                    let problem = "`% bip` says that sources and targets are two kinds of vertices, whose numbers may be the same: pass \
                                   --bipartite to keep them apart, or --bipartite=no if they are \
                                   of one kind";
                    return Err(Error::line(&self.path, number, problem));
                }
            }
        }
        // A weighted list has no bare header, nor has a list whose comment gives its length.
        if self.ignore_header
            || self.head.header.is_some()
            || !self.columns.is_empty()
            || self.more_columns.is_some()
            || self.bipartite == Some(Answer::Yes)
        {
            self.head.first = None;
        }
        self.head.header = self.head.header.filter(|_| !self.ignore_header);
        match self.head.header {
            Some(PromisedCounts { line: Some(line), nodes: Some(nodes), .. })
                if self.keep_ids && nodes > u32::MAX.into() =>
            {
                Err(Error::line(
                    &self.path,
                    line,
                    format!("{nodes} vertices: at most {} are supported", u32::MAX),
                ))
            }
            _ => Ok(()),
        }
    }

    fn estimate(&mut self, piece: &Piece, text_len: u64) -> Result<()> {
        let mut batch = EdgeBatch::default();
        let from = memchr::memchr(b'\n', &piece.bytes).map_or(0, |end| end + 1);
        self.edges(&piece.bytes, from, piece.start + 1, &mut batch)?;
        let line_bytes = (piece.bytes.len() / batch.len().max(1)).max(1) as u64;
        let promised = self.head.header;
        self.estimate.edges =
            promised.and_then(|header| header.edges).unwrap_or(text_len / line_bytes).min(text_len);
        let largest = batch.sources.iter().chain(&batch.targets).max().copied().unwrap_or(0);
        let named = promised.and_then(|header| header.nodes).unwrap_or(0);
        self.estimate.vertices = named.max(largest).saturating_add(1).min(1 << 32);
        Ok(())
    }

    /// Appends the edges of `text` from byte `at` on; that is line `line`.
    fn edges(&self, text: &[u8], mut at: usize, line: u64, batch: &mut EdgeBatch) -> Result<()> {
        let (first, plain) = (at, self.columns.is_empty());
        while at < text.len() {
            if plain && let Some((source, target, end)) = plain_edge(text, at) {
                batch.push(source, target);
                at = end;
                continue;
            }
            let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |end| at + end);
            let trimmed = text[at..end].trim_ascii();
            if is_edge(trimmed) {
                let number = || line + memchr::memchr_iter(b'\n', &text[first..at]).count() as u64;
                self.edge(trimmed, batch)
                    .map_err(|problem| Error::line(&self.path, number(), problem))?;
            }
            at = end + 1;
        }
        Ok(())
    }

    /// Appends the edge of one line, or returns the problem.
    fn edge(&self, line: &[u8], batch: &mut EdgeBatch) -> Result<(), String> {
        let mut fields = fields(line);
        let mut id = || {
            let field = fields
                .next()
                .ok_or("expected two vertex ids, found less: truncated or damaged?")?;
            unsigned(field).ok_or_else(|| {
                format!("expected a vertex id, a number from 0 to 2^64-1, found {}", shown(field))
            })
        };
        let (source, target) = (id()?, id()?);
        let each = self.columns.iter().flat_map(|column| std::iter::repeat_n(column, column.width));
        for column in each {
            let field = fields
                .next()
                .ok_or_else(|| format!("expected a value of {}, found none", column.name))?;
            let at = batch.values.len();
            batch.values.resize(at + column.value.bytes(), 0);
            write_number(field, column.value, &mut batch.values[at..])
                .map_err(|problem| format!("column `{}`: {problem}", column.name))?;
        }
        if self.is_exact && fields.next().is_some() {
            return Err("more numbers of the edge than of the first".into());
        }
        batch.push(source, target);
        Ok(())
    }

    /// The error of a header that promises other counts than follow.
    fn wrong_header(&self, line: Option<u64>, promised: &str, found: &str, remedy: &str) -> Error {
        let problem = format!(
            "the header promises {promised}, {found}: the file is truncated or damaged (download \
             it again), or pass {remedy}"
        );
        Error::Input { path: self.path.clone(), line, problem }
    }

    /// Compares the number of nodes in the header with the ids. Returns it if ids are kept: because
    /// the user asks for it, or because all are below it and some have no edges, which a list with
    /// a checked number of edges allows.
    fn check_nodes(
        &self,
        header: PromisedCounts,
        promised: u64,
        seen: &Seen,
    ) -> Result<Option<u64>> {
        let found = seen.distinct.unwrap_or(promised);
        let end = seen.largest.map_or(0, |largest| largest.saturating_add(1));
        let isolated = found < promised && end <= promised;
        if isolated && (self.keep_ids || header.edges.is_some()) {
            return Ok(Some(promised));
        }
        if promised == found {
            return Ok(self.keep_ids.then(|| promised.max(end)));
        }
        let remedy = if isolated {
            "--keep-ids if the others have no edges, or --schema ignore-header=yes"
        } else {
            "--schema ignore-header=yes"
        };
        let found = format!("the edges name {found}");
        Err(self.wrong_header(header.line, &counted(promised, "node"), &found, remedy))
    }

    /// Decides whether the first line, which has been left out so far, is a header.
    fn bare_header(&self, number: u64, line: &EdgeBatch, seen: &Seen) -> Result<Ending> {
        let (n, m, found) = (line.sources[0], line.targets[0], seen.edges);
        let below = found > 0 && seen.largest.is_none_or(|largest| largest < n);
        let from_one = found > 0 && seen.largest == Some(n) && !seen.has_zero;
        let counts = format!("{n} vertices and {}", counted(m, "edge"));
        if m == found && from_one && m <= n {
            let problem = format!(
                "may be a header of {counts}, or an edge: pass --schema ignore-header=yes if it is \
                 an edge, or begin the line with # if it is not"
            );
            return Err(Error::line(&self.path, number, problem));
        }
        if m == found && (below || from_one) {
            let place = format!("{}, line {number}", self.path.display());
            let ids = if from_one { ", whose ids count from 1" } else { "" };
            let note = format!(
                "note: {place}: taken for a header, {counts}{ids}; pass --schema ignore-header=yes \
                 if it is an edge"
            );
            let [num_vertices, last_id] =
                [(below, n), (from_one, n)].map(|(is, n)| is.then_some(n));
            return Ok(Ending {
                num_vertices,
                last_id,
                decisions: vec![note],
                ..Ending::default()
            });
        }
        if below && n < m {
            let problem = format!(
                "looks like a header of {counts}, but {} follow: the file is truncated or damaged \
                 (download it again), or pass \
                 --schema ignore-header=yes if this line is an edge",
                counted(found, "edge")
            );
            return Err(Error::line(&self.path, number, problem));
        }
        let mut first = EdgeBatch::default();
        first.push(n, m);
        Ok(Ending { first, ..Ending::default() })
    }
}

/// The columns of these names and widths after the two ids, with the types found in the first piece
/// with edges; floats become f32 if they are `short`.
fn columns(text: &TextPieces, names: &[(&str, usize)], short: bool) -> Result<Vec<EdgeColumn>> {
    let mut kinds = vec![CellKinds::default(); names.len()];
    let (mut stream, mut piece, mut found) = (text.open()?, Piece::default(), names.is_empty());
    while !found && stream.next(&mut piece)? {
        for (_, line) in lines(&piece).filter(|(_, line)| is_edge(line.trim_ascii())) {
            found = true;
            let mut cells = fields(line).skip(2);
            for (kinds, (_, width)) in kinds.iter_mut().zip(names) {
                for cell in cells.by_ref().take(*width) {
                    kinds.add(cell);
                }
            }
        }
    }
    let value = |kinds: CellKinds| match kinds.kind().value().unwrap_or(ValueType::F64) {
        ValueType::F64 if short => ValueType::F32,
        value => value,
    };
    let each = names.iter().zip(kinds);
    Ok(each.map(|(&(name, width), kind)| EdgeColumn::of(name.into(), value(kind), width)).collect())
}

/// Whether a line is neither empty nor a comment.
fn is_edge(line: &[u8]) -> bool {
    !matches!(line.first(), None | Some(b'#' | b'%'))
}

/// Fields of a line.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(is_separator).filter(|field| !field.is_empty())
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',')
}

/// The edge at byte `at`, if its line is two numbers with one separator between them, and the start
/// of the next line.
fn plain_edge(text: &[u8], at: usize) -> Option<(u64, u64, usize)> {
    let (source, digits) = leading_unsigned(&text[at..])?;
    let at = at + digits;
    if !is_separator(text.get(at)?) {
        return None;
    }
    let (target, digits) = leading_unsigned(&text[at + 1..])?;
    let end = at + 1 + digits;
    match text.get(end..)? {
        [b'\n', ..] => Some((source, target, end + 1)),
        [b'\r', b'\n', ..] => Some((source, target, end + 2)),
        _ => None,
    }
}

impl EdgeSource for SnapEdges {
    pass_on!(text: rewind, next, bytes_done);

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        match &self.head.first {
            Some((first, _)) if (piece.start..piece.end.max(piece.start + 1)).contains(first) => {
                // The first edge is handed out at the end.
                let skipped = (first - piece.start) as usize;
                let from = memchr::memchr_iter(b'\n', &piece.bytes)
                    .nth(skipped)
                    .map_or(piece.bytes.len(), |end| end + 1);
                self.edges(&piece.bytes, from, first + 1, batch)
            }
            _ => self.edges(&piece.bytes, 0, piece.start, batch),
        }
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        let mut ending = Ending::default();
        if let Some(header) = self.head.header {
            if let Some(promised) = header.edges.filter(|&promised| promised != seen.edges) {
                let (promised, found) =
                    (counted(promised, "edge"), format!("{} follow", seen.edges));
                return Err(self.wrong_header(
                    header.line,
                    &promised,
                    &found,
                    "--schema \
                                                                              ignore-header=yes",
                ));
            }
            if let Some(promised) = header.nodes {
                ending.num_vertices = self.check_nodes(header, promised, seen)?;
                if !self.keep_ids && ending.num_vertices.is_some() {
                    ending.decisions.push(format!(
                        "note: {}, line {}: {promised} nodes, of which some have no edges: ids are \
                         taken as they are",
                        self.path.display(),
                        header.line.unwrap_or(0)
                    ));
                }
            }
        }
        if let Some((number, line)) = &self.head.first {
            ending = self.bare_header(*number, line, seen)?;
        }
        if seen.edges == 0 && ending.first.is_empty() {
            return Err(Error::input(&self.path, "no edges: expected lines of two vertex ids"));
        }
        if let Some(n) = ending.num_vertices.or(ending.last_id) {
            check_size(&self.path, n as usize, seen.edges)?;
        }
        if let Some(line) = self.more_columns {
            ending.decisions.push(format!(
                "note: {}, line {line}: more than two columns; those after the second are ignored: \
                 name them with \
                 --edge-columns to keep them",
                self.path.display()
            ));
        }
        Ok(ending)
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(self.estimate)
    }
}

/// Parses the comment `# Nodes: N Edges: M`, in either order, or with only one of the two.
fn header(line: u64, comment: &[u8]) -> Option<PromisedCounts> {
    let comment = std::str::from_utf8(comment).ok()?;
    let mut words =
        comment.split([' ', '\t', '#', '%', ',']).filter(|word| !word.is_empty()).peekable();
    let mut header = PromisedCounts { line: Some(line), nodes: None, edges: None };
    while let Some(word) = words.next() {
        let count = words.peek().and_then(|word| unsigned(word.as_bytes()));
        match word.to_ascii_lowercase().as_str() {
            "nodes:" => header.nodes = count,
            "edges:" => header.edges = count,
            _ => {}
        }
    }
    (header.nodes.is_some() || header.edges.is_some()).then_some(header)
}

/// Whether a comment is the first line of a KONECT file: `% FORMAT WEIGHTS`.
fn is_konect(comment: &[u8]) -> bool {
    let mut words = words(comment);
    words.next() == Some(b"%") && matches!(words.next(), Some(b"sym" | b"asym" | b"bip"))
}

/// Parses KONECT's second comment `% EDGES [SOURCES TARGETS]`.
fn konect_counts(line: u64, comment: &[u8]) -> Option<PromisedCounts> {
    let counts: Option<Vec<u64>> = words(comment.strip_prefix(b"%")?).map(unsigned).collect();
    let edges = counts.filter(|counts| (1..=3).contains(&counts.len()))?.first().copied();
    Some(PromisedCounts { line: Some(line), nodes: None, edges })
}

#[cfg(test)]
mod tests;
