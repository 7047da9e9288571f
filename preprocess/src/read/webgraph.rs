//! WebGraph's BVGraph, as the Laboratory for Web Algorithmics distributes graphs.
//!
//! ```text
//! NAME.properties   lines KEY=VALUE: nodes, arcs, windowsize, minintervallength, zetak, maxrefcount, compressionflags
//! NAME.graph        the records of nodes 0, 1, ..., bit after bit: see `bvgraph`
//! NAME.offsets      where each record starts, and the last one ends: differences in gamma; may be absent
//! ```
//! The successors v of node u are the edges u -> v. Any of the files names the graph, or NAME alone. Graphs that the Java
//! implementation writes (big-endian, all codes but Golomb, skewed Golomb and nibbles) and the Rust one in big-endian are read.
//!
//! With offsets, handing out a piece reads no more of a record than its outdegree, and any thread decodes it: lists that the
//! first records refer to lie at most `windowsize` times `maxrefcount` nodes before them. Without offsets, or without a bound
//! on references, records are decoded as they are handed out, by one thread. In memory are the lists of a piece, or the one
//! longest list.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gsplit_store::Progress;

use super::bvgraph::{Bits, Code, Damaged, Layout, Scratch};
use super::catalog::check_wanted;
use super::raw::{Ids, Raw, ReadOptions};
use crate::edges::{EDGES_PER_PIECE, EdgeBatch, EdgeSource, Ending, Estimate, Piece, Seen};
use crate::{Error, Result};

/// Nodes of a piece at most: many may have no successors.
const NODES_PER_PIECE: u64 = 1 << 16;
/// Longest properties accepted.
const MAX_PROPERTIES: u64 = 1 << 20;
/// Nodes before a piece that are looked back at; above it, references have no bound to speak of.
const MAX_LOOK_BACK: u64 = 1 << 16;

/// Whether NAME.graph and NAME.properties are there, for NAME or one of the two at `path`.
pub fn recognises(path: &Path, _head: &[u8]) -> bool {
    let base = base(path);
    !path.is_dir() && with_extension(&base, "graph").is_file() && with_extension(&base, "properties").is_file()
}

/// NAME.properties, by whatever the graph is called.
pub fn properties(path: &Path) -> PathBuf {
    with_extension(&base(path), "properties")
}

/// Opens the graph at `path`. Looks at no options but refuses `edge_columns`: there are none.
pub fn open(path: &Path, options: &ReadOptions, progress: &dyn Progress) -> Result<Raw> {
    check_wanted(path, options, &[])?;
    let base = base(path);
    let [properties, graph, offsets] = ["properties", "graph", "offsets"].map(|end| with_extension(&base, end));
    let properties_of = Properties::read(&properties)?;
    let layout = properties_of.layout;
    let file = File::open(&graph).map_err(Error::io(&graph))?;
    let bytes = file.metadata().map_err(Error::io(&graph))?.len();
    // Every outdegree takes a bit at least, so the number of nodes bounds what lists may claim.
    if layout.num_nodes > bytes.saturating_mul(8) {
        let problem =
            format!("{bytes} bytes for the records of {} nodes: truncated, download it again", layout.num_nodes);
        return Err(Error::input(graph, problem));
    }
    let mut files = vec![properties.clone(), graph.clone()];
    let has_offsets = offsets.exists();
    let look_back = (layout.window as u64).saturating_mul(properties_of.max_chain);
    let parallel = has_offsets && look_back <= MAX_LOOK_BACK;
    if parallel {
        files.push(offsets.clone());
    } else {
        let why = if has_offsets { "references without a bound" } else { "no offsets" };
        progress.note(&format!("{}: {why}, so one thread decodes it", graph.display()));
    }
    let records = Records {
        graph,
        file,
        bytes,
        properties,
        num_arcs: properties_of.num_arcs,
        layout,
        offsets: parallel.then_some(offsets),
        look_back,
        walk: Mutex::new(None),
        bytes_done: AtomicU64::new(0),
    };
    Ok(Raw::of(records, Ids::Dense(Some(layout.num_nodes)), files))
}

