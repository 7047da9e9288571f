//! Turns bytes into the files of a raw graph, and these into a dataset: run by the fuzz targets of
//! readers, and by the test that replays their corpora (`preprocess/tests/corpora.rs`).
//!
//! The letters behind the files are options (see [`options`]), so that the fuzzer reaches their
//! code too.
//!
//! Whatever the bytes are, [`run`] must return: either a dataset is made, and `verify` finds
//! nothing wrong with it, or there is an error of one line.

use std::path::Path;

use gsplit_preprocess::convert::{ConvertOptions, Format, convert};
use gsplit_preprocess::memory::Memory;
use gsplit_preprocess::read::options::{Answer, Decimal, MissingRows, OnDuplicate};
use gsplit_store::memory::resident;
use gsplit_store::{NoProgress, verify};

use super::input::{folder, one_line, split, write, write_all};

/// Memory limit of a conversion in bytes, the smallest that is accepted, on top of the process's
/// own memory.
pub const BUDGET: u64 = 64 << 20;

/// One reader under test.
pub struct Target {
    /// Name of the fuzz target and of its corpus.
    pub name: &'static str,
    /// Names of the files, in the order of the input.
    pub files: &'static [&'static str],
    /// What of them is named to `convert`: a file, or the folder.
    opened: &'static str,
    what: What,
}

enum What {
    Convert(Format),
    /// The first part is the name of the second.
    Detect,
    /// A table of vertices next to the edges.
    Nodes,
}

const fn convert_of(
    name: &'static str,
    format: Format,
    opened: &'static str,
    files: &'static [&'static str],
) -> Target {
    Target { name, files, opened, what: What::Convert(format) }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    convert_of("snap", Format::Snap, "edges.txt", &["edges.txt"]),
    convert_of("csv", Format::Csv, "edges.csv", &["edges.csv"]),
    convert_of("adjlist", Format::Adjlist, "edges.txt", &["edges.txt"]),
    convert_of(
        "ogb_csv",
        Format::Ogb,
        "",
        &[
            "raw/edge.csv",
            "raw/num-node-list.csv",
            "raw/num-edge-list.csv",
            "raw/node-feat.csv",
            "raw/node-label.csv",
            "split/only/train.csv",
            "split/only/valid.csv",
            "split/only/test.csv",
        ],
    ),
    convert_of(
        "ogb_npz",
        Format::Ogb,
        "",
        &[
            "raw/data.npz",
            "raw/node-label.npz",
            "split/only/train.csv",
            "split/only/valid.csv",
            "split/only/test.csv",
        ],
    ),
    convert_of(
        "ogb_links",
        Format::Ogb,
        "",
        &[
            "raw/edge.csv",
            "raw/num-node-list.csv",
            "raw/num-edge-list.csv",
            "split/time/train.pt",
            "split/time/valid.pt",
            "split/time/test.pt",
        ],
    ),
    convert_of(
        "npy",
        Format::Npy,
        "",
        &[
            "edge_index.npy",
            "row.npy",
            "col.npy",
            "indptr.npy",
            "indices.npy",
            "csc_indptr.npy",
            "csc_indices.npy",
            "edge_weight.npy",
            "edge_attr.npy",
            "feat.npy",
            "labels.npy",
            "train_mask.npy",
            "val_idx.npy",
            "test_idx.npy",
        ],
    ),
    convert_of("npz", Format::Npz, "graph.npz", &["graph.npz"]),
    convert_of(
        "igb",
        Format::Relations,
        "",
        &["paper__cites__paper/edge_index.npy", "paper/node_feat.npy", "paper/node_label_19.npy"],
    ),
    convert_of(
        "mag240m",
        Format::Relations,
        "",
        &[
            "processed/paper___cites___paper/edge_index.npy",
            "processed/paper/node_feat.npy",
            "processed/paper/node_label.npy",
            "processed/paper/node_year.npy",
            "processed/author___writes___paper/edge_index.npy",
            "processed/author/num_nodes.npy",
            "processed/paper/train.npy",
            "meta.pt",
            "split_dict.pt",
        ],
    ),
    convert_of(
        "graphsaint",
        Format::Graphsaint,
        "",
        &["adj_full.npz", "feats.npy", "class_map.json", "role.json"],
    ),
    convert_of("mtx", Format::Mtx, "matrix.mtx", &["matrix.mtx"]),
    convert_of("metis", Format::Metis, "lists.graph", &["lists.graph"]),
    convert_of("dimacs", Format::Dimacs, "graph.gr", &["graph.gr"]),
    convert_of("parquet", Format::Parquet, "edges.parquet", &["edges.parquet"]),
    convert_of("arrow", Format::Arrow, "edges.arrow", &["edges.arrow"]),
    Target {
        name: "nodes",
        files: &["edges.csv", "nodes.csv", "nodes.parquet", "nodes.arrow"],
        opened: "edges.csv",
        what: What::Nodes,
    },
    Target {
        name: "nodes_npz",
        files: &["edges.csv", "nodes.npz"],
        opened: "edges.csv",
        what: What::Nodes,
    },
    // Whatever they are compressed with: readers look at the first bytes.
    convert_of("compressed_snap", Format::Snap, "edges.txt", &["edges.txt"]),
    convert_of("compressed_csv", Format::Csv, "edges.csv", &["edges.csv"]),
    convert_of(
        "webgraph",
        Format::Webgraph,
        "web.graph",
        &["web.properties", "web.graph", "web.offsets"],
    ),
    convert_of(
        "planetoid",
        Format::Planetoid,
        "",
        &[
            "ind.six.graph",
            "ind.six.allx",
            "ind.six.tx",
            "ind.six.ally",
            "ind.six.ty",
            "ind.six.y",
            "ind.six.test.index",
        ],
    ),
    convert_of("json_lists", Format::Csv, "", &["x_edges.csv", "x_target.csv", "x_features.json"]),
    convert_of("pt", Format::Pt, "graph.pt", &["graph.pt"]),
    Target { name: "detect", files: &["name", "content"], opened: "", what: What::Detect },
];

