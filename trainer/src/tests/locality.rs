//! Draws that prefer the rows that a rank keeps: right in expectation, the same if the same rows
//! are kept, and exact to resume.

use gsplit_kernels::schedule::Step;
use gsplit_kernels::{Draws, PreferredVertices, Sampler, Stream, StreamKey};

use super::equivalence::{all_logits, sampled_logits};
use super::fixture::{
    CLASSES, Cut, changed, communities, config, dataset, emulated, store_partition,
};
use super::links::link_config;
use super::placement::{found, some_placement, store_placement};
use super::runs::{losses, options, run};
use crate::RowPlacement;
use crate::config::{Config, Device, DrawConfig, DrawFactor, DrawKind, ModelKind, Parallelism};
use crate::job::{Artifacts, Job};
use crate::model::Model;
use crate::operator::Place;
use crate::sample::BatchSampler;
use crate::tests::fixture::Around;

/// Bytes of a row of the fixtures.
const ROW: u64 = 24;

fn locality(factor: Option<f64>) -> DrawConfig {
    DrawConfig { kind: DrawKind::Locality, draw_factor: factor.map(DrawFactor::Fixed) }
}

fn cached(placement: RowPlacement, rows: u64) -> Around {
    Around { placement: Some(placement), cache: Some(rows * ROW), ..Around::default() }
}

/// The mean over many samples of a model's output, without activation, is its output with all
/// neighbours: sums, means and convolutions are estimated without bias, by one layer and by two,
/// from draws that prefer a set and from draws by weight. Each is compared along random directions.
#[test]
fn oracle_the_expectation_over_samples_is_the_whole_neighbourhood() {
    const TRIALS: u32 = 800;
    const SEED: u64 = 9;
    let fixture = dataset(31, 60, 5);
    for ((kind, layers, edge_weights), draw_by) in [
        (ModelKind::Sage, 1, None),
        (ModelKind::Gcn, 1, None),
        (ModelKind::Gcn, 1, Some("weight")),
        (ModelKind::Sgc, 2, None),
        (ModelKind::Sgc, 2, Some("weight")),
    ]
    .into_iter()
    .flat_map(|case| [(case, None), (case, Some("weight"))])
    {
        let config = changed(&config(kind, Parallelism::Single, 1), |config| {
            config.model.layers = layers;
            config.data.fanouts = ["3", "4,3"][layers - 1].parse().unwrap();
            (config.data.edge_weights, config.data.draw_by) =
                (edge_weights.map(String::from), draw_by.map(String::from));
        });
        let artifacts = Artifacts::open(&fixture.dataset, &config).unwrap();
        let options = Around::default();
        let (config, hooks) = &options.of(&config);
        let job = Job::new(&fixture.dataset, &artifacts, config, hooks).unwrap();
        let (model, place) = (Model::new(config, job.features.dim(), job.outputs), Place::host());
        let whole = all_logits(&job, &model);
        let (seeds, kept): (Vec<u32>, Vec<u32>) =
            ((0..60).collect(), (0..60).filter(|v| v % 4 == 1).collect());
        let mut draws = Draws::new(&StreamKey::new(4, Stream::Generate), layers as u32);
        let direction: Vec<f64> =
            (0..whole.len()).map(|_| f64::from(draws.unit_f32()) - 0.5).collect();
        let along = |logits: &[f32]| {
            logits.iter().zip(&direction).map(|(a, b)| f64::from(*a) * b).sum::<f64>()
        };
        assert_eq!(whole.len(), 60 * CLASSES);
        for factor in [1.0, 2.0, 8.0].into_iter().take(if draw_by.is_some() { 1 } else { 3 }) {
            let mut sampler = BatchSampler::on_host(Sampler::new(1), job.graph, &place);
            let mut near = PreferredVertices::new(&job.graph, &kept, layers);
            near.set_factor(factor);
            sampler.prefer(near);
            let (mut sum, mut squares) = (0f64, 0f64);
            for step in 0..TRIALS {
                let step = Step { seed: SEED, epoch: 1, step };
                let value =
                    along(&sampled_logits((&job, &model), &mut sampler, &seeds, step, None));
                (sum, squares) = (sum + value, squares + value * value);
            }
            let (trials, expected) = (f64::from(TRIALS), along(&whole));
            let mean = sum / trials;
            let error = ((squares / trials - mean * mean) / trials).sqrt();
            let what = format!(
                "{kind:?}, {layers} layers, {edge_weights:?}, by {draw_by:?}, factor {factor}, \
                 seed {SEED}"
            );
            assert!(error > 0.0, "{what}");
            assert!(
                (mean - expected).abs() <= 3.0 * error,
                "{what}: {mean}, expected {expected}, error {error}"
            );
        }
    }
}

