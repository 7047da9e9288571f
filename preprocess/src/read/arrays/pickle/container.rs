//! The files that contain pickles.

use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::machine::{self, Heap, Node, PickleInput};
use super::{Pickled, refused};
use crate::read::arrays::npz::Npz;
use crate::read::arrays::numbers::{Packed, Packing};
use crate::read::raw::element_bytes;
use crate::{Error, Result};
use gsplit_store::open_file;

/// First bytes of a file of `torch.save` before 1.6: the pickle of its magic number.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// Positions of the elements that are stored outside of the pickle, each with its first byte.
#[derive(Default)]
pub struct Storages(HashMap<String, (Packed, u64)>);

impl Storages {
    /// The storage `key`.
    pub fn find(&self, key: &str) -> Result<(Packed, u64), String> {
        let missing = || {
            format!(
                "its elements are not in the file (storage {}): truncated or damaged",
                key.escape_debug()
            )
        };
        self.0.get(key).cloned().ok_or_else(missing)
    }
}

/// Opens the file at `path`, in any of the three formats.
pub fn open(path: &Path) -> Result<Pickled> {
    let mut head = [0; 15];
    let mut file = open_file(path).map_err(Error::io(path))?;
    let bytes = file.metadata().map_err(Error::io(path))?.len();
    let read = (&mut file).take(head.len() as u64).read(&mut head).map_err(Error::io(path))?;
    let whole =
        Packed { start: 0, packed_bytes: bytes, bytes, packing: Packing::Stored, crc: None };
    match &head[..read] {
        [b'P', b'K', 3, 4, ..] => zip(path),
        start if start == LEGACY => legacy(path, whole),
        [0x80, ..] => bare(path, whole),
        _ => Err(Error::input(
            path,
            "expected what torch.save or pickle.dump writes: truncated or damaged?",
        )),
    }
}

fn bare(path: &Path, pickle: Packed) -> Result<Pickled> {
    let mut heap = Heap::default();
    let mut input = PickleInput::new(BufReader::new(pickle.open(path, false)?));
    let root = machine::run(&mut input, &mut heap).map_err(|problem| refused(path, problem))?;
    Ok(Pickled { path: path.to_path_buf(), heap, root, pickle, storages: Storages::default() })
}

fn zip(path: &Path) -> Result<Pickled> {
    let mut archive = Npz::open(path)?;
    let Some(name) = archive.ending("/data.pkl") else {
        let problem = "a zip archive without data.pkl: expected one that torch.save wrote";
        return Err(Error::input(path, problem));
    };
    let folder = name.trim_end_matches("data.pkl");
    if let Some(order) =
        archive.text(&format!("{folder}byteorder"))?.filter(|order| order != "little")
    {
        return Err(refused(path, format!("byte order {}: expected little", order.escape_debug())));
    }
    let pickle = archive.packed(&name)?;
    let mut input = PickleInput::new(BufReader::new(pickle.open(path, true)?));
    let mut heap = Heap::default();
    let root = machine::run(&mut input, &mut heap).map_err(|problem| refused(path, problem))?;
    input.finish().map_err(|problem| refused(path, problem))?;
    let mut storages = Storages::default();
    for (key, _) in heap.storages() {
        let member = format!("{folder}data/{key}");
        if !storages.0.contains_key(key) && archive.has(&member) {
            storages.0.insert(key.to_string(), (archive.packed(&member)?, 0));
        }
    }
    Ok(Pickled { path: path.to_path_buf(), heap, root, pickle, storages })
}

fn legacy(path: &Path, file: Packed) -> Result<Pickled> {
    let problem = |problem: String| refused(path, problem);
    let mut heap = Heap::default();
    let mut input = PickleInput::new(BufReader::new(file.open(path, false)?));
    let mut next = |heap: &mut Heap| machine::run(&mut input, heap).map_err(problem);
    let [_magic, protocol, _machine, root, keys] =
        [next(&mut heap)?, next(&mut heap)?, next(&mut heap)?, next(&mut heap)?, next(&mut heap)?];
    if heap.int(protocol) != Some(1001) {
        return Err(problem("an unknown version of torch.save".into()));
    }
    let Node::List(keys) = heap.node(keys) else {
        return Err(problem("no list of storages".into()));
    };
    let sizes: HashMap<&str, u64> =
        heap.storages().map(|(key, descr)| (key, element_bytes(descr) as u64)).collect();
    let mut storages = Storages::default();
    let mut at = input.at;
    let reader = open_file(path).map_err(Error::io(path))?;
    for &key in keys {
        let ended = || problem("the elements of a storage end early: truncated or damaged".into());
        let key = heap.text(key).ok_or_else(ended)?;
        // Torch does not write storages that no array refers to, so their size may stay unknown.
        let size = *sizes.get(key).ok_or_else(ended)?;
        let mut len = [0; 8];
        reader.read_exact_at(&mut len, at).map_err(|_| ended())?;
        let bytes = u64::from_le_bytes(len).checked_mul(size);
        let end =
            bytes.and_then(|bytes| (at + 8).checked_add(bytes)).filter(|&end| end <= file.bytes);
        let end = end.ok_or_else(ended)?;
        storages.0.insert(
            key.to_string(),
            (Packed { packed_bytes: end, bytes: end, ..file.clone() }, at + 8),
        );
        at = end;
    }
    drop(sizes);
    Ok(Pickled { path: path.to_path_buf(), heap, root, pickle: file, storages })
}
