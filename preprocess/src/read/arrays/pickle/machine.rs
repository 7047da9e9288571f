//! The interpreter of pickle protocols 2 to 5: instructions that build plain values, and calls that
//! `build` knows.
//!
//! Every value is a node of a [`Heap`] and refers to others by their numbers, as the stack and the
//! memo do. Payloads are skipped, except short text.

use std::collections::HashMap;
use std::io::Read;

use super::build::{self, Array, Global};

/// Maximum number of values.
pub const MAX_NODES: usize = 1 << 20;
/// Maximum number of entries of lists, tuples, dicts, the stack and the memo together.
pub const MAX_ENTRIES: usize = 1 << 22;
/// Maximum number of bytes of text in total.
pub const MAX_TEXT: usize = 1 << 24;
/// Maximum length of text that is held.
const HELD_TEXT: u64 = 1 << 10;

/// A value.
#[derive(Debug)]
pub enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float,
    /// Text or bytes.
    Raw(RawBytes),
    List(Vec<u32>),
    Tuple(Vec<u32>),
    Dict(Vec<(u32, u32)>),
    Global(Global),
    /// `numpy.dtype`, by NumPy's name, e.g. `<i8`.
    Dtype(String),
    /// Elements stored outside of the pickle: `len` elements of type `descr`.
    Storage {
        /// The value that is its name in the file.
        key: u32,
        descr: &'static str,
        len: u64,
    },
    /// An object whose state is not set yet.
    Unfilled,
    Array(Array),
}

/// Bytes of the pickle.
#[derive(Clone, Debug)]
pub struct RawBytes {
    /// Position of the first byte.
    pub start: u64,
    /// Number of characters for UTF-8 text; otherwise number of bytes.
    pub chars: u64,
    /// Whether the bytes are UTF-8 text.
    pub utf8: bool,
    /// Whether `_codecs.encode` converted the text to bytes: each character is one byte.
    pub latin1: bool,
    /// The text itself, if it is short.
    pub text: Option<String>,
}

impl Node {
    /// Description for messages.
    pub fn what(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an integer",
            Self::Float => "a float",
            Self::Raw(RawBytes { utf8: true, .. }) => "a string",
            Self::Raw(_) => "bytes",
            Self::List(_) => "a list",
            Self::Tuple(_) => "a tuple",
            Self::Dict(_) => "a dict",
            Self::Global(_) => "a function or type",
            Self::Dtype(_) => "a dtype",
            Self::Storage { .. } => "a storage",
            Self::Unfilled => "an unfinished array",
            Self::Array(_) => "an array",
        }
    }
}

/// All values of a file.
#[derive(Default)]
pub struct Heap {
    nodes: Vec<Node>,
    entries: usize,
    text: usize,
}

impl Heap {
    /// The value `at`, a number returned by this heap.
    pub fn node(&self, at: u32) -> &Node {
        self.nodes.get(at as usize).unwrap_or(&Node::None)
    }

    /// The value `at`, if it is short text.
    pub fn text(&self, at: u32) -> Option<&str> {
        match self.node(at) {
            Node::Raw(raw) => raw.text.as_deref(),
            _ => None,
        }
    }

    /// The value `at`, if it is an integer.
    pub fn int(&self, at: u32) -> Option<i64> {
        match self.node(at) {
            Node::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The entries of the value `at`, if it is a tuple.
    pub fn tuple(&self, at: u32) -> Option<&[u32]> {
        match self.node(at) {
            Node::Tuple(entries) => Some(entries),
            _ => None,
        }
    }

    /// Key and type of every referenced storage.
    pub fn storages(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Storage { key, descr, .. } => Some((self.text(*key)?, *descr)),
            _ => None,
        })
    }

    /// Replaces the value `at` by `node`.
    pub fn set(&mut self, at: u32, node: Node) {
        if let Some(place) = self.nodes.get_mut(at as usize) {
            *place = node;
        }
    }

