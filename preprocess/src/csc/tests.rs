//! The build against its definition, for every way through it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::{Dataset, NoProgress, Provenance};
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::edges::{EdgeBatch, EdgeColumn, Ending, Estimate, Piece, Seen, ValueType};

/// Edges in memory, a few a piece.
#[derive(Clone, Default)]
struct EdgesInMemory {
    edges: Vec<(u64, u64)>,
    /// Whether each edge has the values `weight` (its number) and `feat` (its number twice).
    values: bool,
    strings: bool,
    per_piece: usize,
    first: Option<(u64, u64)>,
}

struct SourceInMemory<'a> {
    listed: &'a EdgesInMemory,
    columns: Vec<EdgeColumn>,
    next: AtomicUsize,
}

fn source(listed: &EdgesInMemory) -> SourceInMemory<'_> {
    let column = |name: &str, value, width| EdgeColumn { name: name.into(), value, width };
    let columns = match listed.values {
        true => vec![column("weight", ValueType::F32, 1), column("feat", ValueType::I64, 2)],
        false => Vec::new(),
    };
    SourceInMemory { listed, columns, next: AtomicUsize::new(0) }
}

/// A build of these edges without vertices of a table.
fn build<'a>(
    source: &'a SourceInMemory<'_>,
    ids: Ids,
    options: BuildOptions,
    scratch: PathBuf,
) -> Build<'a> {
    let memory = Memory::default();
    Build { source, ids, types: None, node_ids: None, options, are_costs: false, memory, scratch }
}

impl EdgesInMemory {
    fn append(&self, edge: (u64, u64), number: usize, batch: &mut EdgeBatch) {
        let mut id = |id: u64| match self.strings {
            true => {
                let name = format!("v{id}");
                let hash = xxh3_64(name.as_bytes());
                batch.names.push((hash, name));
                hash
            }
            false => id,
        };
        let (source, target) = (id(edge.0), id(edge.1));
        batch.push(source, target);
        if self.values {
            batch.values.extend((number as f32).to_le_bytes());
            batch.values.extend((number as i64).to_le_bytes());
            batch.values.extend((number as i64).to_le_bytes());
        }
    }
}

impl EdgeSource for SourceInMemory<'_> {
    fn rewind(&self) -> Result<()> {
        self.next.store(0, Relaxed);
        Ok(())
    }

    fn next(&self, piece: &mut Piece) -> Result<bool> {
        let start = self.next.fetch_add(self.listed.per_piece, Relaxed);
        (piece.start, piece.end) =
            (start as u64, (start + self.listed.per_piece).min(self.listed.edges.len()) as u64);
        Ok(start < self.listed.edges.len())
    }

    fn parse(&self, piece: &mut Piece, batch: &mut EdgeBatch) -> Result<()> {
        for number in piece.start as usize..piece.end as usize {
            self.listed.append(self.listed.edges[number], number + 1, batch);
        }
        Ok(())
    }

    fn finish(&self, seen: &Seen) -> Result<Ending> {
        assert_eq!(seen.edges as usize, self.listed.edges.len());
        let mut ending = Ending::default();
        if let Some(first) = self.listed.first {
            self.listed.append(first, 0, &mut ending.first);
        }
        Ok(ending)
    }

    fn columns(&self) -> &[EdgeColumn] {
        &self.columns
    }

    fn has_string_ids(&self) -> bool {
        self.listed.strings
    }

    fn estimate(&self) -> Result<Estimate> {
        Ok(Estimate { edges: 1, vertices: 1, bytes: 1 })
    }

    fn bytes_done(&self) -> u64 {
        0
    }
}

/// A graph as lists of in-neighbours, each with the number of its edge.
#[derive(Debug, PartialEq)]
struct Expected {
    names: Vec<String>,
    lists: Vec<Vec<(u32, f32)>>,
}

