//! SNAP edge lists: one edge a line, `u v` for u -> v, so that u is an in-neighbour of v.
//!
//! Plain or gzip. Ids are unsigned 64-bit numbers separated by tabs, blanks or commas; further columns (weights, times)
//! are ignored. `#` and `%` start comments; line ends may be CRLF. Ids are compacted in ascending order.
//!
//! Two kinds of header are checked against the edges:
//! * a comment `# Nodes: N Edges: M`: M lines must follow with N distinct ids;
//! * a bare first line `n m`: taken for a header exactly when m lines follow and all their ids are below n, which is
//!   then the number of vertices. Where it names two ids above all others, the smaller first, it is taken for a header
//!   that lies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gsplit_store::Progress;
use rayon::prelude::*;
use serde::Serialize;

use super::field::{shown, unsigned};
use super::ids::IdSet;
use super::text::{lines, read_pieces};
use super::{Raw, check_size};
use crate::edges::Piece;
use crate::{Error, Result};

/// A SNAP edge list and how to take it.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct SnapSource {
    /// The edge list, plain or gzip: lines `FROM TO`, `#` starts a comment
    pub file: PathBuf,
    /// Keep vertex ids as they are: gaps become vertices without edges
    #[arg(long)]
    pub keep_ids: bool,
    /// Do not check the counts of a header `# Nodes: N Edges: M`, and take a first line `n m` for an edge
    #[arg(long)]
    pub ignore_header: bool,
}

/// What the comment `# Nodes: N Edges: M` promises.
#[derive(Clone, Copy)]
struct Header {
    line: u64,
    nodes: Option<u64>,
    edges: Option<u64>,
}

/// What some lines hold.
#[derive(Default)]
struct Lines {
    sources: Vec<u64>,
    targets: Vec<u64>,
    header: Option<Header>,
    /// The first line with an edge.
    first: Option<u64>,
    /// The first line with more than two columns.
    extra: Option<u64>,
}

/// Reads the whole edge list.
pub fn read(source: &SnapSource, progress: &dyn Progress) -> Result<Raw> {
    let path = &source.file;
    if path.is_dir() {
        let problem = "a folder, expected an edge list; for a folder that OGB unpacked, use `gsplit convert ogb`";
        return Err(Error::input(path, problem));
    }
    let mut all = Lines::default();
    let append = |lines| {
        all.append(lines);
        Ok(())
    };
    read_pieces(path, progress, |piece| parse(path, piece), append)?;
    if let Some(line) = all.extra {
        progress.note(&format!(
            "note: {}, line {line}: more than two columns; those after the second are ignored",
            path.display()
        ));
    }
    let header = all.header.filter(|_| !source.ignore_header);
    if let Some(header) = header {
        check_edges(path, header, all.sources.len() as u64)?;
    }
    let bare =
        if header.is_none() && !source.ignore_header { take_bare_header(path, &mut all, progress)? } else { None };
    if all.sources.is_empty() {
        return Err(Error::input(path, "no edges: expected lines of two vertex ids"));
    }
    number(source, all, header, bare)
}

impl Lines {
    fn append(&mut self, mut next: Lines) {
        self.sources.append(&mut next.sources);
        self.targets.append(&mut next.targets);
        self.header = self.header.or(next.header);
        self.first = self.first.or(next.first);
        self.extra = self.extra.or(next.extra);
    }
}

fn parse(path: &Path, piece: &Piece) -> Result<Lines> {
    let mut found = Lines::default();
    for (number, line) in lines(piece) {
        let line = line.trim_ascii();
        match line.first() {
            None => continue,
            Some(b'#' | b'%') => {
                if line.starts_with(b"%%MatrixMarket") {
                    return Err(Error::line(path, number, "a Matrix Market file, expected an edge list"));
                }
                found.header = found.header.or_else(|| header(number, line));
                continue;
            }
            Some(_) => {}
        }
        let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|field| !field.is_empty());
        let mut id = || {
            let field = fields.next().ok_or("expected two vertex ids, found less: truncated or damaged?")?;
            unsigned(field).ok_or_else(|| {
                let hint = if number == 1 { "; start a line of column names with #" } else { "" };
                format!("expected a vertex id, a number from 0 to 2^64-1, found {}{hint}", shown(field))
            })
        };
        let ids = id().and_then(|source| Ok((source, id()?)));
        let (source, target) = ids.map_err(|problem| Error::line(path, number, problem))?;
        found.sources.push(source);
        found.targets.push(target);
        found.first = found.first.or(Some(number));
        if found.extra.is_none() && fields.next().is_some() {
            found.extra = Some(number);
        }
    }
    Ok(found)
}