    fn add(&mut self, node: Node) -> Result<u32, String> {
        if self.nodes.len() >= MAX_NODES {
            return Err(format!("more than {MAX_NODES} values: expected a few arrays"));
        }
        self.nodes.push(node);
        Ok(self.nodes.len() as u32 - 1)
    }

    /// Counts `entries` before they are allocated.
    fn count(&mut self, entries: usize) -> Result<(), String> {
        self.entries += entries;
        match self.entries > MAX_ENTRIES {
            true => Err(format!(
                "lists of more than {MAX_ENTRIES} values in all: expected a few arrays"
            )),
            false => Ok(()),
        }
    }
}

/// Reads the bytes of a file of consecutive pickles.
pub struct PickleInput<R> {
    reader: R,
    /// Bytes read.
    pub at: u64,
}

impl<R: Read> PickleInput<R> {
    /// Reads from the start of `reader`.
    pub fn new(reader: R) -> Self {
        Self { reader, at: 0 }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|error| ended(&error))?;
        self.at += N as u64;
        Ok(bytes)
    }

    /// Reads a length of `N` bytes.
    fn length<const N: usize>(&mut self) -> Result<u64, String> {
        let mut whole = [0; 8];
        whole[..N].copy_from_slice(&self.bytes::<N>()?);
        Ok(u64::from_le_bytes(whole))
    }

    /// Reads a name up to the end of its line.
    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        loop {
            match self.bytes::<1>()? {
                [b'\n'] => {
                    return String::from_utf8(line)
                        .map_err(|_| "a name that is no text".to_string());
                }
                [byte] if line.len() < HELD_TEXT as usize => line.push(byte),
                _ => return Err("a name without an end".to_string()),
            }
        }
    }

    /// Skips `len` bytes; short text is held.
    fn raw(&mut self, len: u64, utf8: bool, heap: &mut Heap) -> Result<RawBytes, String> {
        let mut raw = RawBytes { start: self.at, chars: 0, utf8, latin1: false, text: None };
        if len <= HELD_TEXT {
            heap.text += len as usize;
            if heap.text > MAX_TEXT {
                return Err(format!("more than {MAX_TEXT} bytes of text: expected a few arrays"));
            }
            let mut text = vec![0; len as usize];
            self.reader.read_exact(&mut text).map_err(|error| ended(&error))?;
            raw.chars = count_chars(&text, utf8);
            raw.text = String::from_utf8(text).ok();
        } else {
            let mut room = vec![0; 1 << 16];
            let mut left = len;
            while left > 0 {
                let now = &mut room[..left.min(1 << 16) as usize];
                self.reader.read_exact(now).map_err(|error| ended(&error))?;
                raw.chars += count_chars(now, utf8);
                left -= now.len() as u64;
            }
        }
        self.at += len;
        Ok(raw)
    }

    /// Reads to the end, so that a checksum is compared.
    pub fn finish(&mut self) -> Result<(), String> {
        std::io::copy(&mut self.reader, &mut std::io::sink())
            .map(drop)
            .map_err(|error| ended(&error))
    }
}

fn count_chars(bytes: &[u8], utf8: bool) -> u64 {
    match utf8 {
        true => bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80).count() as u64,
        false => bytes.len() as u64,
    }
}

fn ended(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            "the pickle ends early: truncated or damaged".to_string()
        }
        _ => format!("truncated or damaged ({error})"),
    }
}

/// Runs the next pickle of `input` to its end. Returns the resulting value.
pub fn run<R: Read>(input: &mut PickleInput<R>, heap: &mut Heap) -> Result<u32, String> {
    let mut run =
        Machine { input, heap, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    loop {
        let at = run.input.at;
        let [code] = run.input.bytes()?;
        match run.step(code) {
            Ok(false) => {}
            Ok(true) => return run.pop(),
            Err(problem) => return Err(format!("{problem} (at byte {at})")),
        }
    }
}

struct Machine<'a, R> {
    input: &'a mut PickleInput<R>,
    heap: &'a mut Heap,
    stack: Vec<u32>,
    /// Heights of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u32, u32>,
}

