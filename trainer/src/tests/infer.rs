//! `gsplit infer` against a forward pass over the whole graph, and its errors.

use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use gsplit_kernels::{Draw, EdgeIds, Fanout, Graph, SampledCsc, Sampler, Stream, StreamKey};
use gsplit_store::{Column, ColumnFile, NoProgress, Split};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tch::Tensor;

use super::cases::cases;
use super::evaluation::{layer_rows, with_job};
use super::fixture::{
    CLASSES, Fixture, SEVERAL_CLASSES, assert_refused, build, changed, config, dataset, emulated,
    models, several_labels,
};
use super::runs;
use crate::config::{FeatureNorm, GpuList, JumpingKnowledge, ModelKind, Parallelism};
use crate::infer::{ChosenEpoch, LayerWise, Room, Team, Trained};
use crate::model::{LayerEdges, Model};
use crate::operator::{Place, to_rows};
use crate::residence::source::{FeatureSource, open_gpu_table};
use crate::{InferConfig, InferSummary, Predict, Summary, Wanted, infer};

/// Trains for two epochs and leaves a checkpoint in `run`. GAT has its features normalised.
fn trained(fixture: &Fixture, model: ModelKind) -> (PathBuf, Summary) {
    let config = changed(&config(model, Parallelism::Single, 1), |config| {
        config.model.normalise_features =
            if model == ModelKind::Gat { FeatureNorm::Row } else { FeatureNorm::None };
    });
    runs::trained(fixture, &config)
}

fn run(fixture: &Fixture, config: &InferConfig, memory: u64) -> crate::Result<InferSummary> {
    infer(&fixture.dataset, config, memory, None, &NoProgress)
}

/// The rows of a file.
pub fn of_parquet(path: &Path) -> impl Iterator<Item = RecordBatch> + use<> {
    let file = std::fs::File::open(path).unwrap();
    ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap()
        .map(|batch| batch.unwrap())
}

/// The names in `folder` that are new since the dataset and the checkpoint were made.
fn left(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "ds" && name != "run").collect();
    names.sort();
    names
}

fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>], tolerance: f32, what: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{what}");
        let largest = expected.iter().fold(1e-3f32, |largest, value| largest.max(value.abs()));
        let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(off <= tolerance * largest, "{what}: {off} of {largest}");
    }
}

/// Every model, with its finished layers and the features on the GPU, in the host's memory which it
/// reads, or on disk.
#[test]
fn differential_inference_on_a_gpu_is_that_of_the_host() {
    let fixture = dataset(71, 200, 3);
    let folder = tempfile::tempdir().unwrap();
    for (order, shape) in (0..).zip(models()) {
        let config = changed(&config(shape.kind, Parallelism::Single, 1), |config| {
            config.model = shape.clone()
        });
        with_job(&fixture.dataset, &config, |job| {
            let [host, device] = [Place::host(), Place::under_test(order % 4)].map(|place| {
                Model::with_layers(&place, &config, job.features.dim(), job.outputs, None, None)
            });
            let last_two = |model, source, room| {
                layer_rows(
                    job,
                    Team::new(model, Vec::new(), from_ref(source)),
                    room,
                    None,
                    config.model.layers - 2,
                )
            };
            let on_host = FeatureSource::new(&job.features, host.place());
            let expected = last_two(&host, &on_host, Room::UNLIMITED).0;
            let gathered = FeatureSource::new(&job.features, device.place());
            let gpu_table = open_gpu_table(&job.features, device.place().gpu()).unwrap();
            let pinned =
                FeatureSource::with_gpu_table(&job.features, device.place(), &gpu_table, 0)
                    .unwrap();
            let with = |device_bytes: u64, bytes: u64| Room {
                device_bytes: Some(device_bytes),
                bytes,
                scratch: Some(folder.path()),
                ..Room::UNLIMITED
            };
            // Chunks of a few vertices if memory is short. One way per model.
            let ways = [
                (&gathered, with(1 << 30, 1 << 30), false),
                (&pinned, with(12_000, 1 << 30), false),
                (&gathered, with(1 << 30, 12_000), false),
                (&gathered, with(12_000, 12_000), true),
            ];
            let (source, room, spills) = ways[order as usize % 4];
            let (found, spilled) = last_two(&device, source, room);
            assert_eq!(spilled, spills);
            assert_close(&found, &expected, 2e-5, &format!("{shape:?}, {room:?}"));
        });
    }
}

