//! Tensors saved by torch: a `Data` of PyG, its dict, or the pair `(data, slices)` of a processed
//! dataset; a dict of tensors; or only `edge_index`.
//!
//! Tensors have the names that [`catalog`](super::catalog) lists, e.g. `edge_index`, `x`, `y` and
//! `train_mask`. The file is a program, which is [read without executing it](super::pickle): PyG's
//! `Data` and the classes in a `Data` of a single graph are known.

use std::collections::BTreeMap;
use std::path::Path;

use gsplit_store::Progress;

use super::catalog::{self, Catalog};
use super::numbers::Numbers;
use super::pickle::{Item, Pickled};
use crate::read::options::Schema;
use crate::read::raw::Raw;
use crate::read::text::some;
use crate::{Error, Result};

/// Whether `path` has an extension of torch's files, and starts like one.
pub fn recognises(path: &Path, head: &[u8]) -> bool {
    let named = path.extension().is_some_and(|end| end == "pt" || end == "pth");
    named && (head.starts_with(b"PK\x03\x04") || head.starts_with(&[0x80]))
}

/// Opens the file at `path`.
pub fn open(path: &Path, schema: &Schema, progress: &dyn Progress) -> Result<Raw> {
    let (catalog, num_vertices) = tensors(path, progress)?;
    catalog.graph_of(num_vertices, schema, progress)
}

/// The tensors in the file at `path`, and the number of vertices if it is stored.
pub fn tensors(path: &Path, progress: &dyn Progress) -> Result<(Catalog, Option<u64>)> {
    let pickled = Pickled::open(path)?;
    let root = pickled.root();
    if let Some(index) = root.numbers("edge_index")? {
        return Ok((
            Catalog::Named(path.to_path_buf(), BTreeMap::from([("edge_index".to_string(), index)])),
            None,
        ));
    }
    let data = attributes(root).map_err(|problem| Error::input(path, problem))?;
    let (mut arrays, mut left) = (BTreeMap::new(), Vec::new());
    for (name, item) in data.entries().unwrap_or_default() {
        match item.numbers(name)? {
            Some(numbers) if catalog::is_known(name) => {
                drop(arrays.insert(name.to_string(), numbers))
            }
            Some(_) => left.push(name.escape_debug().to_string()),
            None => {}
        }
    }
    if !left.is_empty() {
        progress.note(&format!("note: {}: not read: {}", path.display(), some(&left)));
    }
    let stated = data.get("num_nodes").and_then(Item::int).and_then(|n| u64::try_from(n).ok());
    Ok((Catalog::Named(path.to_path_buf(), arrays), stated))
}

/// The only tensor in the file at `path`.
pub fn tensor(path: &Path, name: &str) -> Result<Numbers> {
    let pickled = Pickled::open(path)?;
    let root = pickled.root();
    root.numbers(name)?
        .ok_or_else(|| Error::input(path, format!("found {}: expected a tensor", root.what())))
}