/// The target called `name`.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name}"))
}

/// Converts what `bytes` hold for the target called `name`. Returns whether a dataset was made;
/// panics when the outcome is neither a sound dataset nor an error of one line.
pub fn run(name: &str, bytes: &[u8]) -> bool {
    let target = target(name);
    let folder = folder();
    let (input, out) = (folder.path().join("in"), folder.path().join("out"));
    let mut parts = split(bytes);
    std::fs::create_dir(&input).expect("a folder for the input");
    if let What::Detect = target.what {
        let name = file_name(parts.next().unwrap_or_default());
        let content = parts.next().unwrap_or_default();
        write(&input.join(&name), content);
        return convert_all(&input.join(name), &out, &options(&mut parts));
    }
    write_all(&input, target.files, &mut parts);
    let mut options = options(&mut parts);
    match target.what {
        What::Detect => unreachable!(),
        What::Convert(format) => options.format = Some(format),
        What::Nodes => {
            options.format = Some(Format::Csv);
            let tables = target.files[1..].iter().map(|name| input.join(name));
            options.read.nodes = tables.into_iter().find(|path| path.exists());
        }
    }
    let opened = if target.opened.is_empty() { input } else { input.join(target.opened) };
    convert_all(&opened, &out, &options)
}

/// Options by their letters.
fn options<'a>(parts: &mut impl Iterator<Item = &'a [u8]>) -> ConvertOptions {
    let mut options = ConvertOptions::default();
    options.read.memory = Some(Memory::bytes(resident() + BUDGET));
    for letter in parts.next().unwrap_or_default() {
        match letter {
            b'k' => options.read.keep_ids = true,
            b'h' => options.read.schema.ignore_header = Some(Answer::Yes),
            b'c' => options.read.schema.edge_columns = Some(vec!["weight".into()]),
            b'C' => options.read.schema.edge_columns = Some(vec!["weight".into(), "time".into()]),
            b's' => options.build.symmetrise = true,
            b'l' => options.build.drop_self_loops = true,
            b'd' => options.build.keep_duplicates = true,
            b'w' => options.build.sum_weights = true,
            b'i' => options.feature_dtype = "i8".parse().expect("a type"),
            b'f' => options.feature_dtype = "f16".parse().expect("a type"),
            b'n' => options.read.schema.header = Some(Answer::No),
            b'y' => options.read.schema.header = Some(Answer::Yes),
            b'b' => options.read.schema.bipartite = Some(Answer::Yes),
            b'o' => options.read.schema.bipartite = Some(Answer::No),
            b'm' => options.read.schema.decimal = Some(Decimal::Comma),
            b'1' => options.read.schema.on_duplicate = Some(OnDuplicate::First),
            b'2' => options.read.schema.on_duplicate = Some(OnDuplicate::Last),
            b'g' => options.read.schema.missing_rows = Some(MissingRows::Fill),
            b'x' => options.read.schema.missing_rows = Some(MissingRows::Drop),
            b'0' => options.read.schema.fill = "0".parse().ok(),
            b'r' => options.random_split = "0.5,0.25,0.25".parse().ok(),
            _ => {}
        }
    }
    options
}

/// A name for a file from any bytes.
fn file_name(bytes: &[u8]) -> String {
    let plain = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let name: String = bytes.iter().filter(plain).take(40).map(|&byte| char::from(byte)).collect();
    if name.trim_matches('.').is_empty() { "input".into() } else { name }
}

fn convert_all(path: &Path, out: &Path, options: &ConvertOptions) -> bool {
    match convert(path, out, options, false, &NoProgress) {
        Ok((dataset, _)) => {
            let found = verify(dataset.path()).expect("a dataset that can be verified");
            let problems: Vec<_> =
                found.into_iter().filter_map(|finding| finding.problem).collect();
            assert!(problems.is_empty(), "the dataset is not sound: {problems:?}");
            true
        }
        Err(error) => one_line(&error),
    }
}

/// The decoders of Parquet and Arrow panic on some damaged files, which the readers turn into
/// errors. libFuzzer would end at such a panic; with this it ends only if the panic is not caught,
/// or is one of our own.
#[allow(dead_code)] // The replaying test counts panics itself.
pub fn tolerate_guarded_decoders() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_guarded(info) {
            abort(info);
        }
    }));
}

/// Whether the panic comes from a decoder that the readers guard.
pub fn is_guarded(info: &std::panic::PanicHookInfo<'_>) -> bool {
    let file = info.location().map_or("", |place| place.file());
    ["/parquet-", "/arrow-", "/flatbuffers-"].iter().any(|name| file.contains(name))
}
