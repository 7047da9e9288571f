//! The example of a layer of one's own learns, and the same on any number of ranks.

#[path = "../../examples/own_layer.rs"]
mod example;

use super::fixture::{Cut, dataset, store_partition};

#[test]
fn the_example_learns_the_same_on_any_number_of_ranks() {
    let fixture = dataset(31, 400, 6);
    let key = store_partition(&fixture.dataset, Cut::Random, 3);
    let losses = |flags: &str| -> Vec<f64> {
        let flags = format!("--hidden 16 --batch-size 50 --epochs 12 --lr 0.01 --dropout 0.1 --eval-every 0 {flags}");
        let summary = example::run(&fixture.dataset, &flags, &|_| {}).unwrap();
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