#[test]
fn what_a_gpu_has_not_the_memory_for_is_refused_with_what_to_do() {
    let fixture = dataset(73, 300, 20);
    let config = config(ModelKind::Sage, Parallelism::Single, 1);
    let message = with_job(&fixture.dataset, &config, |job| {
        let model = Model::with_layers(
            &Place::under_test(0),
            &config,
            job.features.dim(),
            job.outputs,
            None,
            None,
        );
        let source = FeatureSource::new(&job.features, model.place());
        let room = Room { device_bytes: Some(5_000), ..Room::UNLIMITED };
        let mut pass =
            LayerWise::new(Team::new(&model, Vec::new(), from_ref(&source)), job.graph, room, None)
                .unwrap();
        pass.run(2, None, &NoProgress, &mut |_| Ok(())).unwrap_err().to_string()
    });
    assert!(message.starts_with("layer 1 over all vertices: vertex "), "{message}");
    assert!(message.contains("in-edges") && message.contains("--device cpu"), "{message}");

    let checkpoint = trained(&fixture, ModelKind::Sage).0;
    let on_host =
        InferConfig { checkpoint, gpus: Some(GpuList(vec![0])), ..InferConfig::default() };
    assert_refused(run(&fixture, &on_host, 1 << 30), "--gpus is for --device cuda");
    // Outside this test, a machine without a GPU gives an error.
    let missing =
        InferConfig { device: crate::Device::Cuda, gpus: Some(GpuList(vec![4000])), ..on_host };
    let message = run(&fixture, &missing, 1 << 30).unwrap_err().to_string();
    assert!(message.contains("--device cpu") || message.contains("GPU 4000"), "{message}");
}

/// The last product, or the last layer, computes the logits from the embeddings: of every model, of
/// one layer too, on the host and on a GPU.
#[test]
fn oracle_logits_follow_from_the_embeddings() {
    use JumpingKnowledge as J;
    let fixture = dataset(74, 150, 4);
    let to = |name: &str| fixture.folder.path().join(name);
    let config_of = |case: &[usize]| {
        let &[kind, mode, layers] = case else { unreachable!() };
        let layers = [1, 3][layers];
        changed(&config(ModelKind::ALL[kind], Parallelism::Single, 1), |config| {
            config.model.jumping_knowledge = [J::None, J::Cat, J::Max][mode];
            (config.model.layers, config.run.epochs) = (layers, 1);
            config.data.fanouts = ["2", "4,3,2"][layers / 3].parse().unwrap();
        })
    };
    let allowed = |case: &[usize]| {
        let config = config_of(case);
        config.check().is_ok() && (config.model.layers > 1 || config.model.has_head())
    };
    for (order, case) in cases(&[ModelKind::ALL.len(), 3, 2], allowed).iter().enumerate() {
        let config = config_of(case);
        let what = format!("{:?}", config.model);
        runs::trained(&fixture, &config);
        let config = InferConfig {
            checkpoint: to("run"),
            predict: Some(Predict::Logits),
            split: [Wanted::All, Wanted::Test][usize::from(config.model.has_head()) * order % 2],
            out: Some(to("p.npy")),
            embeddings: Some(to("e.npy")),
            force: true,
            places: if order % 3 == 0 { emulated(order as u32 % 4) } else { None },
            ..InferConfig::default()
        };
        let scores = run(&fixture, &config, 1 << 30).unwrap().scores;
        let alone = InferConfig { embeddings: None, out: None, ..config.clone() };
        assert_eq!(run(&fixture, &alone, 1 << 30).unwrap().scores, scores, "{what}");
        let read = |name: &str| {
            let file = ColumnFile::open(to(name)).unwrap();
            Tensor::from_slice(file.as_slice::<f32>().unwrap())
                .view([file.rows() as i64, file.width() as i64])
        };
        let model = Trained::open(&to("run"), Some(ChosenEpoch::Last))
            .unwrap()
            .model(&Place::host(), None)
            .unwrap();
        let found = match model
            .parameters()
            .iter()
            .filter(|(name, _)| name.starts_with("head."))
            .collect::<Vec<_>>()[..]
        {
            [(_, weight), (_, bias)] => tch::no_grad(|| read("e.npy").matmul(weight) + bias),
            _ => last_layer(&fixture, &model, &read("e.npy")),
        };
        let rows = |tensor: &Tensor| vec![to_rows(tensor).unwrap()];
        assert_close(&rows(&found), &rows(&read("p.npy")), 1e-5, &what);
    }
}

