//! Reads arrays from Python pickles without executing them.
//!
//! A pickle is a program: loading one in Python runs whatever its author wrote. Here a small
//! interpreter ([`machine`]) knows only the instructions that build `None`, bools, integers,
//! floats, strings, bytes, lists, tuples and dicts, and the functions that rebuild arrays:
//!
//! ```text
//! torch._utils._rebuild_tensor_v2      a tensor: a part of a storage, which is stored outside of the pickle
//! collections.OrderedDict              the hooks of a tensor, always empty
//! numpy's _reconstruct, _frombuffer, ndarray, dtype      an array, whose bytes are in the pickle
//! scipy's csr_matrix                   a dict of its arrays
//! torch_geometric's Data               a dict of its attributes, which are in its GlobalStorage
//! collections.defaultdict of list      a dict
//! _codecs.encode                       bytes as protocol 2 writes them: a string of the characters 0 to 255
//! ```
//!
//! Anything else is refused by its name, with the line of Python that writes the same arrays as
//! `.npz`. Pickles of protocol 2 to 5 are read; `torch.save` and NumPy write no other.
//!
//! Three kinds of files hold pickles, distinguished by their first bytes:
//!
//! ```text
//! zip      torch.save since 1.6     NAME/data.pkl, and each storage as NAME/data/KEY, little-endian (NAME/byteorder)
//! legacy   torch.save before        pickles of a magic number, of 1001 and of facts about the machine; the object; a list of the
//!                                   storages' keys; for each of them its length as i64, and its elements
//! bare     pickle.dump              one pickle
//! ```
//!
//! Bytes of arrays are never held: their position is recorded, and they are streamed as
//! [`Numbers`]. Sizes are checked against the file when an array is rebuilt. The memory for a file
//! is bounded, whatever it claims, by [`machine::MAX_NODES`] values with [`machine::MAX_ENTRIES`]
//! entries, and [`machine::MAX_TEXT`] bytes of text. Each is counted before it is created, and the
//! time is proportional to the count. Values refer to others by number, so depth costs nothing.

mod build;
mod container;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::numbers::Dtype;
use super::numbers::{Numbers, Packed, Span};
use crate::{Error, Result};
use build::Bytes;
use container::Storages;
use machine::{Heap, Node};

/// A pickled value, opened.
pub struct Pickled {
    path: PathBuf,
    heap: Heap,
    root: u32,
    /// Position of the pickle's bytes.
    pickle: Packed,
    storages: Storages,
}

/// A value in a pickle.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    file: &'a Pickled,
    at: u32,
}

impl Pickled {
    /// Reads the values in the file at `path`; arrays are left in the file.
    pub fn open(path: &Path) -> Result<Self> {
        container::open(path)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The value as a whole.
    pub fn root(&self) -> Item<'_> {
        Item { file: self, at: self.root }
    }
}

impl<'a> Item<'a> {
    fn node(self) -> &'a Node {
        self.file.heap.node(self.at)
    }

    /// Description for messages.
    pub fn what(self) -> &'static str {
        self.node().what()
    }

    /// The text keys of a dict with their values, in order; a repeated key has its last value, as
    /// in Python. `None` for other values.
    pub fn entries(self) -> Option<Vec<(&'a str, Self)>> {
        let Node::Dict(pairs) = self.node() else { return None };
        let mut seen = HashSet::new();
        let named =
            pairs.iter().rev().filter_map(|&(key, at)| Some((self.file.heap.text(key)?, at)));
        let mut entries: Vec<_> = named.filter(|&(key, _)| seen.insert(key)).collect();
        entries.reverse();
        Some(entries.into_iter().map(|(key, at)| (key, Self { file: self.file, at })).collect())
    }

    /// The keys and values of a dict, in order; `None` for other values.
    pub fn pairs(self) -> Option<Vec<(Self, Self)>> {
        let Node::Dict(pairs) = self.node() else { return None };
        let item = |at| Self { file: self.file, at };
        Some(pairs.iter().map(|&(key, value)| (item(key), item(value))).collect())
    }

    /// The entries of a list or tuple; `None` if it is neither.
    pub fn list(self) -> Option<Vec<Self>> {
        let (Node::List(entries) | Node::Tuple(entries)) = self.node() else { return None };
        Some(entries.iter().map(|&at| Self { file: self.file, at }).collect())
    }

    /// The integer value, if it is an integer.
    pub fn int(self) -> Option<i64> {
        self.file.heap.int(self.at)
    }

    /// The value of the text key `name` in a dict; of several the last, as in Python.
    pub fn get(self, name: &str) -> Option<Self> {
        let Node::Dict(pairs) = self.node() else { return None };
        let found = pairs.iter().rev().find(|&&(key, _)| self.file.heap.text(key) == Some(name));
        found.map(|&(_, at)| Self { file: self.file, at })
    }

    /// The array, called `name` in messages; `None` if the value is not an array.
    pub fn numbers(self, name: &str) -> Result<Option<Numbers>> {
        let Node::Array(array) = self.node() else { return Ok(None) };
        let problem = |problem: String| Error::input(&self.file.path, format!("{name}: {problem}"));
        let dtype = Dtype::from_descr(&array.descr).map_err(problem)?;
        let (packed, span) = match &array.bytes {
            Bytes::InPickle(span) => (self.file.pickle.clone(), span.clone()),
            Bytes::Storage { key, first } => {
                let key = self.file.heap.text(*key).unwrap_or_default();
                let (packed, start) = self.file.storages.find(key).map_err(problem)?;
                let bytes = array.num_elements() * dtype.bytes() as u64;
                let start = start + first * dtype.bytes() as u64;
                if start.checked_add(bytes).is_none_or(|end| end > packed.bytes) {
                    let held = packed.bytes;
                    return Err(problem(format!(
                        "shape {:?} of {} from byte {start} of {held}: truncated or damaged, fetch \
                         or write it again",
                        array.shape, array.descr
                    )));
                }
                (packed, Span { start, latin1: false })
            }
        };
        let shape = array.shape.clone();
        Ok(Some(Numbers::within(
            &self.file.path,
            name,
            packed,
            span,
            dtype,
            shape,
            array.column_major,
        )))
    }
}

/// An error about the pickle at `path`, with a remedy in case it is undamaged. The remedy never
/// executes the pickle.
fn refused(path: &Path, problem: impl std::fmt::Display) -> Error {
    Error::input(
        path,
        format!(
            "{problem}; if it is not damaged, write its arrays as .npz where it was made, as \
             numpy.savez('graph.npz', edge_index=..., x=..., y=...)"
        ),
    )
}