impl<R: Read> Machine<'_, R> {
    /// Runs one instruction. Returns whether it was the last.
    fn step(&mut self, code: u8) -> Result<bool, String> {
        match code {
            0x80 => match self.input.bytes()? {
                [2..=5] => {}
                [protocol] => return Err(format!("pickle protocol {protocol}: expected 2 to 5")),
            },
            // The size of a frame only advises how much to read at once.
            0x95 => drop(self.input.bytes::<8>()?),
            b'.' => return Ok(true),
            b'(' => {
                self.heap.count(1)?;
                self.marks.push(self.stack.len());
            }
            b'0' => drop(self.pop()?),
            b'2' => {
                let top = self.top()?;
                self.refer(top)?;
            }
            b'N' => self.push(Node::None)?,
            0x88 => self.push(Node::Bool(true))?,
            0x89 => self.push(Node::Bool(false))?,
            b'J' => {
                let int = i32::from_le_bytes(self.input.bytes()?);
                self.push(Node::Int(int.into()))?;
            }
            b'K' => self.unsigned::<1>()?,
            b'M' => self.unsigned::<2>()?,
            0x8a => self.long()?,
            b'G' => {
                self.input.bytes::<8>()?;
                self.push(Node::Float)?;
            }
            0x8c => self.raw::<1>(true)?,
            b'X' => self.raw::<4>(true)?,
            0x8d => self.raw::<8>(true)?,
            b'C' | b'U' => self.raw::<1>(false)?,
            b'B' | b'T' => self.raw::<4>(false)?,
            0x8e | 0x96 => self.raw::<8>(false)?,
            b')' => self.push(Node::Tuple(Vec::new()))?,
            b'}' => self.push(Node::Dict(Vec::new()))?,
            b']' => self.push(Node::List(Vec::new()))?,
            0x85..=0x87 => {
                let from =
                    self.stack.len().checked_sub(usize::from(code - 0x84)).ok_or_else(empty)?;
                let entries = self.stack.split_off(from);
                self.tuple(entries)?;
            }
            b't' => {
                let entries = self.marked()?;
                self.tuple(entries)?;
            }
            b'a' => {
                let entry = self.pop()?;
                self.append(&[entry])?;
            }
            b'e' => {
                let entries = self.marked()?;
                self.append(&entries)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.insert(&[key, value])?;
            }
            b'u' => {
                let entries = self.marked()?;
                self.insert(&entries)?;
            }
            b'q' => {
                let [key] = self.input.bytes()?;
                self.remember(key.into())?;
            }
            b'r' => {
                let key = u32::from_le_bytes(self.input.bytes()?);
                self.remember(key)?;
            }
            0x94 => self.remember(self.memo.len() as u32)?,
            b'h' => {
                let [key] = self.input.bytes()?;
                self.recall(key.into())?;
            }
            b'j' => {
                let key = u32::from_le_bytes(self.input.bytes()?);
                self.recall(key)?;
            }
            b'c' => {
                let (module, name) = (self.input.line()?, self.input.line()?);
                self.push(Node::Global(Global::named(&module, &name)?))?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let both = self.heap.text(module).zip(self.heap.text(name));
                let (module, name) = both.ok_or("a name that is no text")?;
                let global = Global::named(module, name)?;
                self.push(Node::Global(global))?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = build::storage(self.heap, id)?;
                self.push(storage)?;
            }
            0x81 => {
                let (arguments, class) = (self.pop()?, self.pop()?);
                let made = build::new(self.heap, class, arguments)?;
                self.push(made)?;
            }
            b'R' => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                // Reserves entries for the shape of an array.
                self.heap.count(build::MAX_DIMENSIONS)?;
                let made = build::call(self.heap, function, arguments)?;
                self.push(made)?;
            }
            b'b' => {
                let state = self.pop()?;
                let object = self.top()?;
                let copied =
                    if let Node::Dict(pairs) = self.heap.node(state) { pairs.len() } else { 0 };
                self.heap.count(copied.max(build::MAX_DIMENSIONS))?;
                let made = build::fill(self.heap, object, state)?;
                self.heap.set(object, made);
            }
            code => {
                return Err(format!("the instruction 0x{code:02x}, which is not supported"));
            }
        }
        Ok(false)
    }

    fn push(&mut self, node: Node) -> Result<(), String> {
        let at = self.heap.add(node)?;
        self.refer(at)
    }

    /// Pushes a tuple of values from the stack.
    fn tuple(&mut self, entries: Vec<u32>) -> Result<(), String> {
        self.heap.count(entries.len())?;
        self.push(Node::Tuple(entries))
    }

    fn refer(&mut self, at: u32) -> Result<(), String> {
        self.heap.count(1)?;
        self.stack.push(at);
        Ok(())
    }

    /// Pops the top value, which is above the last mark.
    fn pop(&mut self) -> Result<u32, String> {
        self.top()?;
        self.stack.pop().ok_or_else(empty)
    }

    fn top(&self) -> Result<u32, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack.get(floor..).and_then(<[u32]>::last).copied().ok_or_else(empty)
    }

    /// Removes and returns the values pushed since the last mark, together with the mark.
    fn marked(&mut self) -> Result<Vec<u32>, String> {
        let mark = self.marks.pop().filter(|&mark| mark <= self.stack.len()).ok_or_else(empty)?;
        Ok(self.stack.split_off(mark))
    }

    fn unsigned<const N: usize>(&mut self) -> Result<(), String> {
        let int = self.input.length::<N>()? as i64;
        self.push(Node::Int(int))
    }

    /// Reads an integer of up to 8 bytes. Torch's magic number has 10, and its value does not
    /// matter.
    fn long(&mut self) -> Result<(), String> {
        let [len] = self.input.bytes()?;
        let mut bytes = [0; 8];
        let mut sign = 0;
        for i in 0..usize::from(len) {
            let [byte] = self.input.bytes()?;
            sign = byte;
            if let Some(place) = bytes.get_mut(i) {
                *place = byte;
            }
        }
        if sign & 0x80 != 0 {
            bytes[usize::from(len).min(8)..].fill(0xff);
        }
        match len {
            0..=8 => self.push(Node::Int(i64::from_le_bytes(bytes))),
            _ => self.push(Node::None),
        }
    }

    fn raw<const N: usize>(&mut self, utf8: bool) -> Result<(), String> {
        let len = self.input.length::<N>()?;
        let raw = self.input.raw(len, utf8, self.heap)?;
        self.push(Node::Raw(raw))
    }

    fn append(&mut self, entries: &[u32]) -> Result<(), String> {
        self.heap.count(entries.len())?;
        let list = self.top()?;
        match self.heap.nodes.get_mut(list as usize) {
            Some(Node::List(list)) => list.extend(entries),
            _ => return Err("appends to a value that is not a list".into()),
        }
        Ok(())
    }

    fn insert(&mut self, entries: &[u32]) -> Result<(), String> {
        self.heap.count(entries.len())?;
        let dict = self.top()?;
        match (self.heap.nodes.get_mut(dict as usize), entries.as_chunks()) {
            (Some(Node::Dict(dict)), (pairs, [])) => {
                dict.extend(pairs.iter().map(|&[key, value]| (key, value)))
            }
            _ => return Err("inserts into a value that is not a dict".into()),
        }
        Ok(())
    }

    fn remember(&mut self, key: u32) -> Result<(), String> {
        self.heap.count(4)?;
        let top = self.top()?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn recall(&mut self, key: u32) -> Result<(), String> {
        let at = *self.memo.get(&key).ok_or("refers to a missing value: truncated or damaged")?;
        self.refer(at)
    }
}

fn empty() -> String {
    "takes from an empty stack: truncated or damaged".to_string()
}