/// The logits of all vertices from the `rows` below the last layer.
fn last_layer(fixture: &Fixture, model: &Model, rows: &Tensor) -> Tensor {
    let topology = fixture.dataset.topology();
    let graph = Graph::new(topology.indptr(), topology.indices()).unwrap();
    let vertices: Vec<u32> = (0..graph.num_vertices() as u32).collect();
    let (mut sampler, mut all) = (Sampler::default(), SampledCsc::default());
    sampler.start(&vertices);
    let key = StreamKey::new(0, Stream::Sample);
    sampler.layer(&graph, &Draw::new(Fanout::All), &key, EdgeIds::Drop, &mut all).unwrap();
    let edges = LayerEdges::new(model.place(), graph, all, &vertices).unwrap();
    model.infer_layer(model.num_layers() - 1, &edges, rows).unwrap()
}

#[test]
fn predictions_are_those_that_the_evaluation_scored() {
    let fixture = dataset(32, 600, 6);
    for (kind, folder) in [(ModelKind::Sage, "a"), (ModelKind::Gat, "b")] {
        let (checkpoint, summary) = trained(&fixture, kind);
        let last = summary.best.as_ref().unwrap();
        let base = InferConfig { checkpoint, ..InferConfig::default() };
        let folder = fixture.folder.path().join("ds/..").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let to = |name: &str| Some(folder.join(name));
        let all = InferConfig { out: to("p.npy"), embeddings: to("e.npy"), ..base.clone() };
        let found = run(&fixture, &all, 1 << 30).unwrap();
        let scores: Vec<(Split, Option<f64>)> = found.scores.into_iter().skip(1).collect();
        assert_eq!(scores, [(Split::Valid, last.valid), (Split::Test, last.test)], "{kind:?}");
        assert_eq!((found.vertices, found.spilled), (600, false));

        let classes = Column::<i32>::open(folder.join("p.npy")).unwrap();
        let ids = Column::<u64>::open(folder.join("p.ids.npy")).unwrap();
        assert!(ids.iter().copied().eq(0..600));
        let labels = fixture.dataset.labels().unwrap();
        let test = fixture.dataset.split(Split::Test).unwrap();
        let labelled: Vec<u32> =
            test.iter().copied().filter(|&v| labels[v as usize] >= 0).collect();
        let right = labelled.iter().filter(|&&v| classes[v as usize] == labels[v as usize]).count();
        assert_eq!(Some(right as f64 / labelled.len() as f64), last.test);

        let named = InferConfig { out: to("p.parquet"), ..base.clone() };
        run(&fixture, &named, 1 << 30).unwrap();
        for batch in of_parquet(&folder.join("p.parquet")) {
            let names =
                batch["class"].as_string::<i32>().iter().map(|name| name.unwrap().to_string());
            let ids = batch["id"].as_primitive::<Int64Type>().values();
            assert!(names.eq(ids.iter().map(|&v| format!("class {}", classes[v as usize]))));
            assert_eq!(batch.schema().field(2).name(), "probability_class 0");
            assert_eq!(batch.num_columns(), 2 + CLASSES);
        }

        // Only the test split, as logits in Parquet: the same rows.
        let part = InferConfig {
            split: Wanted::Test,
            predict: Some(Predict::Logits),
            out: to("t.parquet"),
            embeddings: to("t.npy"),
            ..base
        };
        run(&fixture, &part, 1 << 30).unwrap();
        let (mut ids, mut logits) = (Vec::new(), Vec::new());
        for batch in of_parquet(&folder.join("t.parquet")) {
            ids.extend(
                batch["id"].as_primitive::<Int64Type>().values().iter().map(|&id| id as u32),
            );
            let columns: Vec<_> =
                (0..CLASSES).map(|class| batch[&*format!("logit_class {class}")].clone()).collect();
            for row in 0..batch.num_rows() {
                logits.extend(
                    columns.iter().map(|column| column.as_primitive::<Float32Type>().value(row)),
                );
            }
        }
        assert_eq!(ids, test[..]);
        for (&v, row) in ids.iter().zip(logits.chunks_exact(CLASSES)) {
            assert_eq!(
                crate::metric::largest(row) as i32,
                classes[v as usize],
                "{kind:?}, vertex {v}"
            );
        }
        let (hidden, of_test) =
            (ColumnFile::open(folder.join("e.npy")), ColumnFile::open(folder.join("t.npy")));
        let (hidden, of_test) = (hidden.unwrap(), of_test.unwrap());
        assert_eq!((hidden.rows(), hidden.width(), of_test.rows()), (600, 8, test.len()));
        let [hidden, of_test] = [&hidden, &of_test].map(|file| file.as_slice::<f32>().unwrap());
        for (&v, row) in test.iter().zip(of_test.chunks_exact(8)) {
            assert_eq!(row, &hidden[v as usize * 8..][..8]);
        }
    }
}

