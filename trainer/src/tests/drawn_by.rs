//! Draws by weight: edges of weight 0 do not belong to the graph, in training, evaluation and
//! inference.

use gsplit_store::{Dataset, NoProgress, Split};

use super::equivalence::{distance, run};
use super::fixture::{Fixture, add_features, changed, config, dataset, on_graph};
use super::runs;
use crate::config::{Config, Device, ModelKind, Parallelism};
use crate::{InferConfig, infer};

/// The dataset without the edges whose `weight` is 0, and without weights.
fn without_zeros(old: &Dataset) -> Fixture {
    let (topology, weights) = (old.topology(), old.edge_weights("weight").unwrap());
    let list = |ends: &[u64]| {
        let edges = (ends[0] as usize..ends[1] as usize).filter(|&edge| weights[edge] > 0.0);
        edges.map(|edge| topology.indices()[edge]).collect()
    };
    let lists: Vec<Vec<u32>> = topology.indptr().windows(2).map(list).collect();
    assert!(lists.concat().len() < topology.indices().len());
    on_graph(&lists, |writer| {
        let table = old.features().unwrap();
        let (vertices, mut rows) =
            (Vec::from_iter(0..lists.len() as u32), vec![0f32; lists.len() * table.dim()]);
        crate::operator::gather_features(&table, &vertices, &mut rows).unwrap();
        add_features(writer, table.dim(), &rows);
        writer.add_labels(&old.labels().unwrap()).unwrap();
        for split in Split::ALL {
            writer.add_split(split, old.split(split).unwrap().to_vec()).unwrap();
        }
    })
}

fn configs() -> impl Iterator<Item = [Config; 2]> {
    ModelKind::ALL.iter().map(|&kind| {
        let plain = changed(&config(kind, Parallelism::Single, 1), |config| {
            (config.data.fanouts, config.run.epochs) = ("all,all,all".parse().unwrap(), 1);
        });
        [changed(&plain, |config| config.data.draw_by = Some("weight".into())), plain]
    })
}

#[test]
fn differential_edges_of_weight_0_are_as_if_they_were_not() {
    let fixture = dataset(81, 150, 5);
    let others = without_zeros(&fixture.dataset);
    let batch = &fixture.dataset.split(Split::Train).unwrap()[..40];
    for [drawn, plain] in configs() {
        let kind = drawn.model.kind;
        let (loss, gradient) = run(&fixture.dataset, &drawn, batch);
        let (expected, of_others) = run(&others.dataset, &plain, batch);
        assert!(
            (loss - expected).abs() <= 1e-5 * expected,
            "{kind:?}: loss {loss}, not {expected}"
        );
        assert!(distance(&gradient, &of_others) <= 1e-5, "{kind:?}");
        let whole = run(&fixture.dataset, &plain, batch);
        assert!(
            (whole.0 - expected).abs() > 1e-5 * expected,
            "{kind:?}: edges of weight 0 make no difference"
        );

        let trained = |of: &Fixture, config: &Config| {
            let (checkpoint, summary) = runs::trained(of, config);
            let config = InferConfig { checkpoint, ..InferConfig::default() };
            let scores = infer(&of.dataset, &config, 1 << 30, None, &NoProgress).unwrap().scores;
            let last = summary.epochs.last().unwrap();
            assert_eq!(
                [last.valid, last.test],
                [scores[1].1, scores[2].1],
                "{kind:?}: evaluation and inference"
            );
            scores
        };
        assert_eq!(trained(&fixture, &drawn), trained(&others, &plain), "{kind:?}");
    }
}

#[test]
fn attention_over_draws_by_weight_is_refused_on_gpus() {
    for [drawn, _] in configs() {
        let on_gpu = changed(&drawn, |config| config.system.device = Device::Cuda);
        let attends = matches!(on_gpu.model.kind, ModelKind::Gat | ModelKind::Gatv2);
        match on_gpu.check() {
            Ok(()) => assert!(!attends),
            Err(error) => {
                let line = error.to_string();
                assert!(
                    attends && line.contains("--draw-by weight") && line.contains("--device cpu"),
                    "{line}"
                );
            }
        }
    }
}
