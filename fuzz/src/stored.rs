//! Turns bytes into files that gsplit stores or imports: datasets with every artifact, partitions
//! that other tools made, the journal of a killed conversion. `tests/suite/corpora.rs` replays
//! their corpora.
//!
//! All documents hold checksums, their own and other files', which a fuzzer cannot guess. So unless
//! the letter `r` (raw) is given, documents get the checksums of the files that are there, as
//! hostile ones would have.

use std::path::Path;
use std::sync::OnceLock;

use gsplit_partition::ImportOptions;
use gsplit_store::{
    Checksum, Dataset, DatasetWriter, FeatureDtype, PartitionMap, Placement, Presample, Provenance,
    Split, checksum_file, verify,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::input::{folder, one_line, split, succeeds, write, write_all};

/// Names of the targets.
#[allow(dead_code)] // For the replay.
pub const TARGETS: [&str; 3] = ["dataset", "import", "journal"];

/// Runs the target called `name`; returns whether the content of the bytes was accepted. Panics
/// where it was neither accepted nor refused with one line.
pub fn run(name: &str, bytes: &[u8]) -> bool {
    match name {
        "dataset" => open_all(bytes),
        "import" => import(bytes),
        "journal" => resume(bytes),
        _ => panic!("no target {name}"),
    }
}

/// Where a document's own checksum stood when it was computed.
const NO_CHECKSUM: &str = "xxh3:00000000000000000000000000000000";

/// Changes the content of the document at `path`, if it is one, and makes its checksum right.
/// Returns the checksum.
pub fn vouch(path: &Path, change: impl FnOnce(&mut Value)) -> Option<String> {
    let mut document: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    change(document.get_mut("content")?);
    *document.get_mut("checksum")? = NO_CHECKSUM.into();
    let text = document.to_string();
    let checksum = Checksum::of(text.as_bytes()).to_string();
    write(path, text.replacen(NO_CHECKSUM, &checksum, 1).as_bytes());
    Some(checksum)
}

/// Records the files below `folder` that `content` names as they are.
pub fn record(folder: &Path, content: &mut Value) {
    let Some(files) = content.get_mut("files").and_then(Value::as_object_mut) else { return };
    for (name, record) in files {
        if let Ok((bytes, checksum)) = checksum_file(&folder.join(name)) {
            *record = json!({ "bytes": bytes, "checksum": checksum.to_string() });
        }
    }
}

/// The files of a dataset that has everything.
pub fn dataset_files() -> impl Iterator<Item = &'static str> {
    DATASET.into_iter()
}

const DATASET: [&str; 23] = [
    "dataset.json",
    "topology/indptr.npy",
    "topology/indices.npy",
    "nodes/feat.arrow",
    "nodes/label.npy",
    "nodes/original_id.npy",
    "nodes/original_id.arrow",
    "nodes/year.npy",
    "edges/weight.npy",
    "splits/train.npy",
    "splits/valid.npy",
    "splits/test.npy",
    "presample/k/presample.json",
    "presample/k/input.npy",
    "presample/k/appear.npy",
    "presample/k/work.npy",
    "presample/k/edge.npy",
    "partition/k/partition.json",
    "partition/k/assignment.npy",
    "partition/k/cache_order.npy",
    "placement/k/placement.json",
    "placement/k/placement.npy",
    "placement/k/slots.npy",
];

fn open_all(bytes: &[u8]) -> bool {
    let folder = folder();
    let (path, mut parts) = (folder.path().join("ds"), split(bytes));
    write_all(&path, &DATASET, &mut parts);
    if !parts.next().unwrap_or_default().contains(&b'r') {
        vouch_for_all(&path);
    }
    let dataset = match Dataset::open(&path) {
        Ok(dataset) => dataset,
        Err(error) => return one_line(&error),
    };
    let opened = use_all(&dataset);
    let mut sound = true;
    match verify(&path) {
        Ok(findings) => {
            for problem in findings.into_iter().filter_map(|finding| finding.problem) {
                sound = one_line(&problem);
            }
        }
        Err(error) => sound = one_line(&error),
    }
    assert!(opened || !sound, "verified, and cannot be used");
    sound
}