/// Understands the comment `# Nodes: N Edges: M`, in this order or the other, either alone.
fn header(line: u64, comment: &[u8]) -> Option<Header> {
    let comment = std::str::from_utf8(comment).ok()?;
    let mut words = comment.split([' ', '\t', '#', '%', ',']).filter(|word| !word.is_empty()).peekable();
    let mut header = Header { line, nodes: None, edges: None };
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

fn check_edges(path: &Path, header: Header, found: u64) -> Result<()> {
    match header.edges {
        Some(promised) if promised != found => Err(Error::line(
            path,
            header.line,
            format!(
                "the header promises {promised} edges, {found} follow: the file is truncated or damaged (download it again), \
                 or pass --ignore-header"
            ),
        )),
        _ => Ok(()),
    }
}

/// Takes a first line `n m` out of the edges when it is a header. Returns `n`.
fn take_bare_header(path: &Path, lines: &mut Lines, progress: &dyn Progress) -> Result<Option<u64>> {
    let (Some(line), [n, _, ..], [m, _, ..]) = (lines.first, &lines.sources[..], &lines.targets[..]) else {
        return Ok(None);
    };
    let (n, m, found) = (*n, *m, lines.sources.len() as u64 - 1);
    let largest = largest(&lines.sources[1..]).max(largest(&lines.targets[1..]));
    if m == found && largest < n {
        lines.sources.remove(0);
        lines.targets.remove(0);
        let place = format!("{}, line {line}", path.display());
        progress.note(&format!(
            "note: {place}: taken for a header, {n} vertices and {m} edges; pass --ignore-header if it is an edge"
        ));
        return Ok(Some(n));
    }
    if largest < n && n < m {
        let problem = format!(
            "looks like a header of {n} vertices and {m} edges, but {found} edges follow: the file is truncated or damaged \
             (download it again), or pass --ignore-header if this line is an edge"
        );
        return Err(Error::line(path, line, problem));
    }
    Ok(None)
}

fn largest(ids: &[u64]) -> u64 {
    ids.par_iter().copied().max().unwrap_or(0)
}

/// Gives every vertex its number.
fn number(source: &SnapSource, lines: Lines, header: Option<Header>, bare: Option<u64>) -> Result<Raw> {
    let Lines { sources, targets, .. } = lines;
    let largest = largest(&sources).max(largest(&targets));
    let ids = IdSet::new(&sources, &targets, largest);
    let promised = header.and_then(|header| header.nodes);
    if let (Some(header), Some(promised)) = (header, promised) {
        check_nodes(source, header.line, promised, ids.len(), largest)?;
    }
    let num_vertices = match bare {
        Some(n) => n,
        None if source.keep_ids => promised.unwrap_or(0).max(largest.saturating_add(1)),
        None => ids.len(),
    };
    if num_vertices > u64::from(u32::MAX) {
        let problem = match source.keep_ids && largest >= u64::from(u32::MAX) {
            true => format!("vertex id {largest} is too large for --keep-ids: expected ids below {}", u32::MAX),
            false => format!("{num_vertices} vertices: at most {} are supported", u32::MAX),
        };
        return Err(Error::input(&source.file, problem));
    }
    check_size(&source.file, num_vertices as usize, sources.len() as u64)?;
    let facts = BTreeMap::from([("edges_read".to_string(), sources.len() as u64)]);
    let kept = num_vertices > largest;
    let narrow = |list: Vec<u64>| match kept {
        true => list.into_par_iter().map(|id| id as u32).collect(),
        false => ids.ranks(list),
    };
    let (sources, targets) = (narrow(sources), narrow(targets));
    Ok(Raw {
        num_vertices: num_vertices as usize,
        sources,
        targets,
        original_ids: (!kept).then(|| ids.into_ids()),
        labels: None,
        splits: None,
        features: None,
        facts,
    })
}

fn check_nodes(source: &SnapSource, line: u64, promised: u64, found: u64, largest: u64) -> Result<()> {
    let isolated = found < promised && largest < promised;
    if promised == found || (isolated && source.keep_ids) {
        return Ok(());
    }
    let remedy =
        if isolated { "--keep-ids if the others have no edges, or --ignore-header" } else { "--ignore-header" };
    let problem = format!(
        "the header promises {promised} nodes, the edges name {found}: the file is truncated or damaged (download it again), \
         or pass {remedy}"
    );
    Err(Error::line(&source.file, line, problem))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use gsplit_store::{NoProgress, Stage, Unit};

    use super::*;

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Progress for Notes {
        fn stage(&self, name: &str, total: Option<u64>, unit: Unit) -> Box<dyn Stage> {
            NoProgress.stage(name, total, unit)
        }
        fn note(&self, line: &str) {
            self.0.lock().unwrap().push(line.to_string());
        }
    }

    struct Flags {
        keep_ids: bool,
        ignore_header: bool,
    }
    const PLAIN: Flags = Flags { keep_ids: false, ignore_header: false };
    const KEEP: Flags = Flags { keep_ids: true, ignore_header: false };
    const IGNORE: Flags = Flags { keep_ids: false, ignore_header: true };

    fn read_text(text: &str, flags: Flags) -> (Result<Raw>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("edges.txt");
        std::fs::write(&file, text).unwrap();
        let notes = Notes::default();
        let Flags { keep_ids, ignore_header } = flags;
        let raw = read(&SnapSource { file, keep_ids, ignore_header }, &notes);
        (raw, notes.0.into_inner().unwrap())
    }

    fn edges(raw: &Raw) -> Vec<(u32, u32)> {
        raw.sources.iter().copied().zip(raw.targets.iter().copied()).collect()
    }

    #[test]
    fn every_separator_comment_and_line_end() {
        let text = "# hello\r\n% there\r\n0\t1\r\n 1 2 \r\n\r\n2,0\r\n2 , 1\r\n1\t \t1";
        let (raw, notes) = read_text(text, PLAIN);
        let raw = raw.unwrap();
        assert_eq!(edges(&raw), [(0, 1), (1, 2), (2, 0), (2, 1), (1, 1)]);
        assert_eq!((raw.num_vertices, raw.original_ids), (3, None));
        assert!(notes.is_empty());
    }

    #[test]
    fn gaps_are_compacted_in_order_or_kept() {
        let text = format!("{} 7\n7 100\n", u64::MAX);
        let raw = read_text(&text, PLAIN).0.unwrap();
        assert_eq!(edges(&raw), [(2, 0), (0, 1)]);
        assert_eq!(raw.original_ids.unwrap(), [7, 100, u64::MAX]);
        let message = read_text(&text, KEEP).0.err().unwrap().to_string();
        assert!(message.contains("vertex id 18446744073709551615 is too large for --keep-ids"), "{message}");
        let raw = read_text("1 3\n", KEEP).0.unwrap();
        assert_eq!((edges(&raw), raw.num_vertices, raw.original_ids), (vec![(1, 3)], 4, None));
    }

    #[test]
    fn further_columns_are_ignored_with_one_note() {
        let (raw, notes) = read_text("0 1\n1 2 0.5 9\n2 0 x\n", PLAIN);
        assert_eq!(edges(&raw.unwrap()), [(0, 1), (1, 2), (2, 0)]);
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("edges.txt, line 2: more than two columns"), "{notes:?}");
    }

    #[test]
    fn headers_are_checked() {
        let comment = |nodes, edges| format!("# x\n# Nodes: {nodes} Edges: {edges}\n0 1\n1 5\n5 1\n");
        let table: &[(String, Flags, Result<usize, &str>)] = &[
            (comment(3, 3), PLAIN, Ok(3)),
            (comment(3, 4), PLAIN, Err("line 2: the header promises 4 edges, 3 follow")),
            (comment(4, 3), PLAIN, Err("line 2: the header promises 4 nodes, the edges name 3")),
            (comment(2, 3), PLAIN, Err("or pass --ignore-header")),
            (comment(9, 3), PLAIN, Err("or pass --keep-ids if the others have no edges")),
            (comment(9, 3), KEEP, Ok(9)),
            (comment(3, 3), KEEP, Ok(6)),
            (comment(2, 3), KEEP, Err("promises 2 nodes")),
            ("# Nodes: 5000000000\n0 1\n".into(), KEEP, Err("5000000000 vertices: at most")),
            (comment(4, 9), IGNORE, Ok(3)),
            ("# Edges: 2\n0 1\n".into(), PLAIN, Err("line 1: the header promises 2 edges, 1 follow")),
            ("6 3\n0 1\n1 5\n5 1\n".into(), PLAIN, Ok(6)),
            ("6 3\r\n0 1\r\n1 5\r\n5 1\r\n".into(), KEEP, Ok(6)),
            ("6 3\n0 1\n1 5\n5 1\n".into(), IGNORE, Ok(5)),
            ("5 3\n0 1\n1 5\n5 1\n".into(), PLAIN, Ok(4)), // 5 is an id below, so not a count
            ("6 3\n0 1\n1 5\n".into(), PLAIN, Ok(5)),      // an edge: nothing tells it from one
            (
                "6 9\n0 1\n1 5\n5 1\n".into(),
                PLAIN,
                Err("line 1: looks like a header of 6 vertices and 9 edges, but 3 edges"),
            ),
            ("6 9\n0 1\n1 5\n5 1\n".into(), IGNORE, Ok(5)),
            ("6 9\n".into(), PLAIN, Ok(2)),
        ];
        for (text, flags, expected) in table {
            let flags = Flags { ..*flags };
            match (read_text(text, flags).0, expected) {
                (Ok(raw), Ok(n)) => assert_eq!(raw.num_vertices, *n, "{text}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (Ok(_), Err(part)) => panic!("{text}: expected {part}"),
                (Err(error), Ok(_)) => panic!("{text}: {error}"),
            }
        }
    }

    #[test]
    fn a_bare_header_is_noted() {
        let (raw, notes) = read_text("6 1\n0 1\n", PLAIN);
        let raw = raw.unwrap();
        assert_eq!((edges(&raw), raw.num_vertices, raw.original_ids), (vec![(0, 1)], 6, None));
        assert!(notes[0].contains("line 1: taken for a header, 6 vertices and 1 edges"), "{notes:?}");
    }
}