#[test]
fn the_bytes_depend_neither_on_the_threads_nor_on_the_number_of_gpus() {
    let fixture = dataset(33, 500, 10);
    let (checkpoint, _) = trained(&fixture, ModelKind::Gatv2);
    let to = |name: &str| fixture.folder.path().join(name);
    // Little memory, so that there are many chunks.
    let files = |threads: usize, gpus: Option<Vec<usize>>| {
        let memory = 100_000 * gpus.as_ref().map_or(2, Vec::len) as u64;
        let config = InferConfig {
            checkpoint: checkpoint.clone(),
            predict: Some(Predict::Probabilities),
            out: Some(to("p.parquet")),
            embeddings: Some(to("e.npy")),
            force: true,
            places: gpus.is_some().then(|| emulated(2)).flatten(),
            gpus: gpus.map(GpuList),
            ..InferConfig::default()
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let scores = pool.install(|| run(&fixture, &config, memory)).unwrap().scores;
        (scores, ["p.parquet", "e.npy", "e.ids.npy"].map(|name| std::fs::read(to(name)).unwrap()))
    };
    let expected = files(1, None);
    assert!(files(2, None) == expected && files(4, None) == expected);
    assert!(files(2, Some(vec![0, 1, 2])) == files(2, Some(vec![0])));
    for batch in of_parquet(&to("p.parquet")) {
        let shares: Vec<_> =
            (1..=CLASSES).map(|at| batch.column(at).as_primitive::<Float32Type>()).collect();
        for row in 0..batch.num_rows() {
            let row: Vec<f32> = shares.iter().map(|column| column.value(row)).collect();
            let are_shares = row.iter().all(|share| (0.0..=1.0).contains(share));
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5 && are_shares, "{row:?}");
        }
    }
}

#[test]
fn several_classes_are_learnt_and_predicted_each_by_itself() {
    let fixture = several_labels(34, 600, 6);
    let config = changed(&config(ModelKind::Sage, Parallelism::Single, 1), |config| {
        (config.run.epochs, config.model.dropout, config.run.optimizer.lr) = (12, 0.0, 0.02);
    });
    let (checkpoint, summary) = runs::trained(&fixture, &config);
    let (first, last) = (&summary.epochs[0], &summary.epochs[11]);
    assert!(
        last.loss < 0.7 * first.loss && last.test.unwrap() > first.test.unwrap(),
        "{first:?} {last:?}"
    );
    let out = fixture.folder.path().join("p.npy");
    let config = InferConfig { checkpoint, out: Some(out.clone()), ..InferConfig::default() };
    let found = run(&fixture, &config, 1 << 30).unwrap();
    assert_eq!(found.scores[2], (Split::Test, summary.best.unwrap().test));
    let predicted = ColumnFile::open(out).unwrap();
    assert_eq!(
        (predicted.rows(), predicted.width(), predicted.descr()),
        (600, SEVERAL_CLASSES, "|u1")
    );
    // Micro-F1 computed again from the file.
    let labels = fixture.dataset.multi_labels().unwrap();
    let (mut both, mut either) = (0, 0);
    for &v in fixture.dataset.split(Split::Test).unwrap().iter() {
        for class in 0..SEVERAL_CLASSES {
            let (yes, has) = (
                predicted.bytes()[v as usize * SEVERAL_CLASSES + class] == 1,
                labels.has(v, class as u32),
            );
            both += u32::from(yes && has);
            either += u32::from(yes) + u32::from(has);
        }
    }
    assert_eq!(Some(f64::from(2 * both) / f64::from(either)), last.test);
}