/// Corrects every document's checksums of the files next to it and of its inputs.
fn vouch_for_all(path: &Path) {
    vouch(&path.join("dataset.json"), |content| record(path, content));
    let Ok(dataset) = Dataset::open(path) else { return };
    let of =
        |name: &str| dataset.manifest().files.get(name).map(|record| record.checksum.to_string());
    let (topology, train) = (dataset.topology_checksum().to_string(), of("splits/train.npy"));
    let mut made: Vec<(&str, Option<String>)> = Vec::new();
    for kind in ["presample", "partition", "placement"] {
        let folder = path.join(kind).join("k");
        let checksum = vouch(&folder.join(kind).with_extension("json"), |content| {
            record(&folder, content);
            let Some(from) = content.get_mut("made_from").and_then(Value::as_object_mut) else {
                return;
            };
            from.insert("topology".into(), json!(topology));
            if from.contains_key("train") {
                from.insert("train".into(), json!(train));
            }
            for (kind, checksum) in &made {
                if from.contains_key(*kind) {
                    from.insert((*kind).into(), json!(["k", checksum]));
                }
            }
        });
        made.push((kind, checksum));
    }
}

/// Opens everything and looks at all of it; returns whether all that is there could be.
fn use_all(dataset: &Dataset) -> bool {
    let (n, manifest) = (dataset.num_vertices(), dataset.manifest());
    let vertices = || (0..n as u32).take(1 << 12);
    let mut all = succeeds(dataset.topology().check_indices());
    vertices().for_each(|v| {
        assert!(dataset.topology().in_neighbours(v).len() <= dataset.topology().num_edges())
    });
    let has = |name: &str| manifest.files.contains_key(name);
    if has("nodes/feat.arrow") {
        let features = dataset.features();
        all &= succeeds(features.as_ref());
        if let Ok(features) = features {
            assert_eq!(features.num_rows(), n);
            let wide = |v| match features.dtype() {
                FeatureDtype::F32 => features.row::<f32>(v).len(),
                FeatureDtype::I8 => features.row::<i8>(v).len(),
                _ => features.row::<u16>(v).len(),
            };
            vertices().for_each(|v| assert_eq!(wide(v), features.dim()));
        }
    }
    if has("nodes/label.npy") && manifest.multi_label {
        let labels = dataset.multi_labels();
        all &= succeeds(labels.as_ref())
            && labels.is_ok_and(|labels| {
                vertices().all(|v| labels.classes(v).count() <= labels.num_classes() as usize)
            });
    } else if has("nodes/label.npy") {
        all &= succeeds(dataset.labels());
    }
    for name in manifest.columns.keys() {
        all &= succeeds(dataset.node_column(name));
    }
    for name in manifest.edge_columns.keys() {
        all &= succeeds(dataset.edge_column(name));
    }
    all &= succeeds(dataset.original_ids());
    match dataset.original_names() {
        Ok(names) => all &= names.iter().flat_map(|names| names.iter()).all(succeeds),
        Err(error) => all = one_line(&error),
    }
    for split in [Split::Train, Split::Valid, Split::Test]
        .into_iter()
        .filter(|split| has(&format!("splits/{}.npy", split.name())))
    {
        all &= succeeds(dataset.split(split));
    }
    let keys = |kind: &str| dataset.keys(kind).unwrap_or_default();
    for key in keys("presample") {
        all &= succeeds(Presample::open(dataset, &key));
    }
    for key in keys("partition") {
        let map = PartitionMap::open(dataset, &key);
        all &= succeeds(map.as_ref());
        if let Ok(map) = map {
            assert_eq!(map.assignment().len(), n);
            let ordered: usize = (0..map.num_parts()).map(|part| map.cache_order(part).len()).sum();
            assert_eq!(ordered, n);
        }
    }
    for key in keys("placement") {
        let placement = Placement::open(dataset, &key);
        all &= succeeds(placement.as_ref());
        if let Ok(placement) = placement {
            let rows = |device| placement.own(device).len();
            assert!(
                (0..placement.num_devices()).map(rows).sum::<usize>() + placement.shared().len()
                    < usize::MAX
            );
        }
    }
    all
}

const INDPTR: [u64; 7] = [0, 2, 3, 5, 6, 7, 8];
const INDICES: [u32; 8] = [1, 2, 0, 0, 3, 2, 5, 4];

fn provenance() -> Provenance {
    let (tool_version, command) = (String::new(), "fuzz".into());
    Provenance {
        tool_version,
        command,
        options: Value::Null,
        sources: Vec::new(),
        facts: Default::default(),
        decisions: Vec::new(),
        schema: Default::default(),
    }
}

