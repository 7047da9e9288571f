//! Detects the kind of a text file by its first lines.
//!
//! | lines | kind |
//! | --- | --- |
//! | two unsigned numbers first, further fields or none | an edge list |
//! | only unsigned numbers, of unequal length, each line beginning with another | an adjacency list |
//! | as many fields in every line, not numbers; or any in a file called `.csv` or `.tsv` | a table |
//! | zeros and ones, ids and labels, points, many columns of numbers | none: refused by name |
//!
//! If a file could be of two kinds, the user is asked.

use std::borrow::Cow;
use std::collections::HashSet;

use super::BYTE_ORDER_MARK;
use super::field::{is_padded, real, shown, unsigned};
use super::line::{Delimiter, cells};

/// Maximum number of lines that are read.
pub const MAX_LINES: usize = 1000;
/// Minimum number of lines to recognise a file of ids and labels.
const FEW_LINES: usize = 8;
/// Maximum number of columns of an edge list.
const MAX_EDGE_FIELDS: usize = 8;

/// The fields of a line.
pub type Fields<'a> = Vec<Cow<'a, [u8]>>;

/// The first lines of a file, cut into fields.
pub struct Sketch<'a> {
    /// Mark between the fields.
    pub delimiter: Delimiter,
    /// Lines that are neither empty nor comments, with their numbers.
    pub rows: Vec<(u64, Fields<'a>)>,
    /// The first row as it is in the file.
    pub first: &'a [u8],
    /// Lines above the header that are titles, with their numbers.
    pub titles: Vec<(u64, &'a [u8])>,
    /// The last comment before them, with its number.
    pub comment: Option<(u64, &'a [u8])>,
    /// Whether all rows have as many fields.
    pub is_even: bool,
    /// The first line that cannot be cut, and the reason.
    pub problem: Option<(u64, String)>,
    /// Whether a field is in quotes.
    is_quoted: bool,
}

/// Kind of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Lines of two numbers and more.
    EdgeList,
    /// Lines of a vertex and its neighbours.
    AdjacencyList,
    /// Lines of as many fields.
    Table,
}

/// Whether a line is a comment.
pub fn is_comment(line: &[u8]) -> bool {
    matches!(line.first(), Some(b'#' | b'%'))
}

impl<'a> Sketch<'a> {
    /// Cuts the whole lines of `head` by `delimiter`, or by the one that suits them.
    pub fn of(head: &'a [u8], delimiter: Option<Delimiter>) -> Self {
        let head = head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head);
        let (mut lines, mut comment) = (Vec::new(), None);
        for (number, line) in (1..).zip(head.split(|&byte| byte == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match line.trim_ascii_start() {
                [] => {}
                text if is_comment(text) && lines.is_empty() => comment = Some((number, text)),
                text if is_comment(text) => {}
                _ => lines.push((number, line)),
            }
            if lines.len() == MAX_LINES {
                break;
            }
        }
        let delimiter = delimiter.unwrap_or_else(|| suiting(&lines));
        let rest = lines.split_off(titles(&lines, delimiter));
        let (titles, lines) = (lines, rest);
        let (mut rows, mut problem) = (Vec::new(), None);
        for &(number, line) in &lines {
            match cells(line, delimiter) {
                Ok(cells) => rows.push((number, cells)),
                Err(wrong) => problem = problem.or(Some((number, wrong))),
            }
        }
        let is_even = rows.windows(2).all(|pair| pair[0].1.len() == pair[1].1.len());
        let first = lines.first().map_or(&b""[..], |(_, line)| line);
        Self {
            delimiter,
            rows,
            first,
            titles,
            comment,
            problem,
            is_even,
            is_quoted: lines.iter().any(|(_, line)| line.contains(&b'"')),
        }
    }

    /// Kind of the file, which is `named` a table; `None` if the lines are not a graph. The error
    /// is the problem, or the question.
    pub fn shape(&self, named: bool) -> Result<Option<Shape>, String> {
        let Some((_, first)) = self.rows.first() else { return Ok(None) };
        let fields = first.len();
        let all = |is: &dyn Fn(&[u8]) -> bool| {
            self.rows.iter().flat_map(|(_, row)| row).all(|cell| is(cell.trim_ascii()))
        };
        let are_ids = all(&|cell| unsigned(cell).is_some());
        let plain = !self.is_quoted
            && !matches!(self.delimiter, Delimiter::Colons | Delimiter::Byte(b';' | b'|'));
        let starts = |is: &dyn Fn(&[u8]) -> bool| {
            fields >= 2 && first[..2].iter().all(|cell| is(cell.trim_ascii()))
        };
        if self.rows.iter().all(|(_, row)| row[0].ends_with(b":")) {
            return Ok(Some(Shape::AdjacencyList));
        }
        if are_ids && !self.is_even {
            return self.uneven_numbers();
        }
        if fields < 2 {
            return if named && !self.is_even { Ok(Some(Shape::Table)) } else { Ok(None) };
        }
        if self.is_even && all(&|cell| real::<f64>(cell).is_some()) {
            self.refuse_numbers(fields, are_ids)?;
        }
        match starts(&|cell| unsigned(cell).is_some()) {
            true if plain && self.is_even && fields > MAX_EDGE_FIELDS => Err(format!(
                "lines of {fields} fields: features of vertices? pass --format snap if the first \
                 two are the ends of an edge"
            )),
            // The reader of tables asks about their zeros.
            true if plain && named && self.has_padded_ids() => Ok(Some(Shape::Table)),
            true if plain => Ok(Some(Shape::EdgeList)),
            _ if self.is_even || named => Ok(Some(Shape::Table)),
            _ => Ok(None),
        }
    }

    /// Whether an id has zeros before it.
    fn has_padded_ids(&self) -> bool {
        self.rows.iter().any(|(_, row)| row.iter().take(2).any(|cell| is_padded(cell.trim_ascii())))
    }

    /// Kind of unsigned numbers in lines of unequal length.
    fn uneven_numbers(&self) -> Result<Option<Shape>, String> {
        let heads: HashSet<&[u8]> =
            self.rows.iter().filter_map(|(_, row)| row.first().map(AsRef::as_ref)).collect();
        let [least, most] = self.lengths();
        let two_or_three = least == 2 && most == 3;
        if let Some(fields) = self.counted() {
            return Err(format!(
                "line {} counts the lines below, which have {fields} numbers each: begin it with # \
                 and pass --format snap if the first two are the ends of an edge (OpenKE: head, \
                 tail, relation), or pass --format adjlist if each line is a vertex and its \
                 neighbours",
                self.rows[0].0
            ));
        }
        match heads.len() == self.rows.len() {
            true if !two_or_three || self.rows.len() >= FEW_LINES => Ok(Some(Shape::AdjacencyList)),
            false if two_or_three => Ok(Some(Shape::EdgeList)),
            _ => Err(format!(
                "lines of {least} to {most} numbers: pass --format adjlist if a line is a vertex \
                 and its neighbours, or --format snap if it is an edge and further numbers"
            )),
        }
    }

    /// Number of fields of the rows after the first, where that is their count and all are equally
    /// long.
    fn counted(&self) -> Option<usize> {
        let [(_, first), rows @ ..] = &self.rows[..] else { return None };
        let [count] = &first[..] else { return None };
        let fields = rows.first().map(|(_, row)| row.len()).filter(|&fields| fields > 1)?;
        let (count, found) = (unsigned(count.trim_ascii())?, rows.len() as u64);
        let fits = count == found || (self.rows.len() == MAX_LINES && count > found);
        (fits && rows.iter().all(|(_, row)| row.len() == fields)).then_some(fields)
    }

    /// The least and the most fields of a line.
    pub fn lengths(&self) -> [usize; 2] {
        let lengths = || self.rows.iter().map(|(_, row)| row.len());
        [lengths().min().unwrap_or(0), lengths().max().unwrap_or(0)]
    }

    /// Refuses lines of `fields` numbers each that are known to be something else than edges.
    fn refuse_numbers(&self, fields: usize, are_ids: bool) -> Result<(), String> {
        let is = |cell: &[u8], wanted: &[f64]| {
            real::<f64>(cell.trim_ascii()).is_some_and(|value| wanted.contains(&value))
        };
        let bits = self.rows.iter().all(|(_, row)| row.iter().all(|cell| is(cell, &[0.0, 1.0])));
        if bits && fields > 2 && (self.rows.len() == fields || fields > 3) {
            return Err(format!(
                "a matrix of zeros and ones, {fields} columns: expected edges. NumPy writes them: \
                 `numpy.savetxt('edges.txt', numpy.argwhere(numpy.loadtxt(FILE)), fmt='%d')`"
            ));
        }
        let has_fraction = |cell: &&Cow<[u8]>| {
            real::<f64>(cell.trim_ascii()).is_some_and(|value| value.fract() != 0.0)
        };
        let fraction = |(line, row): &(u64, Fields<'a>)| {
            Some((*line, row.iter().take(2).find(has_fraction)?.clone()))
        };
        if let Some((line, cell)) = self.rows.iter().find_map(fraction) {
            return Err(format!(
                "{} in line {line}, in the first two columns: points or features? expected the ids \
                 of edges",
                shown(cell.trim_ascii())
            ));
        }
        if fields == 2 && are_ids && self.is_numbered() {
            return Err(
                "the first column counts the lines, the second has few values: labels of vertices? \
                 they come with --nodes; pass --format snap if the lines are edges"
                    .into(),
            );
        }
        Ok(())
    }

    /// Whether the first column counts the lines, from 0 or 1, and the second has few values.
    fn is_numbered(&self) -> bool {
        let number = |row: &Fields<'_>, at: usize| unsigned(row[at].trim_ascii()).unwrap_or(0);
        let start = number(&self.rows[0].1, 0);
        let counts =
            (start..).zip(&self.rows).all(|(expected, (_, row))| number(row, 0) == expected);
        let values: HashSet<u64> = self.rows.iter().map(|(_, row)| number(row, 1)).collect();
        start <= 1 && counts && self.rows.len() >= FEW_LINES && values.len() * 4 <= self.rows.len()
    }
}

/// The delimiter that cuts all `lines` into as many fields, at least two; else the one that comes
/// most often.
fn suiting(lines: &[(u64, &[u8])]) -> Delimiter {
    let counts = |delimiter: Delimiter| {
        lines.iter().map(move |(_, line)| cells(line, delimiter).map_or(0, |cells| cells.len()))
    };
    let is_even = |&delimiter: &Delimiter| {
        let first = counts(delimiter).next().unwrap_or(0);
        first > 1 && counts(delimiter).all(|count| count == first)
    };
    let below_titles =
        || Delimiter::ALL.into_iter().find(|&delimiter| titles(lines, delimiter) > 0);
    let most =
        || Delimiter::ALL.into_iter().max_by_key(|&delimiter| counts(delimiter).sum::<usize>());
    Delimiter::ALL
        .into_iter()
        .find(is_even)
        .or_else(below_titles)
        .or_else(most)
        .unwrap_or(Delimiter::Blanks)
}

/// Number of `lines` above the header that are titles: text in at most half of the fields that all
/// lines from the header on have. The header has words in all of its fields.
fn titles(lines: &[(u64, &[u8])], delimiter: Delimiter) -> usize {
    const MAX_TITLES: usize = 10;
    let cut = |at: usize| cells(lines.get(at)?.1, delimiter).ok();
    let is_blank = |cell: &Cow<'_, [u8]>| cell.trim_ascii().is_empty();
    let is_word =
        |cell: &Cow<'_, [u8]>| !is_blank(cell) && real::<f64>(cell.trim_ascii()).is_none();
    let filled =
        |cells: &Fields<'_>| cells.iter().rposition(|cell| !is_blank(cell)).map_or(0, |at| at + 1);
    let last = lines.len().checked_sub(1).and_then(cut);
    let Some(fields) = last.map(|cells| cells.len()).filter(|&fields| fields >= 2) else {
        return 0;
    };
    let is_title = |&at: &usize| cut(at).is_some_and(|cells| 2 * filled(&cells) <= fields);
    let count = (0..=MAX_TITLES).take_while(is_title).count();
    let has_title = || cut(0).is_some_and(|cells| is_word(&cells[0]));
    if count == 0 || count > MAX_TITLES || count + 1 >= lines.len() || !has_title() {
        return 0;
    }
    let is_even =
        || (count..lines.len()).all(|at| cut(at).is_some_and(|cells| cells.len() == fields));
    let is_header = cut(count).is_some_and(|cells| cells[..filled(&cells)].iter().all(is_word));
    if is_header && is_even() { count } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_are_told_by_all_lines() {
        for (text, expected) in [
            ("a,b\nc,d\n", ","),
            ("a\tb c\nd\te f\n", "tab"),
            ("\"x,y\";z\n\"u\";v\n", ";"),
            ("x;1,5\ny;2,25\n", ";"),
            ("a|b,c|d\ne|f|g\n", "|"),
            ("a b c\nd  e f\n", "blank"),
            ("1::2::3\n4::5::6\n", "::"),
            ("1,2,2020-01-01 10:00\n3,4,2020-01-01 11:00\n", ","),
            ("1, 2\n3, 4\n", ","),
            ("id\n", "blank"),
            ("1,2\n3\n4,5,6\n", ","),
        ] {
            assert_eq!(
                Sketch::of(text.as_bytes(), None).delimiter.to_string(),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn titles_above_the_header_are_no_rows() {
        for (text, expected) in [
            ("Customers of 2024\nas of May, all\nid,age,city,plan\n1,2,Rome,a\n", 2),
            ("Customers,,,\n,,,\nid,age,city,plan\n1,2,Rome,a\n", 2),
            ("Edges of a graph\nsrc\tdst\na b\tc\n", 1),
            ("id,age,city,plan\n1,2,Rome,a\n", 0),
            ("id,age,,\n1,2,,\n", 0),
            ("a b c\n1 a b c\n2 a b c\n", 0),
            ("Title\n1,2\n3,4\n", 0),
            ("5\n1 2 3 4\n2 1\n", 0),
            ("Title\nsrc,dst\n", 0),
        ] {
            let sketch = Sketch::of(text.as_bytes(), None);
            assert_eq!(sketch.titles.len(), expected, "{text:?}");
            assert!(expected == 0 || sketch.rows[0].0 == expected as u64 + 1, "{text:?}");
        }
    }

    #[test]
    fn kinds_are_told_or_asked_for() {
        use Shape::*;
        let labels: String = (0..20).map(|v| format!("{v} {}\n", v % 3)).collect();
        let path: String = (0..20).map(|v| format!("{v} {}\n", v + 1)).collect();
        let content = format!("{}\n", ["7"; 40].join(" "));
        for (text, named, expected) in [
            ("1 2\n3 4\n", false, Ok(Some(EdgeList))),
            ("1,2\n3,4\n", true, Ok(Some(EdgeList))),
            ("\"1\",\"2\"\n", true, Ok(Some(Table))),
            ("1,2\n3,007\n", true, Ok(Some(Table))),
            ("1,2\n3,007\n", false, Ok(Some(EdgeList))),
            ("1;2\n", false, Ok(Some(Table))),
            ("1::2::3\n", false, Ok(Some(Table))),
            ("# x\n\n1 2 0.5\n3 4 0.1\n", false, Ok(Some(EdgeList))),
            ("1 2 7\n1 4\n", false, Ok(Some(EdgeList))),
            ("1 2 7\n2 4\n", false, Err("--format adjlist")),
            ("1 2 7 9\n1 4\n", false, Err("--format adjlist")),
            ("1 2 3 4\n2 1\n3\n", false, Ok(Some(AdjacencyList))),
            ("5\n1 2 3 4\n2 1\n", false, Ok(Some(AdjacencyList))),
            ("2\n1 2 3\n2 1 3\n", false, Err("line 1 counts the lines below, which have 3")),
            ("3\n1 2 3\n2 1 3\n", false, Ok(Some(AdjacencyList))),
            ("1: 2 3\n2: 1\n", false, Ok(Some(AdjacencyList))),
            ("TP53 MDM2 0.9\nA B 0.1\n", false, Ok(Some(Table))),
            ("alice,bob\nbob,carol,x\n", true, Ok(Some(Table))),
            ("It was a bright cold day\nin April\n", false, Ok(None)),
            ("1\n2\n", false, Ok(None)),
            ("0 1 1\n1 0 0\n1 0 0\n", false, Err("a matrix of zeros and ones, 3 columns")),
            ("0 1\n1 0\n", false, Ok(Some(EdgeList))),
            (
                "0.5 1.5\n0.25 2\n",
                false,
                Err("`0.5` in line 1, in the first two columns: points or features"),
            ),
            ("1.0,2.0\n2.0,3.0\n", true, Ok(Some(Table))),
            (&labels, false, Err("labels of vertices?")),
            (&path, false, Ok(Some(EdgeList))),
            (&content, false, Err("lines of 40 fields")),
            ("", false, Ok(None)),
        ] {
            let found = Sketch::of(text.as_bytes(), None).shape(named);
            match (&found, expected) {
                (Err(found), Err(expected)) => {
                    assert!(found.contains(expected), "{text:?}: {found}")
                }
                (found, expected) => {
                    assert_eq!(found.clone(), expected.map_err(String::from), "{text:?}")
                }
            }
        }
    }
}
