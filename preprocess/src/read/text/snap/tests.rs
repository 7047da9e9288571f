//! SNAP edge lists as users bring them, each converted whole.

use gsplit_store::{Dataset, Notes};

use super::*;
use crate::convert::{ConvertOptions, Format, convert};
use crate::csc::BuildOptions;
use crate::read::options::{Answer, ReadOptions, Schema};

struct Flags {
    keep_ids: bool,
    ignore_header: bool,
}
const PLAIN: Flags = Flags { keep_ids: false, ignore_header: false };
const KEEP: Flags = Flags { keep_ids: true, ignore_header: false };
const IGNORE: Flags = Flags { keep_ids: false, ignore_header: true };

/// A dataset, and its temporary folder.
struct Made {
    dataset: Dataset,
    _folder: tempfile::TempDir,
}

impl std::ops::Deref for Made {
    type Target = Dataset;

    fn deref(&self) -> &Dataset {
        &self.dataset
    }
}

fn read_text(text: &str, flags: Flags) -> (Result<Made>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("edges.txt");
    std::fs::write(&file, text).unwrap();
    let notes = Notes::default();
    let Flags { keep_ids, ignore_header } = flags;
    let options = ConvertOptions {
        format: Some(Format::Snap),
        read: ReadOptions {
            keep_ids,
            ..Schema { ignore_header: ignore_header.then_some(Answer::Yes), ..Schema::default() }
                .into()
        },
        build: BuildOptions { keep_duplicates: true, ..BuildOptions::default() },
        ..ConvertOptions::default()
    };
    let dataset = convert(&file, &folder.path().join("ds"), &options, false, &notes);
    let dataset = dataset.map(|(dataset, _)| Made { dataset, _folder: folder });
    (dataset, notes.lines())
}

/// The edges, by target and then source.
fn edges(dataset: &Dataset) -> Vec<(u32, u32)> {
    let vertices = 0..dataset.num_vertices() as u32;
    vertices
        .flat_map(|v| dataset.topology().in_neighbours(v).iter().map(move |&u| (u, v)))
        .collect()
}

fn original_ids(dataset: &Dataset) -> Option<Vec<u64>> {
    dataset.original_ids().unwrap().map(|ids| ids.to_vec())
}

#[test]
fn every_separator_comment_and_line_end() {
    let text = "# hello\r\n% there\r\n0\t1\r\n 1 2 \r\n\r\n2,0\r\n2 , 1\r\n1\t \t1";
    let (raw, notes) = read_text(text, PLAIN);
    let raw = raw.unwrap();
    assert_eq!(edges(&raw), [(2, 0), (0, 1), (1, 1), (2, 1), (1, 2)]);
    assert_eq!((raw.num_vertices(), original_ids(&raw)), (3, None));
    assert!(notes.is_empty());
}

#[test]
fn gaps_are_compacted_in_order_or_kept() {
    let text = format!("{} 7\n7 100\n", u64::MAX);
    let raw = read_text(&text, PLAIN).0.unwrap();
    assert_eq!(edges(&raw), [(2, 0), (0, 1)]);
    assert_eq!(original_ids(&raw).unwrap(), [7, 100, u64::MAX]);
    let message = read_text(&text, KEEP).0.err().unwrap().to_string();
    assert!(
        message.contains("vertex id 18446744073709551615 is too large for --keep-ids"),
        "{message}"
    );
    let raw = read_text("1 3\n", KEEP).0.unwrap();
    assert_eq!((edges(&raw), raw.num_vertices(), original_ids(&raw)), (vec![(1, 3)], 4, None));
}

#[test]
fn further_columns_are_ignored_with_one_note() {
    let (raw, notes) = read_text("# x\n0 1 0.5 9\n1 2\n2 0 x\n", PLAIN);
    assert_eq!(edges(&raw.unwrap()), [(2, 0), (0, 1), (1, 2)]);
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
        (comment(2, 3), PLAIN, Err("or pass --schema ignore-header=yes")),
        (comment(9, 3), PLAIN, Ok(9)),
        (
            "# Nodes: 9\n0 1\n1 5\n5 1\n".into(),
            PLAIN,
            Err("or pass --keep-ids if the others have no edges"),
        ),
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
            Err("like a header of 6 vertices and 9 edges, but 3 edges"),
        ),
        ("6 9\n0 1\n1 5\n5 1\n".into(), IGNORE, Ok(5)),
        ("6 9\n".into(), PLAIN, Ok(2)),
        ("3 4\n1 2\n2 3\n3 1\n1 3\n".into(), PLAIN, Ok(3)),
        ("5 6\n1 2\n2 5\n5 1\n1 5\n2 1\n5 2\n".into(), PLAIN, Ok(5)),
        ("5 6\n1 2\n2 5\n5 1\n1 5\n2 1\n5 2\n".into(), IGNORE, Ok(4)),
        (
            "5 3\n1 2\n2 5\n5 1\n".into(),
            PLAIN,
            Err("line 1: may be a header of 5 vertices and 3 edges, or"),
        ),
        ("5 3\n1 2\n2 5\n5 1\n".into(), IGNORE, Ok(4)),
    ];
    for (text, flags, expected) in table {
        let flags = Flags { ..*flags };
        match (read_text(text, flags).0, expected) {
            (Ok(raw), Ok(n)) => assert_eq!(raw.num_vertices(), *n, "{text}"),
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
    assert_eq!((edges(&raw), raw.num_vertices(), original_ids(&raw)), (vec![(0, 1)], 6, None));
    assert!(notes[0].contains("line 1: taken for a header, 6 vertices and 1 edge;"), "{notes:?}");
    let (raw, notes) = read_text("5 6\n1 2\n2 5\n5 1\n1 5\n2 1\n5 2\n", PLAIN);
    let raw = raw.unwrap();
    assert_eq!(
        (edges(&raw).len(), original_ids(&raw)),
        (6, Some(vec![1, 2, 3, 4, 5])),
        "3 and 4 have no edges"
    );
    assert!(notes[0].contains("5 vertices and 6 edges, whose ids count from 1;"), "{notes:?}");
}