/// The definition, edge by edge.
fn oracle(listed: &EdgesInMemory, ids: Ids, options: BuildOptions) -> Expected {
    let all: Vec<((u64, u64), f32)> = listed
        .first
        .into_iter()
        .map(|edge| (edge, 0.0))
        .chain(listed.edges.iter().copied().zip((1..).map(|i| i as f32)))
        .collect();
    let name = |id: u64| if listed.strings { format!("v{id}") } else { id.to_string() };
    let mut names: Vec<(u64, String)> =
        all.iter().flat_map(|((u, v), _)| [*u, *v]).map(|id| (id, name(id))).collect();
    match listed.strings {
        true => names.sort_by(|a, b| a.1.cmp(&b.1)),
        false => names.sort_by_key(|pair| pair.0),
    }
    names.dedup();
    let end = names.iter().map(|pair| pair.0 + 1).max().unwrap_or(0);
    if let Ids::Dense(n) = ids {
        names = (0..n.unwrap_or(end)).map(|id| (id, id.to_string())).collect();
    }
    let rank: BTreeMap<u64, u32> =
        names.iter().zip(0..).map(|(pair, rank)| (pair.0, rank)).collect();
    let mut lists = vec![Vec::new(); names.len()];
    for ((u, v), number) in all {
        if u == v && options.drop_self_loops {
            continue;
        }
        lists[rank[&v] as usize].push((rank[&u], number));
        if options.symmetrise && u != v {
            lists[rank[&u] as usize].push((rank[&v], number));
        }
    }
    for list in &mut lists {
        list.sort_by_key(|edge| edge.0); // stable
        if !options.keep_duplicates {
            let mut merged: Vec<(u32, f32)> = Vec::new();
            for &(u, number) in list.iter() {
                match merged.last_mut().filter(|last| last.0 == u) {
                    Some(last) if options.sum_weights => last.1 += number,
                    Some(_) => {}
                    None => merged.push((u, number)),
                }
            }
            *list = merged;
        }
    }
    Expected { names: names.into_iter().map(|pair| pair.1).collect(), lists }
}

fn built(
    listed: &EdgesInMemory,
    ids: Ids,
    options: BuildOptions,
    memory: Option<u64>,
) -> (Expected, Built) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("ds");
    let mut writer = DatasetWriter::begin(&out, false).unwrap();
    let edges = source(listed);
    let build = build(&edges, ids, options, writer.scratch().join("edges"));
    let built = match memory {
        None => build.run(&mut writer, &NoProgress).unwrap(),
        Some(memory) => {
            let ingested = ingest::ingest(&build, memory, &NoProgress).unwrap().unwrap();
            assert!(memory > 10_000 || !ingested.stored.runs.is_empty(), "expected runs on disk");
            build.write_within(ingested, None, memory, &mut writer, &NoProgress).unwrap()
        }
    };
    build.clean_up().unwrap();
    let dataset = writer.finish(Provenance::default()).unwrap();
    assert!(gsplit_store::verify(&out).unwrap().iter().all(|finding| finding.problem.is_none()));
    (read_back(&dataset, listed), built)
}

fn read_back(dataset: &Dataset, listed: &EdgesInMemory) -> Expected {
    let n = dataset.num_vertices();
    let names = match (dataset.original_ids().unwrap(), dataset.original_names().unwrap()) {
        (Some(ids), _) => ids.to_vec().iter().map(u64::to_string).collect(),
        (_, Some(names)) => names.iter().map(|name| name.unwrap().to_string()).collect(),
        _ => (0..n).map(|v| v.to_string()).collect(),
    };
    let indptr = dataset.topology().indptr();
    let numbers: Vec<f32> = match listed.values {
        true => {
            let weights =
                dataset.edge_column("weight").unwrap().as_slice::<f32>().unwrap().to_vec();
            let features = dataset.edge_column("feat").unwrap().as_slice::<i64>().unwrap().to_vec();
            assert_eq!(features.len(), 2 * weights.len());
            weights
        }
        false => vec![0.0; dataset.topology().num_edges()],
    };
    let list = |v: usize| {
        let range = indptr[v] as usize..indptr[v + 1] as usize;
        let sources = dataset.topology().indices()[range.clone()].iter().copied();
        sources.zip(numbers[range].iter().copied()).collect()
    };
    Expected { names, lists: (0..n).map(list).collect() }
}

fn all_options() -> impl Iterator<Item = BuildOptions> {
    (0..16u8).filter(|bits| bits & 12 != 12).map(|bits| BuildOptions {
        symmetrise: bits & 1 > 0,
        drop_self_loops: bits & 2 > 0,
        keep_duplicates: bits & 4 > 0,
        sum_weights: bits & 8 > 0,
    })
}