#[test]
fn a_factor_of_1_is_uniform_to_the_bit_and_a_larger_one_moves_less() {
    let fixture = dataset(32, 400, 12);
    for parallelism in [Parallelism::Data, Parallelism::Single] {
        let ranks = if parallelism == Parallelism::Single { 1 } else { 3 };
        let plain =
            changed(&config(ModelKind::Sage, parallelism, ranks), |config| config.run.epochs = 1);
        let of = |draw: DrawConfig, rows: u64| {
            let config = changed(&plain, |config| config.data.draw = draw);
            run(&fixture, &config, &cached(RowPlacement::Replicated, rows)).unwrap()
        };
        let uniform = of(DrawConfig::default(), 80);
        assert_eq!(uniform.epochs[0].draw_factor, None);
        assert_eq!(losses(&uniform), losses(&run(&fixture, &plain, &Around::default()).unwrap()));
        let moved = |summary: &crate::Summary| {
            let [loaded, own, peers] = found(summary);
            assert_eq!(peers, 0);
            loaded - own
        };
        let mut before = moved(&uniform);
        for factor in [1.0, 2.0, 4.0, 8.0] {
            let local = of(locality(Some(factor)), 80);
            assert_eq!(local.epochs[0].draw_factor, Some(factor));
            assert_eq!(losses(&local) == losses(&uniform), factor == 1.0);
            match factor == 1.0 {
                true => assert_eq!(found(&local), found(&uniform)),
                false => assert!(moved(&local) < before, "{factor}: {} of {before}", moved(&local)),
            }
            before = moved(&local);
        }
        // If all rows are kept none is preferred.
        assert_eq!(losses(&of(locality(Some(8.0)), 400)), losses(&uniform));
    }
}

#[test]
fn ranks_that_keep_the_same_rows_have_one_loss() {
    let fixture = dataset(33, 300, 8);
    for kind in [
        ModelKind::Sage,
        ModelKind::Gcn,
        ModelKind::Gin,
        ModelKind::Gat,
        ModelKind::Gatv2,
        ModelKind::Resgcn,
    ] {
        let of = |parallelism, ranks| {
            let partition = (parallelism == Parallelism::Owned)
                .then(|| store_partition(&fixture.dataset, Cut::Random, 3));
            let config = changed(&config(kind, parallelism, ranks), |config| {
                (config.data.draw, config.system.partition, config.run.epochs) =
                    (locality(Some(4.0)), partition, 1);
            });
            run(&fixture, &config, &cached(RowPlacement::Replicated, 60)).unwrap().epochs[0].loss
        };
        let single = of(Parallelism::Single, 1);
        for other in [of(Parallelism::Data, 2), of(Parallelism::Data, 3), of(Parallelism::Owned, 3)]
        {
            assert!((single - other).abs() < 1e-5 * single, "{kind:?}: {single} {other}");
        }
        let plain = changed(&config(kind, Parallelism::Single, 1), |config| config.run.epochs = 1);
        assert_ne!(run(&fixture, &plain, &Around::default()).unwrap().epochs[0].loss, single);
    }
    // Links, whose own edges are not drawn.
    let fixture = communities(200, 6);
    let of = |parallelism, ranks, draw| {
        let config = changed(&link_config(ModelKind::Sage, parallelism, ranks), |config| {
            (config.data.draw, config.run.epochs) = (draw, 1);
        });
        run(&fixture, &config, &cached(RowPlacement::Replicated, 60)).unwrap().epochs[0].loss
    };
    let [single, data, plain] = [
        of(Parallelism::Single, 1, locality(Some(4.0))),
        of(Parallelism::Data, 3, locality(Some(4.0))),
        of(Parallelism::Single, 1, DrawConfig::default()),
    ];
    assert!((single - data).abs() < 1e-5 * single && plain != single, "{single} {data} {plain}");
}

/// GPUs compute with the host's draws.
#[test]
fn differential_ranks_on_gpus_have_the_losses_of_the_host() {
    let fixture = dataset(34, 200, 8);
    let config = changed(&config(ModelKind::Gin, Parallelism::Data, 2), |config| {
        (config.data.draw, config.data.edge_weights) = (locality(Some(4.0)), Some("weight".into()));
    });
    let host = run(&fixture, &config, &cached(RowPlacement::Peer, 30)).unwrap();
    let on_gpu = Around { places: emulated(1), ..cached(RowPlacement::Peer, 30) };
    let on_gpu = run(&fixture, &config, &on_gpu).unwrap();
    assert_eq!(found(&host), found(&on_gpu));
    for (host, on_gpu) in host.epochs.iter().zip(&on_gpu.epochs) {
        assert!(
            (host.loss - on_gpu.loss).abs() < 1e-5 * host.loss,
            "{} {}",
            host.loss,
            on_gpu.loss
        );
        assert_eq!((host.valid, host.draw_factor), (on_gpu.valid, on_gpu.draw_factor));
    }
}

