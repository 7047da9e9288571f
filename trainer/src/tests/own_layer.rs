//! The example of a layer of one's own learns, and the same on any number of ranks.

#[path = "../../examples/own_layer.rs"]
mod example;

use gsplit_store::{Column, NoProgress, Split};

use super::fixture::{Cut, dataset, store_partition};
use crate::{InferConfig, infer};

#[test]
fn the_example_learns_the_same_on_any_number_of_ranks() {
    let fixture = dataset(31, 400, 6);
    let key = store_partition(&fixture.dataset, Cut::Random, 3);
    let losses = |flags: &str| -> Vec<f64> {
        let flags = format!("--hidden 16 --batch-size 50 --epochs 12 --lr 0.01 --dropout 0.1 --eval-every 0 {flags}");
        let summary = example::run(&fixture.dataset, &flags, None, &|_| {}).unwrap();
        assert_eq!(summary.num_parameters, 2 + 6 * 16 + 16 + 16 * 4 + 4, "the rates, weights and biases of its layers");
        summary.epochs.iter().map(|epoch| epoch.loss).collect()
    };
    let single = losses("--parallelism single");
    assert!(single[11] < 0.9 * single[0], "{single:?}");
    for flags in ["--parallelism data --ranks 2".to_string(), format!("--ranks 3 --partition {key}")] {
        for (other, loss) in losses(&flags).iter().zip(&single) {
            assert!((other - loss).abs() <= 1e-3 * loss, "{flags}: {other} against {loss}");
        }
    }
}

#[test]
fn the_example_infers_what_its_evaluation_scored() {
    let fixture = dataset(32, 400, 6);
    let [checkpoint, out] = ["run", "classes.npy"].map(|name| fixture.folder.path().join(name));
    let flags = "--hidden 16 --batch-size 50 --epochs 3 --lr 0.01 --parallelism single --norm layer --residual";
    let summary = example::run(&fixture.dataset, flags, Some(checkpoint.clone()), &|_| {}).unwrap();
    let last = summary.epochs.last().unwrap();
    let found = example::predict(&fixture.dataset, checkpoint.clone(), out.clone()).unwrap();
    assert_eq!(found.scores[1..], [(Split::Valid, last.valid), (Split::Test, last.test)]);
    assert!(Column::<i32>::open(out).unwrap().iter().any(|&class| class > 0));

    // Whoever has not the layer cannot.
    let config = InferConfig { checkpoint, ..InferConfig::default() };
    let message = infer(&fixture.dataset, &config, 1 << 30, None, &NoProgress).unwrap_err().to_string();
    assert!(message.contains("a program's own layers") && !message.contains('\n'), "{message}");
}
