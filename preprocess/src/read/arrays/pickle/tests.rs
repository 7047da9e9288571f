use std::path::{Path, PathBuf};

use super::*;
use crate::read::golden::data;

fn file(folder: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("x.pt");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn ids(item: Item<'_>, name: &str) -> Result<(Vec<u64>, Vec<u64>)> {
    let numbers = item.numbers(name)?.unwrap();
    let (mut bytes, mut ids) = (Vec::new(), Vec::new());
    numbers.read_next(&mut *numbers.reader(0)?, numbers.len(), &mut bytes)?;
    numbers.dtype().ids(&bytes, &mut ids).map_err(|(_, problem)| numbers.error(problem))?;
    Ok((numbers.shape().to_vec(), ids))
}

fn names(dict: Item<'_>) -> Vec<&str> {
    dict.entries().unwrap().into_iter().map(|(name, _)| name).collect()
}

fn message(path: &Path) -> String {
    let message = Pickled::open(path).err().map(|error| error.to_string()).unwrap();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn arrays_of_every_container_and_protocol() {
    for form in ["zip", "numpy", "protocol-4", "legacy"] {
        let file = Pickled::open(&data(&format!("ogb-links/{form}/valid.pt"))).unwrap();
        let root = file.root();
        assert_eq!(names(root), ["edge", "year", "edge_neg"], "{form}");
        let of = |name| ids(root.get(name).unwrap(), name).unwrap();
        assert_eq!(of("edge"), (vec![2, 2], vec![2, 5, 1, 3]), "{form}");
        // Beyond 127: more than one byte of UTF-8 each in protocol 2.
        assert_eq!(of("year"), (vec![2], vec![2010, 2010]), "{form}");
        assert_eq!(of("edge_neg"), (vec![3, 2], vec![0, 5, 1, 5, 5, 3]), "{form}");
        assert!(root.get("gone").is_none());
        let edge = root.get("edge").unwrap().numbers("edge").unwrap().unwrap();
        let mut bytes = Vec::new();
        edge.read_next(&mut *edge.reader(3).unwrap(), 1, &mut bytes).unwrap();
        assert_eq!(bytes, 3u64.to_le_bytes(), "from the middle on");
    }
}

#[test]
fn plain_values_are_shared_and_nested() {
    let folder = tempfile::tempdir().unwrap();
    // {"a": [None, True, -2, (1,)], "b": the same list}, a list that holds itself, and a long
    // string.
    let pickle =
        b"\x80\x02}q\0(X\x01\0\0\0a]q\x01(N\x88J\xfe\xff\xff\xffK\x01\x85eX\x01\0\0\0bh\x01u.";
    let found = Pickled::open(&file(&folder, pickle)).unwrap();
    assert_eq!(names(found.root()), ["a", "b"]);
    assert_eq!(found.root().get("b").unwrap().what(), "a list");
    assert!(found.root().get("a").unwrap().numbers("a").unwrap().is_none());
    Pickled::open(&file(&folder, b"\x80\x02]q\0h\0a.")).unwrap();
    // A million lists within each other.
    let deep = [&b"\x80\x02"[..], &b"]".repeat(1_000_000), &b"a".repeat(999_999), b"."].concat();
    assert_eq!(Pickled::open(&file(&folder, &deep)).unwrap().root().what(), "a list");
}

#[test]
fn nothing_is_run_and_everything_else_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (pickle, words) in [
        (
            &b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R."[..],
            "posix.system, which this reader does not run",
        ),
        (b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.", "builtins.eval"),
        (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
            "a call of Tensor with other arguments",
        ),
        (b"\x80\x02cnumpy\nndarray\n)R.", "a type that is called"),
        (b"\x80\x02K\x01)R.", "a call of an integer"),
        (b"\x80\x02}}b.", "a state of a dict"),
        (b"\x80\x02K\x01Q.", "a reference to something other"),
        (b"\x80\x02cnumpy\n\n)\x81.", "numpy.,"),
        (
            b"\x80\x02cnumpy\ndtype\n)\x81.",
            "an object of a function or type: expected a csr_matrix or a Data",
        ),
        (
            b"\x80\x02ccollections\ndefaultdict\ncnumpy\ndtype\n\x85R.",
            "a call of DefaultDict with other",
        ),
        (b"\x80\x02)\x92.", "the instruction 0x92"),
        (b"\x80\x06N.", "pickle protocol 6"),
        (b"\x80\x02h\x05.", "refers to a missing value"),
        (b"\x80\x02.", "empty stack"),
        (b"\x80\x02(t0", "ends early"),
        (b"\x80\x02X\xff\xff\xff\xffabc", "ends early"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc", "ends early"),
    ] {
        let found = message(&file(&folder, pickle));
        assert!(
            found.contains(words) && found.contains("numpy.savez") && !found.contains("torch.load"),
            "{words}: {found}"
        );
    }
    assert!(message(&file(&folder, b"hello")).contains("expected what torch.save"));
    assert!(message(&file(&folder, b"")).contains("expected what torch.save"));
}

#[test]
fn what_a_file_claims_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let many = [&b"\x80\x02]("[..], &b"N".repeat(machine::MAX_NODES + 1), b"e."].concat();
    assert!(message(&file(&folder, &many)).contains("more than 1048576 values"));
    let shared = [&b"\x80\x02]N0(N"[..], &b"2".repeat(machine::MAX_ENTRIES), b"e."].concat();
    assert!(message(&file(&folder, &shared)).contains("values in all"));
    let text = [
        &b"\x80\x02]("[..],
        &[&b"X\x00\x04\0\0"[..], &[b'x'; 1024]].concat().repeat(20_000),
        b"e.",
    ]
    .concat();
    assert!(message(&file(&folder, &text)).contains("bytes of text"));
    // A shape that is larger than its bytes, in either memory order.
    for form in ["zip", "numpy", "protocol-4", "legacy"] {
        let path = data(&format!("ogb-links/{form}/test.pt"));
        let good = std::fs::read(&path).unwrap();
        // The shape (1, 2) becomes (1, 200).
        let at = good.windows(4).position(|bytes| bytes == b"K\x01K\x02").unwrap();
        let bad = [&good[..at + 3], &[200], &good[at + 4..]].concat();
        let found = message(&file(&folder, &bad));
        assert!(
            found.contains("truncated or damaged") || found.contains("checksum"),
            "{form}: {found}"
        );
    }
}

#[test]
fn damage_is_refused_or_harmless() {
    let folder = tempfile::tempdir().unwrap();
    for form in ["zip", "numpy", "protocol-4", "legacy", "legacy-targets"] {
        let good = std::fs::read(data(&format!("ogb-links/{form}/valid.pt"))).unwrap();
        let mut bad = Vec::new();
        bad.extend((0..good.len()).step_by(3).map(|cut| good[..cut].to_vec()));
        bad.extend(
            (0..good.len())
                .map(|at| [&good[..at], &[good[at] ^ 1 << (at % 8)], &good[at + 1..]].concat()),
        );
        for bytes in bad {
            let Ok(found) = Pickled::open(&file(&folder, &bytes)) else { continue };
            for (_, item) in found.root().entries().unwrap_or_default() {
                if let Ok(Some(numbers)) = item.numbers("x") {
                    assert!(numbers.len() * 8 <= bytes.len() as u64 * 8);
                    let _ = numbers.reader(0).and_then(|mut reader| {
                        numbers.read_next(&mut *reader, numbers.len(), &mut Vec::new())
                    });
                }
            }
        }
    }
}

#[test]
fn strides_that_skip_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = data("ogb-links/legacy/valid.pt");
    let good = std::fs::read(&path).unwrap();
    let shape = b"K\x02K\x02\x86";
    let at = good.windows(5).position(|bytes| bytes == shape).unwrap();
    let stride =
        at + 5 + good[at + 5..].windows(5).position(|bytes| bytes == b"K\x02K\x01\x86").unwrap();
    let with = |strides: [u8; 2]| {
        [&good[..stride], &[b'K', strides[0], b'K', strides[1]], &good[stride + 4..]].concat()
    };
    let column_major = Pickled::open(&file(&folder, &with([1, 2]))).unwrap();
    assert!(
        column_major.root().get("edge").unwrap().numbers("edge").unwrap().unwrap().column_major()
    );
    assert!(message(&file(&folder, &with([0, 0]))).contains("expected .contiguous()"));
    assert!(message(&file(&folder, &with([3, 1]))).contains("expected .contiguous()"));
}