#[test]
fn an_automatic_factor_follows_the_bytes_and_resumes_exactly() {
    let fixture = dataset(35, 300, 10);
    let two = store_partition(&fixture.dataset, Cut::Random, 2);
    store_placement(&fixture.dataset, "some", &two, &some_placement(300, 2));
    let whole = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        (config.data.draw, config.run.epochs, config.run.eval_every) = (locality(None), 6, 0);
    });
    let caches = |rows: u64, resume: bool| Around {
        placement: Some(RowPlacement::Stored("some".into())),
        cache: Some(rows * ROW),
        ..options(&fixture, resume)
    };
    let straight =
        run(&fixture, &whole, &Around { checkpoint: None, ..caches(60, false) }).unwrap();
    let factors: Vec<f64> =
        straight.epochs.iter().map(|epoch| epoch.draw_factor.unwrap()).collect();
    assert_eq!(factors, [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]);
    let first = run(&fixture, &changed(&whole, |config| config.run.epochs = 2), &caches(60, false))
        .unwrap();
    // With other rows kept it would be another run.
    for other in
        [caches(61, true), Around { placement: Some(RowPlacement::Peer), ..caches(60, true) }]
    {
        let line = run(&fixture, &whole, &other).unwrap_err().to_string();
        assert!(
            line.contains("--draw locality") && line.contains("the same --placement and --cache"),
            "{line}"
        );
    }
    let rest = run(&fixture, &whole, &caches(60, true)).unwrap();
    assert_eq!([losses(&first), losses(&rest)].concat(), losses(&straight));
    assert_eq!(rest.epochs[0].draw_factor, Some(4.0));
    // Without such draws other caches change nothing.
    let plain = changed(&whole, |config| config.data.draw = DrawConfig::default());
    let fresh = |resume| Around {
        checkpoint: Some(fixture.folder.path().join("plain")),
        ..caches(60, resume)
    };
    run(&fixture, &changed(&plain, |config| config.run.epochs = 1), &fresh(false)).unwrap();
    run(
        &fixture,
        &changed(&plain, |config| config.run.epochs = 2),
        &Around { cache: None, placement: None, ..fresh(true) },
    )
    .unwrap();
}

#[test]
fn what_has_nothing_near_is_refused() {
    let fixture = dataset(36, 120, 4);
    store_partition(&fixture.dataset, Cut::Random, 2);
    let base = changed(&config(ModelKind::Sage, Parallelism::Data, 2), |config| {
        config.data.draw = locality(None)
    });
    let refused = |change: &dyn Fn(&mut Config), options: Around, words: &[&str]| {
        let line = run(&fixture, &changed(&base, |config| change(config)), &options)
            .unwrap_err()
            .to_string();
        assert!(
            words.iter().all(|word| line.contains(word)) && !line.contains('\n'),
            "{words:?}: {line}"
        );
    };
    let cache = || cached(RowPlacement::Replicated, 10);
    refused(&|_| {}, Around::default(), &["--draw locality", "give --cache SIZE"]);
    refused(
        &|c| c.system.parallelism = Parallelism::Split,
        cache(),
        &["under --parallelism split", "data, owned or single"],
    );
    refused(&|c| c.model.kind = ModelKind::SagePool, cache(), &["--model sage-pool takes maxima"]);
    refused(
        &|c| c.data.draw_by = Some("weight".into()),
        cache(),
        &["drawn by --draw-by weight already"],
    );
    refused(
        &|c| c.data.draw = DrawConfig { kind: DrawKind::Uniform, ..locality(Some(2.0)) },
        cache(),
        &["--draw-factor is for"],
    );
    let on_gpu = |c: &mut Config| (c.model.kind, c.system.device) = (ModelKind::Gat, Device::Cuda);
    refused(&on_gpu, cache(), &["--model gat", "choose --device cpu"]);
    let topology =
        Around { places: emulated(0), topology: crate::TopologyStorage::Device, ..cache() };
    refused(&|_| {}, topology, &["--topology device", "only the host draws with --draw locality"]);
    // Split over no layer, a rank loads the rows that it draws.
    let owned = changed(&base, |config| {
        (config.system.parallelism, config.system.split_layers) = (Parallelism::Split, Some(0))
    });
    run(&fixture, &owned, &cache()).unwrap();
}
