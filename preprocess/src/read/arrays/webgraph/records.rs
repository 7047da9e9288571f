//! NAME.graph of a BVGraph as edges: handed out in pieces of records, or decoded as they are handed
//! out.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Properties;
use super::bvgraph::{Bits, Code, Damaged, Layout, Scratch};
use crate::edges::{EDGES_PER_PIECE, EdgeBatch, EdgeSource, Ending, Estimate, Piece, Seen, lock};
use crate::{Error, Result};
use gsplit_store::open_file;

/// Nodes of a piece at most: many may have no successors.
const NODES_PER_PIECE: u64 = 1 << 16;

/// The records as edges.
pub(super) struct Records {
    graph: PathBuf,
    file: File,
    /// Length of the graph's file.
    bytes: u64,
    properties: PathBuf,
    num_arcs: u64,
    layout: Layout,
    /// The file of offsets, where pieces are decoded by any thread.
    offsets: Option<PathBuf>,
    /// Number of nodes before a piece on which its lists may depend.
    look_back: u64,
    walk: Mutex<Option<RecordWalk>>,
    bytes_done: AtomicU64,
}

/// A walk over the records.
struct RecordWalk {
    graph: Bits<File>,
    offsets: Option<Bits<File>>,
    node: u64,
    /// Starts of the records before `node` that may be needed again, and of the record of `node`.
    starts: VecDeque<u64>,
    /// The lists of the last nodes, where they are decoded here.
    lists: LatestLists,
}

/// The lists of the last nodes: the list of node u is at position u modulo their number.
struct LatestLists(Vec<Option<(u64, Vec<u64>)>>);

impl LatestLists {
    fn new(window: usize) -> Self {
        Self((0..=window).map(|_| None).collect())
    }

    fn slot(&self, node: u64) -> usize {
        (node % self.0.len() as u64) as usize
    }

    fn get(&self, node: u64) -> Option<&[u64]> {
        self.0[self.slot(node)].as_ref().filter(|(of, _)| *of == node).map(|(_, list)| &list[..])
    }

    /// An empty list for `node`, which reuses the memory of a list that is out of reach.
    fn vacate(&mut self, node: u64) -> Vec<u64> {
        let slot = self.slot(node);
        let mut list = self.0[slot].take().map(|(_, list)| list).unwrap_or_default();
        list.clear();
        list
    }

    /// Keeps the list of `node`.
    fn put(&mut self, node: u64, list: Vec<u64>) {
        let slot = self.slot(node);
        self.0[slot] = Some((node, list));
    }
}

/// Why a piece cannot be handed out or decoded, at a node.
struct AtNode(u64, Damaged);

impl Records {
    /// Opens the records in the file `graph`, of `bytes`, as the properties describe them. With
    /// `offsets` any thread decodes a piece, which needs up to `look_back` nodes before it.
    pub(super) fn new(
        graph: PathBuf,
        bytes: u64,
        properties: PathBuf,
        Properties { layout, num_arcs, .. }: Properties,
        offsets: Option<PathBuf>,
        look_back: u64,
    ) -> Result<Self> {
        Ok(Self {
            file: open_file(&graph).map_err(Error::io(&graph))?,
            graph,
            bytes,
            properties,
            num_arcs,
            layout,
            offsets,
            look_back,
            walk: Mutex::new(None),
            bytes_done: AtomicU64::new(0),
        })
    }

    fn start(&self) -> Result<RecordWalk> {
        let bits =
            |path: &PathBuf| Ok::<_, Error>(Bits::new(open_file(path).map_err(Error::io(path))?));
        Ok(RecordWalk {
            graph: bits(&self.graph)?,
            offsets: self.offsets.as_ref().map(bits).transpose()?,
            node: 0,
            starts: VecDeque::new(),
            lists: LatestLists::new(self.layout.window),
        })
    }

    fn damaged(&self, AtNode(node, problem): AtNode) -> Error {
        Error::input(
            &self.graph,
            format!("record of node {node}: {problem}: truncated or damaged, download it again"),
        )
    }

    /// Hands out nodes whose records are decoded later: the starts of the records before them and
    /// of the first, and the end of the last.
    fn hand_out(&self, walk: &mut RecordWalk, bytes: &mut Vec<u8>) -> Result<(), AtNode> {
        let Some(offsets) = &mut walk.offsets else { return Ok(()) };
        let first = walk.node;
        let mut next_start = |node: u64, last: u64| -> Result<u64, AtNode> {
            let gap =
                offsets.number(Code::Gamma).map_err(|_| AtNode(node, "its offset is missing"))?;
            last.checked_add(gap)
                .filter(|start| start / 8 <= self.bytes)
                .ok_or(AtNode(node, "its offset is off the file"))
        };
        if first == 0 {
            walk.starts.push_back(next_start(0, 0)?);
        }
        let kept = walk.starts.len();
        let mut edges = 0;
        while walk.node < self.layout.num_nodes
            && walk.node - first < NODES_PER_PIECE
            && edges < EDGES_PER_PIECE as u64
        {
            let node = walk.node;
            let start = *walk.starts.back().unwrap_or(&0);
            walk.graph.skip_to(start).map_err(|problem| AtNode(node, problem))?;
            edges +=
                self.layout.outdegree(&mut walk.graph).map_err(|problem| AtNode(node, problem))?;
            walk.starts.push_back(next_start(node + 1, start)?);
            walk.node += 1;
        }
        // Starts before the piece, that of its first node, and the end of its last record.
        walk.starts
            .iter()
            .take(kept)
            .chain(walk.starts.back())
            .for_each(|start| bytes.extend(start.to_le_bytes()));
        let keep = usize::try_from(self.look_back).unwrap_or(usize::MAX).saturating_add(1);
        let drop = walk.starts.len().saturating_sub(keep);
        walk.starts.drain(..drop);
        Ok(())
    }