/// NAME.
fn base(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("graph" | "properties" | "offsets") => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

/// NAME.`extension`, whatever dots NAME has.
fn with_extension(base: &Path, extension: &str) -> PathBuf {
    let mut name = base.as_os_str().to_os_string();
    name.push(".");
    name.push(extension);
    name.into()
}

/// What NAME.properties says.
struct Properties {
    layout: Layout,
    num_arcs: u64,
    max_chain: u64,
}

impl Properties {
    fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::metadata(path).map_err(Error::io(path))?.len();
        if bytes > MAX_PROPERTIES {
            return Err(Error::input(path, format!("{bytes} bytes: expected properties of BVGraph")));
        }
        let text = std::fs::read(path).map_err(Error::io(path))?;
        Self::parse(&String::from_utf8_lossy(&text)).map_err(|problem| Error::input(path, problem))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
        let pairs: BTreeMap<&str, &str> =
            lines.filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim())).collect();
        let value = |key: &str| pairs.get(key).copied();
        let class = value("graphclass").unwrap_or("BVGraph");
        if !class.ends_with("BVGraph") {
            return Err(format!("graphclass={class}: expected BVGraph; convert it with WebGraph's tools"));
        }
        if let Some(order) = value("endianness").filter(|&order| order != "big") {
            return Err(format!("endianness={order}: expected big; convert it with `webgraph to bvgraph`"));
        }
        let number = |key: &str, default: Option<u64>| match (value(key), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => Err(format!("expected a line {key}=NUMBER")),
            (Some(text), _) => text.parse().map_err(|_| format!("{key}={text}: expected a number")),
        };
        let zeta = number("zetak", Some(3))?;
        let window = number("windowsize", Some(7))?;
        if !(1..=31).contains(&zeta) || window > 1 << 16 {
            return Err(format!("zetak={zeta}, windowsize={window}: expected 1 to 31, and up to 65536"));
        }
        let codes = codes(value("compressionflags").unwrap_or(""), zeta as u32)?;
        let min_interval = number("minintervallength", Some(4))?;
        let layout = Layout { num_nodes: number("nodes", None)?, window: window as usize, min_interval, codes };
        if layout.num_nodes > u64::from(u32::MAX) * 256 || min_interval > u64::from(u32::MAX) {
            return Err(format!("nodes={}, minintervallength={min_interval}: implausible", layout.num_nodes));
        }
        // -1 and Java's largest integer stand for no bound.
        let max_chain = value("maxrefcount").and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        Ok(Self { layout, num_arcs: number("arcs", None)?, max_chain })
    }
}

/// The codes that flags as `OUTDEGREES_DELTA|RESIDUALS_GAMMA` name, in the order of [`Layout::codes`].
fn codes(flags: &str, zeta: u32) -> Result<[Code; 5], String> {
    let mut codes = [Code::Gamma, Code::Unary, Code::Gamma, Code::Gamma, Code::Zeta(zeta)];
    for flag in flags.split('|').map(str::trim).filter(|flag| !flag.is_empty()) {
        let unknown =
            || format!("compressionflags={flags}: {flag} is not read, expected UNARY, GAMMA, DELTA or ZETA codes");
        let (what, code) = flag.rsplit_once('_').ok_or_else(unknown)?;
        let code = match code {
            "UNARY" => Code::Unary,
            "GAMMA" => Code::Gamma,
            "DELTA" => Code::Delta,
            "ZETA" => Code::Zeta(zeta),
            _ => return Err(unknown()),
        };
        match what {
            "OUTDEGREES" => codes[0] = code,
            "REFERENCES" => codes[1] = code,
            "BLOCK_COUNT" => codes[2] = code,
            "BLOCKS" => codes[3] = code,
            "RESIDUALS" => codes[4] = code,
            "OFFSETS" | "INTERVALS" if code == Code::Gamma => {}
            _ => return Err(unknown()),
        }
    }
    Ok(codes)
}