#[test]
fn another_graph_with_the_same_features_is_inferred_on_and_others_are_refused() {
    let fixture = dataset(35, 300, 5);
    let (checkpoint, _) = trained(&fixture, ModelKind::Sage);
    let base = InferConfig { checkpoint: checkpoint.clone(), ..InferConfig::default() };
    let larger = dataset(36, 500, 9);
    let out = larger.folder.path().join("p.parquet");
    let found =
        run(&larger, &InferConfig { out: Some(out.clone()), ..base.clone() }, 1 << 30).unwrap();
    assert_eq!((found.vertices, found.scores.len()), (500, 3));
    let batches: Vec<_> = of_parquet(&out).collect();
    let names: Vec<String> = (0..CLASSES).map(|class| format!("class {class}")).collect();
    let classes = batches.iter().flat_map(|batch| batch["class"].as_string::<i32>());
    let classes: Vec<&str> = classes.map(|class| class.unwrap()).collect();
    assert!(
        classes.len() == 500 && classes.iter().all(|class| names.iter().any(|name| name == class))
    );

    let refused = |fixture: &Fixture, config: InferConfig, words: &str| {
        assert_refused(run(fixture, &config, 1 << 30), words)
    };
    let to = |name: &str| Some(fixture.folder.path().join(name));
    let with = |change: &dyn Fn(&mut InferConfig)| {
        let mut config = base.clone();
        change(&mut config);
        config
    };
    refused(&build(37, 100, 4, 5, false), base.clone(), "its features have 5 values");
    refused(&fixture, with(&|c| c.checkpoint = "nowhere".into()), "no checkpoint there");
    refused(&fixture, with(&|c| c.out = to("p.txt")), "ends in .csv, .parquet or .npy");
    refused(&fixture, with(&|c| (c.out, c.force) = (to("ds"), true)), "ends in .csv");
    refused(
        &fixture,
        with(&|c| (c.out, c.embeddings) = (to("p.npy"), to("p.npy"))),
        "the same file",
    );
    refused(
        &fixture,
        with(&|c| c.metric = Some("roc-auc".parse().unwrap())),
        "one of several classes",
    );
    refused(&fixture, with(&|c| c.metric = Some("mrr".parse().unwrap())), "another --task");
    refused(&larger, with(&|c| c.out = Some(out.clone())), "--force");
    assert!(run(&fixture, &base, 1 << 10).unwrap_err().to_string().contains("raise it"));

    let weights = checkpoint.join("epoch-00002/model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let last = InferConfig { epoch: Some(ChosenEpoch::Last), ..base.clone() };
    refused(&fixture, last, "its checksum is not the recorded one");
    let older = InferConfig { checkpoint: checkpoint.join("epoch-00001"), ..base };
    assert_eq!(run(&fixture, &older, 1 << 30).unwrap().epochs, 1);
    assert_eq!(left(fixture.folder.path()), Vec::<String>::new());
}

#[test]
fn an_interrupt_leaves_nothing() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let fixture = dataset(38, 400, 5);
    let (checkpoint, _) = trained(&fixture, ModelKind::Sage);
    let to = |name: &str| Some(fixture.folder.path().join(name));
    let config = InferConfig {
        checkpoint,
        out: to("p.npy"),
        embeddings: to("e.parquet"),
        ..InferConfig::default()
    };
    STOP.store(true, Ordering::Relaxed);
    let error = infer(&fixture.dataset, &config, 1 << 30, Some(&STOP), &NoProgress).unwrap_err();
    assert!(error.to_string().contains("interrupted"), "{error}");
    assert_eq!(left(fixture.folder.path()), Vec::<String>::new());
    STOP.store(false, Ordering::Relaxed);
    infer(&fixture.dataset, &config, 1 << 30, Some(&STOP), &NoProgress).unwrap();
    assert_eq!(left(fixture.folder.path()), ["e.parquet", "p.ids.npy", "p.npy"]);
}