    /// Decodes the next nodes: the outdegree of each, then its successors.
    fn decode_next(&self, walk: &mut RecordWalk, bytes: &mut Vec<u8>) -> Result<(), AtNode> {
        let (first, mut edges, mut scratch) = (walk.node, 0, Scratch::default());
        while walk.node < self.layout.num_nodes
            && walk.node - first < NODES_PER_PIECE
            && edges < EDGES_PER_PIECE
        {
            let node = walk.node;
            let RecordWalk { graph, lists, .. } = walk;
            let missing = |node| Err(AtNode(node, "a reference to a list that is not there"));
            let list = self.record(node, graph, lists, &mut scratch, &missing)?;
            bytes.extend((list.len() as u64).to_le_bytes());
            bytes.extend(list.iter().flat_map(|successor| successor.to_le_bytes()));
            edges += list.len();
            lists.put(node, list);
            walk.node += 1;
        }
        Ok(())
    }

    /// The list of `node`, whose record is next in `bits`; `fetch` decodes one that is referred to
    /// and not in `lists`.
    fn record(
        &self,
        node: u64,
        bits: &mut Bits<impl Read>,
        lists: &mut LatestLists,
        scratch: &mut Scratch,
        fetch: &dyn Fn(u64) -> Result<Vec<u64>, AtNode>,
    ) -> Result<Vec<u64>, AtNode> {
        let at_node = |problem| AtNode(node, problem);
        let (degree, back) = self.layout.head(node, bits).map_err(at_node)?;
        if back > 0 && lists.get(node - back).is_none() {
            lists.put(node - back, fetch(node - back)?);
        }
        let mut list = lists.vacate(node);
        let reference = if back > 0 { lists.get(node - back) } else { None };
        self.layout.rest(node, degree, reference, bits, scratch, &mut list).map_err(at_node)?;
        Ok(list)
    }

    /// Decodes the nodes from `first` to `end`, whose positions [`hand_out`](Self::hand_out) wrote
    /// to `table`.
    fn decode(&self, first: u64, end: u64, table: &[u8], batch: &mut EdgeBatch) -> Result<()> {
        let numbers: Vec<u64> =
            table.as_chunks().0.iter().map(|&number| u64::from_le_bytes(number)).collect();
        let [starts @ .., last] = &numbers[..] else { return Ok(()) };
        let Some(&from) = starts.first() else { return Ok(()) };
        let mut bytes =
            vec![0; (last.div_ceil(8).min(self.bytes).saturating_sub(from / 8)) as usize];
        self.file.read_exact_at(&mut bytes, from / 8).map_err(Error::io(&self.graph))?;
        let oldest = first + 1 - starts.len() as u64;
        let bits_of = |node: u64| {
            let start = node.checked_sub(oldest).and_then(|at| starts.get(at as usize));
            let start = start.ok_or(AtNode(node, "more references in a chain than maxrefcount"))?;
            let mut bits = Bits::new(bytes.get((start / 8 - from / 8) as usize..).unwrap_or(&[]));
            bits.skip_to(start % 8).map_err(|problem| AtNode(node, problem))?;
            Ok(bits)
        };
        let mut decoded = || -> Result<(), AtNode> {
            let (mut lists, mut scratch) =
                (LatestLists::new(self.layout.window), Scratch::default());
            let mut bits = bits_of(first)?;
            for node in first..end {
                let fetch = |node| self.fetch(node, &bits_of);
                let list = self.record(node, &mut bits, &mut lists, &mut scratch, &fetch)?;
                batch.sources.resize(batch.sources.len() + list.len(), node);
                batch.targets.extend_from_slice(&list);
                lists.put(node, list);
            }
            Ok(())
        };
        decoded().map_err(|at| self.damaged(at))
    }

    /// The list of `node`, which precedes the piece. The nodes before a piece bound the depth.
    fn fetch<'a>(
        &self,
        node: u64,
        bits_of: &dyn Fn(u64) -> Result<Bits<&'a [u8]>, AtNode>,
    ) -> Result<Vec<u64>, AtNode> {
        let at_node = |problem| AtNode(node, problem);
        let mut bits = bits_of(node)?;
        let (degree, back) = self.layout.head(node, &mut bits).map_err(at_node)?;
        let reference = match back {
            0 => None,
            _ => Some(self.fetch(node - back, bits_of)?),
        };
        let mut list = Vec::new();
        let rest = self.layout.rest(
            node,
            degree,
            reference.as_deref(),
            &mut bits,
            &mut Scratch::default(),
            &mut list,
        );
        rest.map_err(at_node)?;
        Ok(list)
    }
}

impl EdgeSource for Records {
    fn rewind(&self) -> Result<()> {
        *lock(&self.walk) = Some(self.start()?);
        self.bytes_done.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let mut walk = lock(&self.walk);
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
            return self.decode(piece.start, piece.end, &piece.bytes, batch);
        }
        let mut numbers =
            piece.bytes.as_chunks().0.iter().map(|&number| u64::from_le_bytes(number));
        for node in piece.start..piece.end {
            let degree = numbers.next().unwrap_or(0) as usize;
            batch.sources.resize(batch.sources.len() + degree, node);
            batch.targets.extend(numbers.by_ref().take(degree));
        }
        Ok(())
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        if seen.edges != self.num_arcs {
            let problem = format!(
                "promises {} arcs, the graph has {}: the files do not match",
                self.num_arcs, seen.edges
            );
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