/// The records as edges.
struct Records {
    graph: PathBuf,
    file: File,
    /// Of the graph.
    bytes: u64,
    properties: PathBuf,
    num_arcs: u64,
    layout: Layout,
    /// The file of offsets, where pieces are decoded by any thread.
    offsets: Option<PathBuf>,
    /// Nodes before a piece that its lists may hang on.
    look_back: u64,
    walk: Mutex<Option<Walk>>,
    bytes_done: AtomicU64,
}

/// A walk over the records.
struct Walk {
    graph: Bits<File>,
    offsets: Option<Bits<File>>,
    node: u64,
    /// Starts of the records before `node` that may be looked back at, and of `node`'s.
    starts: VecDeque<u64>,
    /// The lists of the last nodes, where they are decoded here.
    lists: Lists,
}

/// The lists of the last nodes: that of node u at u modulo their number.
struct Lists {
    lists: Vec<Option<(u64, Vec<u64>)>>,
}

impl Lists {
    fn new(window: usize) -> Self {
        Self { lists: (0..=window).map(|_| None).collect() }
    }

    fn get(&self, node: u64) -> Option<&[u64]> {
        let slot = self.lists[(node % self.lists.len() as u64) as usize].as_ref();
        slot.filter(|(of, _)| *of == node).map(|(_, list)| &list[..])
    }

    /// A list that is empty and may be used for `node`, with the memory of one that is out of reach.
    fn vacate(&mut self, node: u64) -> Vec<u64> {
        let slot = (node % self.lists.len() as u64) as usize;
        let slot = self.lists[slot].take();
        let mut list = slot.map(|(_, list)| list).unwrap_or_default();
        list.clear();
        list
    }

    fn put(&mut self, node: u64, list: Vec<u64>) {
        let slot = (node % self.lists.len() as u64) as usize;
        self.lists[slot] = Some((node, list));
    }
}

/// Why a piece cannot be handed out or decoded, at a node.
struct AtNode(u64, Damaged);

impl Records {
    fn open_bits(&self, path: &Path) -> Result<Bits<File>> {
        Ok(Bits::new(File::open(path).map_err(Error::io(path))?))
    }

    fn start(&self) -> Result<Walk> {
        let offsets = self.offsets.as_ref().map(|path| self.open_bits(path)).transpose()?;
        let lists = Lists::new(self.layout.window);
        Ok(Walk { graph: self.open_bits(&self.graph)?, offsets, node: 0, starts: VecDeque::new(), lists })
    }

    fn damaged(&self, AtNode(node, problem): AtNode) -> Error {
        Error::input(&self.graph, format!("record of node {node}: {problem}: truncated or damaged, download it again"))
    }

    /// Hands out nodes whose records are decoded later: the starts of what they may hang on and of the first, and the end of the last.
    fn hand_out(&self, walk: &mut Walk, bytes: &mut Vec<u8>) -> Result<(), AtNode> {
        let Some(offsets) = &mut walk.offsets else { return Ok(()) };
        let first = walk.node;
        let mut next_start = |node: u64, last: u64| -> Result<u64, AtNode> {
            let gap = offsets.number(Code::Gamma).map_err(|_| AtNode(node, "its offset is missing"))?;
            last.checked_add(gap)
                .filter(|start| start / 8 <= self.bytes)
                .ok_or(AtNode(node, "its offset is off the file"))
        };
        if first == 0 {
            walk.starts.push_back(next_start(0, 0)?);
        }
        let kept = walk.starts.len();
        let mut edges = 0;
        while walk.node < self.layout.num_nodes && walk.node - first < NODES_PER_PIECE && edges < EDGES_PER_PIECE as u64
        {
            let node = walk.node;
            let start = *walk.starts.back().unwrap_or(&0);
            walk.graph.skip_to(start).map_err(|problem| AtNode(node, problem))?;
            edges += self.layout.outdegree(&mut walk.graph).map_err(|problem| AtNode(node, problem))?;
            walk.starts.push_back(next_start(node + 1, start)?);
            walk.node += 1;
        }
        // Starts before the piece, that of its first node, and the end of its last record.
        walk.starts.iter().take(kept).chain(walk.starts.back()).for_each(|start| bytes.extend(start.to_le_bytes()));
        let keep = usize::try_from(self.look_back).unwrap_or(usize::MAX).saturating_add(1);
        let drop = walk.starts.len().saturating_sub(keep);
        walk.starts.drain(..drop);
        Ok(())
    }