fn random_edges(seed: u64, count: u32, ids: u32, spread: u64) -> Vec<(u64, u64)> {
    let key = StreamKey::new(seed, Stream::Generate);
    let edge = |i| {
        let mut draws = Draws::new(&key, i);
        // A hub: every eighth edge leads to the last id.
        let target = if draws.below(8) == 0 { ids - 1 } else { draws.below(ids) };
        (u64::from(draws.below(ids)) * spread, u64::from(target) * spread)
    };
    (0..count).map(edge).collect()
}

fn compare(
    listed: &EdgesInMemory,
    ids: Ids,
    options: BuildOptions,
    memory: Option<u64>,
    what: &str,
) {
    let (found, built) = built(listed, ids, options, memory);
    let mut expected = oracle(listed, ids, options);
    if !listed.values {
        expected.lists.iter_mut().flatten().for_each(|edge| edge.1 = 0.0);
    }
    assert!(found == expected, "{what}, {ids:?}, {options:?}, memory {memory:?}");
    assert_eq!(built.num_vertices as usize, expected.names.len());
    let loops = listed.edges.iter().filter(|(u, v)| u == v).count();
    assert_eq!(built.self_loops_dropped, if options.drop_self_loops { loops as u64 } else { 0 });
}

#[test]
fn oracle_every_option_and_kind_of_id() {
    for options in all_options() {
        for (ids, spread, strings) in [
            (Ids::Dense(Some(70)), 1, false),
            (Ids::Dense(None), 3, false),
            (Ids::Sparse, 1, false),
            (Ids::Sparse, 1000, false),
            (Ids::Sparse, u64::MAX / 100, false),
            (Ids::Sparse, 1, true),
        ] {
            for values in [false, true] {
                let edges = random_edges(spread, 400, 64, spread);
                let listed = EdgesInMemory { edges, values, strings, per_piece: 30, first: None };
                compare(
                    &listed,
                    ids,
                    options,
                    None,
                    &format!("spread {spread}, strings {strings}"),
                );
            }
        }
    }
}

#[test]
fn oracle_edges_wait_on_disk_and_hubs_do_not_fit() {
    for options in all_options() {
        for values in [false, true] {
            for (ids, spread) in [(Ids::Dense(None), 1), (Ids::Sparse, 7)] {
                let edges = random_edges(5, 12_000, 1200, spread);
                let listed = EdgesInMemory {
                    edges,
                    values,
                    strings: false,
                    per_piece: 700,
                    first: Some((spread, 0)),
                };
                compare(&listed, ids, options, Some(6_000), "spilled");
            }
        }
    }
}

#[test]
fn threads_and_budgets_change_nothing() {
    let edges = random_edges(9, 20_000, 2000, 5);
    let listed = EdgesInMemory { edges, values: true, strings: false, per_piece: 100, first: None };
    let options = BuildOptions { symmetrise: true, ..BuildOptions::default() };
    let run = |threads, memory| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| built(&listed, Ids::Sparse, options, memory).0)
    };
    let one = run(1, None);
    for threads in [1, 2, 5] {
        for memory in [None, Some(9_000), Some(100_000)] {
            assert!(run(threads, memory) == one, "{threads} threads, memory {memory:?}");
        }
    }
}

#[test]
fn graphs_without_edges_or_vertices() {
    let none = EdgesInMemory { per_piece: 1, ..EdgesInMemory::default() };
    for (ids, n) in [
        (Ids::Dense(Some(0)), 0),
        (Ids::Dense(Some(3)), 3),
        (Ids::Dense(None), 0),
        (Ids::Sparse, 0),
    ] {
        let (found, made) = built(&none, ids, BuildOptions::default(), None);
        assert_eq!((found.lists, made.num_vertices), (vec![Vec::new(); n], n as u64));
    }
}

#[test]
fn ids_out_of_range_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |edges: Vec<(u64, u64)>, ids| {
        let listed = EdgesInMemory { edges, per_piece: 2, ..EdgesInMemory::default() };
        let mut writer = DatasetWriter::begin(&folder.path().join("ds"), false).unwrap();
        let edges = source(&listed);
        let build = build(&edges, ids, BuildOptions::default(), writer.scratch());
        build.run(&mut writer, &NoProgress).unwrap_err().to_string()
    };
    let message = run(vec![(0, 1), (2, 3), (7, 0)], Ids::Dense(Some(3)));
    assert!(message.contains("an edge names vertex 3: expected ids below 3"), "{message}");
    let message = run(vec![(0, 1 << 40)], Ids::Dense(None));
    assert!(message.contains("vertex id 1099511627776 is too large for --keep-ids"), "{message}");
}