/// A dataset of six vertices that were called 10, 20, ... before.
pub fn six() -> &'static Dataset {
    static SIX: OnceLock<(TempDir, Dataset)> = OnceLock::new();
    let (_, dataset) = SIX.get_or_init(|| {
        let folder = folder();
        let write = || {
            let mut writer = DatasetWriter::begin(&folder.path().join("six"), false)?;
            writer.add_graph(&INDPTR, &INDICES)?;
            writer.add_original_ids(&[10, 20, 30, 40, 50, 60])?;
            writer.add_labels(&[0, 1, 0, 1, -1, 1])?;
            let mut features = writer.feature_writer(FeatureDtype::F32, 3)?;
            features.push_rows(&(0..18u8).map(f32::from).collect::<Vec<_>>())?;
            writer.add_features(features, None)?;
            for (split, vertices) in
                [(Split::Train, vec![0, 1, 2]), (Split::Valid, vec![3]), (Split::Test, vec![5])]
            {
                writer.add_split(split, vertices)?;
            }
            writer.finish(provenance())
        };
        let dataset: gsplit_store::Result<Dataset> = write();
        (folder, dataset.expect("a dataset of six vertices"))
    });
    dataset
}

/// The parts of six vertices, with the letters `o` for original ids and `p` for two parts.
fn import(bytes: &[u8]) -> bool {
    let folder = folder();
    let path = folder.path().join("graph.part.2");
    let mut parts = split(bytes);
    write(&path, parts.next().unwrap_or_default());
    let letters = parts.next().unwrap_or_default();
    let options = ImportOptions { import: Some(path), by_original_id: letters.contains(&b'o') };
    match options.read(six(), letters.contains(&b'p').then_some(2)) {
        Ok(imported) => {
            let imported = imported.expect("a file was named");
            assert!(
                imported.assignment.len() == 6
                    && imported.assignment.iter().all(|&part| u32::from(part) < imported.parts)
            );
            true
        }
        Err(error) => one_line(&error),
    }
}

/// Where a run was killed after two stages.
struct Killed {
    folder: TempDir,
}

impl Killed {
    fn new() -> Self {
        let killed = Self { folder: folder() };
        let begun = killed.again().and_then(|mut writer| {
            std::fs::write(writer.scratch().join("bucket-0"), [1; 16]).expect("a scratch file");
            stages(&mut writer)
        });
        begun.expect("a dataset with two finished stages");
        assert!(killed.journal().exists(), "a killed run leaves its journal");
        killed
    }

    fn journal(&self) -> std::path::PathBuf {
        self.folder.path().join(".ds.partial/journal.json")
    }

    fn again(&self) -> gsplit_store::Result<DatasetWriter> {
        DatasetWriter::resume(&self.folder.path().join("ds"), false, &json!({ "input": "six" }))
    }
}

fn stages(writer: &mut DatasetWriter) -> gsplit_store::Result<()> {
    if !writer.is_done("graph") {
        writer.add_graph(&INDPTR, &INDICES)?;
        writer.complete("graph")?;
    }
    if !writer.is_done("labels") {
        writer.add_labels(&[0, 1, 0, 1, -1, 1])?;
        writer.complete("labels")?;
    }
    Ok(())
}

/// The journal that a killed run leaves.
#[allow(dead_code)] // For the seed.
pub fn journal() -> Vec<u8> {
    std::fs::read(Killed::new().journal()).expect("a journal")
}

/// Puts a journal next to the files of a killed run, which is then run again. Nothing outside is
/// ever touched; files that it cannot have forged become a sound dataset.
fn resume(bytes: &[u8]) -> bool {
    let (killed, mut parts) = (Killed::new(), split(bytes));
    let canary = killed.folder.path().join("canary");
    write(&canary, b"alive");
    write(&killed.journal(), parts.next().unwrap_or_default());
    let raw = parts.next().unwrap_or_default().contains(&b'r');
    if !raw {
        vouch(&killed.journal(), |_| {});
    }
    let finished = killed.again().and_then(|mut writer| {
        stages(&mut writer)?;
        writer.finish(provenance())
    });
    assert_eq!(std::fs::read(&canary).expect("the file next to it is not touched"), b"alive");
    let dataset = match finished {
        Ok(dataset) => dataset,
        Err(error) => return one_line(&error),
    };
    let findings = verify(dataset.path()).expect("a dataset that can be verified");
    let problems: Vec<_> = findings.into_iter().filter_map(|finding| finding.problem).collect();
    problems.iter().for_each(|problem| _ = one_line(problem));
    assert!(!raw || problems.is_empty(), "{problems:?}");
    problems.is_empty()
}