    /// Decodes the next nodes: the outdegree of each, then its successors.
    fn decode_next(&self, walk: &mut Walk, bytes: &mut Vec<u8>) -> Result<(), AtNode> {
        let (first, mut edges, mut scratch) = (walk.node, 0, Scratch::default());
        while walk.node < self.layout.num_nodes && walk.node - first < NODES_PER_PIECE && edges < EDGES_PER_PIECE {
            let node = walk.node;
            let Walk { graph, lists, .. } = walk;
            let list = self.record(node, graph, lists, &mut scratch, &mut |_, _| Ok(()))?;
            bytes.extend((list.len() as u64).to_le_bytes());
            bytes.extend(list.iter().flat_map(|successor| successor.to_le_bytes()));
            edges += list.len();
            lists.put(node, list);
            walk.node += 1;
        }
        Ok(())
    }

    /// The list of `node`, whose record is next in `bits`; `fetch` puts a list that is referred to into `lists`.
    fn record(
        &self,
        node: u64,
        bits: &mut Bits<impl std::io::Read>,
        lists: &mut Lists,
        scratch: &mut Scratch,
        fetch: &mut dyn FnMut(u64, &mut Lists) -> Result<(), AtNode>,
    ) -> Result<Vec<u64>, AtNode> {
        let at_node = |problem| AtNode(node, problem);
        let degree = self.layout.outdegree(bits).map_err(at_node)?;
        if degree == 0 {
            return Ok(lists.vacate(node));
        }
        let back = self.layout.reference(node, bits).map_err(at_node)?;
        if back > 0 && lists.get(node - back).is_none() {
            fetch(node - back, lists)?;
        }
        let mut list = lists.vacate(node);
        let reference = match back {
            0 => None,
            _ => Some(lists.get(node - back).ok_or(AtNode(node, "a reference to a list that is not there"))?),
        };
        self.layout.rest((node, degree), reference, bits, scratch, &mut list).map_err(at_node)?;
        Ok(list)
    }

    /// Decodes what [`hand_out`](Self::hand_out) said of the nodes from `first` to `end`.
    fn decode(&self, (first, end): (u64, u64), table: &[u8], batch: &mut EdgeBatch) -> Result<()> {
        let numbers: Vec<u64> = table.as_chunks().0.iter().map(|&number| u64::from_le_bytes(number)).collect();
        let [starts @ .., last] = &numbers[..] else { return Ok(()) };
        let Some((&from, &start)) = starts.first().zip(starts.last()) else { return Ok(()) };
        let mut bytes = vec![0; (last.div_ceil(8).min(self.bytes).saturating_sub(from / 8)) as usize];
        self.file.read_exact_at(&mut bytes, from / 8).map_err(Error::io(&self.graph))?;
        let oldest = first + 1 - starts.len() as u64;
        let at = |start: u64, node: u64| {
            let mut bits = Bits::new(bytes.get((start / 8 - from / 8) as usize..).unwrap_or(&[]));
            bits.skip_to(start % 8).map_err(|problem| AtNode(node, problem))?;
            Ok(bits)
        };
        let start_of = |node: u64| node.checked_sub(oldest).and_then(|at| starts.get(at as usize)).copied();
        let mut fetch = |node: u64, lists: &mut Lists| self.fetch(node, lists, &start_of, &at);
        let mut decoded = || -> Result<(), AtNode> {
            let (mut lists, mut scratch) = (Lists::new(self.layout.window), Scratch::default());
            let mut bits = at(start, first)?;
            for node in first..end {
                let list = self.record(node, &mut bits, &mut lists, &mut scratch, &mut fetch)?;
                batch.sources.resize(batch.sources.len() + list.len(), node);
                batch.targets.extend_from_slice(&list);
                lists.put(node, list);
            }
            Ok(())
        };
        decoded().map_err(|at| self.damaged(at))
    }