/// The dict of tensors that `root` is, or contains.
fn attributes(root: Item<'_>) -> Result<Item<'_>, String> {
    let found = match root.list() {
        Some(entries) => {
            let slices = entries.get(1).and_then(|slices| slices.pairs()).unwrap_or_default();
            for (_, slice) in slices {
                if slice.numbers("slices").ok().flatten().is_some_and(|ends| ends.len() > 2) {
                    return Err("several graphs: expected one; save the one to convert with \
                         torch.save(dataset[0], ...)"
                        .into());
                }
            }
            entries.first().copied().unwrap_or(root)
        }
        None => root,
    };
    let found = found.get("_store").unwrap_or(found);
    let found = found.get("_mapping").unwrap_or(found);
    // Edges of a HeteroData have tuples for names.
    if found.pairs().unwrap_or_default().iter().any(|(key, _)| key.list().is_some()) {
        return Err(
            "a HeteroData, of several types: load it in Python and pass it to gsplit.convert"
                .into(),
        );
    }
    match found.entries() {
        Some(_) => Ok(found),
        None => Err(format!("found {}: expected a Data of PyG or a dict of tensors", found.what())),
    }
}

#[cfg(test)]
mod tests {
    use gsplit_store::{NoProgress, Notes};

    use super::*;
    use crate::read::golden::{Part::*, *};
    use crate::read::options::ReadOptions;

    #[test]
    fn golden_inputs() {
        for name in ["data", "legacy", "processed"] {
            let path = data(&format!("pt/{name}.pt"));
            assert!(recognises(&path, &std::fs::read(&path).unwrap()), "{name}");
            let (options, notes) =
                (Schema { split_name: Some("1".into()), ..Default::default() }, Notes::default());
            check(&open(&path, &options, &notes).unwrap(), &[Vertices, Features, Labels, Splits]);
            assert!(
                notes.lines().join(" ").ends_with("not read: pos"),
                "{name}: {:?}",
                notes.lines()
            );
            let notes = Notes::default();
            // One mask for the test split, two for the others, the first of which are empty.
            let splits = open(&path, &Schema::default(), &notes).unwrap().splits.unwrap();
            assert_eq!(splits.map(|split| split.len()), [0, 0, 2]);
            assert!(
                notes
                    .lines()
                    .join("\n")
                    .contains("--schema split-name=0 is taken, the last is --schema split-name=1")
            );
        }
        check(&open(&data("pt/index.pt"), &Schema::default(), &NoProgress).unwrap(), &[]);
        let isolated = open(&data("pt/isolated.pt"), &Schema::default(), &NoProgress).unwrap();
        assert_eq!(isolated.ids, crate::read::raw::Ids::Dense(Some(8)));
        let folder =
            Catalog::Folder(data("pt/folder")).graph(&Schema::default(), &NoProgress).unwrap();
        check(&folder, &[Vertices, Features, Labels]);
        assert!(folder.files.iter().any(|file| file.ends_with("edge_index.pt")));
    }

    #[test]
    fn tensors_come_with_the_edges_of_another_file() {
        let (folder, options) = (
            tempfile::tempdir().unwrap(),
            ReadOptions {
                schema: Schema { split_name: Some("1".into()), ..Default::default() },
                ..Default::default()
            },
        );
        let edges = folder.path().join("edges.txt");
        std::fs::write(&edges, EDGES.map(|(u, v)| format!("{u} {v}\n")).concat()).unwrap();
        let mut raw = crate::read::text::snap::open(&edges, &options).unwrap();
        let (nodes, none) = (data("pt/data.pt"), &mut Vec::new());
        crate::read::attach_nodes(&nodes, &mut raw, &options, &NoProgress, none).unwrap();
        assert_eq!((raw.features.unwrap().width(), raw.splits.unwrap()[0].len()), (3, 2));
    }

    #[test]
    fn what_is_no_graph_is_named() {
        let told = |name: &str| problem(open(&data(name), &Schema::default(), &NoProgress));
        assert!(
            told("pt/several.pt").contains("several graphs: expected one; save the one to convert")
        );
        assert!(told("pt/folder/x.pt").contains("edge_index: shape [6, 3]: expected (2, E)"));
        assert!(told("ogb-links/zip/valid.pt").contains("expected edges in it"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pt");
        std::fs::write(&path, b"\x80\x02ctorch_sparse.tensor\nSparseTensor\n)\x81.").unwrap();
        let message = problem(open(&path, &Schema::default(), &NoProgress));
        assert!(
            message.contains("torch_sparse.tensor.SparseTensor, which this reader does not run"),
            "{message}"
        );
        std::fs::write(&path, b"\x80\x02K\x01.").unwrap();
        let message = problem(open(&path, &Schema::default(), &NoProgress));
        // A HeteroData, and the dict of one.
        for bytes in [
            &b"\x80\x02ctorch_geometric.data.hetero_data\nHeteroData\n)\x81."[..],
            b"\x80\x02}X\x01\0\0\0aX\x02\0\0\0toX\x01\0\0\0b\x87}s.",
        ] {
            std::fs::write(&path, bytes).unwrap();
            let message = problem(open(&path, &Schema::default(), &NoProgress));
            assert!(message.contains("of several types"), "{message}");
        }
        assert!(
            message.contains("found an integer: expected a Data of PyG or a dict of tensors"),
            "{message}"
        );
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed_or_harmless() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pt");
        for name in ["pt/data.pt", "pt/legacy.pt"] {
            let good = std::fs::read(data(name)).unwrap();
            for at in (0..good.len()).step_by(3) {
                std::fs::write(&path, &good[..at]).unwrap();
                problem(open(&path, &Schema::default(), &NoProgress));
                let bytes = [&good[..at], &[good[at] ^ 1 << (at % 8)], &good[at + 1..]].concat();
                std::fs::write(&path, &bytes).unwrap();
                let Ok(raw) = open(&path, &Schema::default(), &NoProgress) else { continue };
                let _ = read_edges(&*raw.edges);
                raw.features
                    .iter()
                    .chain(&raw.labels)
                    .for_each(|column| drop(read_column(&**column)));
            }
        }
    }
}