    /// Puts the list of `node`, which precedes the piece, into `lists`, with what it hangs on elsewhere.
    fn fetch<'a>(
        &self,
        node: u64,
        lists: &mut Lists,
        start_of: &dyn Fn(u64) -> Option<u64>,
        at: &dyn Fn(u64, u64) -> Result<Bits<&'a [u8]>, AtNode>,
    ) -> Result<(), AtNode> {
        // From the node asked for to one without a reference, then back.
        let mut chain = Vec::new();
        let mut next = node;
        loop {
            let start = start_of(next).ok_or(AtNode(next, "more references in a chain than maxrefcount"))?;
            let mut bits = at(start, next)?;
            let degree = self.layout.outdegree(&mut bits).map_err(|problem| AtNode(next, problem))?;
            let back = match degree {
                0 => 0,
                _ => self.layout.reference(next, &mut bits).map_err(|problem| AtNode(next, problem))?,
            };
            chain.push((next, degree, back, bits));
            if back == 0 {
                break;
            }
            next -= back;
        }
        let (mut list, mut scratch) = (Vec::new(), Scratch::default());
        for (node, degree, back, mut bits) in chain.into_iter().rev() {
            let mut own = Vec::new();
            if degree > 0 {
                let reference = (back > 0).then_some(&list[..]);
                let rest = self.layout.rest((node, degree), reference, &mut bits, &mut scratch, &mut own);
                rest.map_err(|problem| AtNode(node, problem))?;
            }
            list = own;
        }
        lists.put(node, list);
        Ok(())
    }
}

impl EdgeSource for Records {
    fn rewind(&self) -> Result<()> {
        *self.walk.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(self.start()?);
        self.bytes_done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut walk = self.walk.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let walk = match &mut *walk {
            Some(walk) => walk,
            none => none.insert(self.start()?),
        };
        piece.bytes.clear();
        piece.start = walk.node;
        let handed_out = match self.offsets {
            Some(_) => self.hand_out(walk, &mut piece.bytes),
            None => self.decode_next(walk, &mut piece.bytes),
        };
        handed_out.map_err(|at| self.damaged(at))?;
        piece.end = walk.node;
        self.bytes_done.store((walk.graph.position() / 8).min(self.bytes), Relaxed);
        Ok(piece.end > piece.start)
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        if self.offsets.is_some() {
            return self.decode((piece.start, piece.end), &piece.bytes, batch);
        }
        let mut numbers = piece.bytes.as_chunks().0.iter().map(|&number| u64::from_le_bytes(number));
        for node in piece.start..piece.end {
            let degree = numbers.next().unwrap_or(0) as usize;
            batch.sources.resize(batch.sources.len() + degree, node);
            batch.targets.extend(numbers.by_ref().take(degree));
        }
        Ok(())
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        if seen.edges != self.num_arcs {
            let problem =
                format!("promises {} arcs, the graph has {}: they do not belong together", self.num_arcs, seen.edges);
            return Err(Error::input(&self.properties, problem));
        }
        Ok(Ending { num_vertices: Some(self.layout.num_nodes), ..Ending::default() })
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(Estimate { edges: self.num_arcs, vertices: self.layout.num_nodes, bytes: self.bytes })
    }

    fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
