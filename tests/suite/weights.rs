//! Weights of edges, from conversion to training: in-neighbours drawn by them, and rows multiplied
//! by them in sums.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use gsplit_store::{Dataset, Presample};

use crate::support::{json, losses, ok, refused, scratch};

/// In-edges of every vertex: how many of which weight.
const WEIGHTS: [(usize, u32); 3] = [(5, 4), (4, 1), (3, 0)];
const VERTICES: usize = 400;

/// A dataset `ds` in `folder` of vertices with the same weights each, of four classes in a ring.
fn weighted(folder: &Path) {
    let mut edges = "source,target,weight\n".to_string();
    for v in 0..VERTICES {
        let weights =
            WEIGHTS.iter().flat_map(|&(count, weight)| std::iter::repeat_n(weight, count));
        for (i, weight) in weights.enumerate() {
            // Heavy edges come from the own class.
            let apart = if weight > 1 { 4 * (i + 1) } else { 13 * i + 2 };
            writeln!(edges, "{},{v},{weight}", (v + apart) % VERTICES).unwrap();
        }
    }
    fs::write(folder.join("edges.csv"), edges).unwrap();
    let labels: String = (0..VERTICES).map(|v| format!("{v},{}\n", v % 4)).collect();
    fs::write(folder.join("nodes.csv"), format!("id,label\n{labels}")).unwrap();
    convert(folder, "");
}

fn convert(folder: &Path, more: &str) {
    let options = "--nodes nodes.csv --features random:8 --random-split 0.5,0.25,0.25 --out ds";
    ok(folder, format!("convert edges.csv --directed --edge-columns weight {options} {more}"));
}

#[test]
fn counters_follow_the_weights() {
    let folder = &*scratch();
    weighted(folder);
    let epochs = 50;
    let options = "--fanouts 4 --batch-size 64 --epochs 50 --draw-by weight";
    let made = json(folder, format!("presample ds {options}"));
    assert_eq!(made["key"], "f4_b64_e50_s0_by-weight");
    let dataset = Dataset::open(folder.join("ds")).unwrap();
    let presample = Presample::open(&dataset, "f4_b64_e50_s0_by-weight").unwrap();
    assert_eq!(presample.meta().config.draw_by.as_deref(), Some("weight"));
    let weights = dataset.edge_weights("weight").unwrap();
    let (indptr, work) = (dataset.topology().indptr(), presample.work());
    let mut drawn = [0; 5];
    for v in (0..VERTICES).filter(|&v| work[v] > 0) {
        assert_eq!(work[v], 4 * epochs);
        for edge in indptr[v] as usize..indptr[v + 1] as usize {
            drawn[weights[edge] as usize] += presample.edge()[edge];
        }
    }
    // Five of weight 4, four of weight 1 and three of weight 0 lead into each.
    assert!(drawn[0] == 0 && drawn[4] > 3 * drawn[1] && drawn[1] > 0, "{drawn:?}");

    // A map's cut and balance expected from these counters equal the ones of mini-batches drawn in
    // the same way.
    ok(folder, "partition ds --parts 2 --key two");
    let evaluated = json(folder, "evaluate ds --batches 200");
    assert_eq!(evaluated["draw_by"], "weight");
    let expectation = &evaluated["maps"][0]["expectation"];
    let [expected, measured] = ["expected_cross_share", "measured_cross_share"]
        .map(|name| expectation[name].as_f64().unwrap());
    assert!((measured - expected).abs() < 0.02, "{expectation:#}");
}

/// Losses of links; losses of vertices are compared by the trainer's own test of all parallelisms.
#[test]
fn links_are_drawn_and_summed_by_weights_on_any_number_of_ranks() {
    let folder = &*scratch();
    weighted(folder);
    ok(folder, "partition ds --parts 3 --weights unit --key map");
    let run = |options: &str| {
        let shape = "--model gcn --layers 2 --fanouts 4,4 --hidden 16 --batch-size 64 --epochs 1";
        losses(&json(folder, format!("train ds --task link {shape} {options}")))[0]
    };
    let single = run("--parallelism single --draw-by weight --edge-weights weight");
    let split = run("--parallelism split --ranks 3 --draw-by weight --edge-weights weight");
    assert!((single - split).abs() < 1e-5 * single, "{single}, split {split}");
    for other in ["--draw-by", "--edge-weights"] {
        assert_ne!(single, run(&format!("--parallelism single {other} weight")));
    }
}

#[test]
fn scores_and_predictions_take_weights_and_a_checkpoint_knows_them() {
    let folder = &*scratch();
    weighted(folder);
    let common = "--layers 2 --fanouts 4,4 --hidden 16 --batch-size 64";
    let trained = |options: &str| json(folder, format!("train ds --epochs 1 {common} {options}"));
    // The checkpoint has the scores of the last epoch.
    let options = "--model gcn --parallelism single --edge-weights weight --checkpoint run";
    let summary = trained(options);
    let last = summary["summary"]["epochs"].as_array().unwrap().last().unwrap().clone();
    let infer = "infer ds --checkpoint run";
    let scores = json(folder, infer)["summary"]["scores"].as_array().unwrap().clone();
    for split in ["valid", "test"] {
        let score = scores.iter().find(|score| score[0] == split).unwrap();
        // Products in another order may decide one of the vertices otherwise.
        assert!(
            (score[1].as_f64().unwrap() - last[split].as_f64().unwrap()).abs() < 0.015,
            "{scores:?}"
        );
    }
    // With other weights the same graph gives another run.
    let edges = fs::read_to_string(folder.join("edges.csv")).unwrap().replace(",4\n", ",2\n");
    fs::write(folder.join("edges.csv"), edges).unwrap();
    convert(folder, "--force");
    refused(
        folder,
        format!("train ds {common} {options} --epochs 3 --resume"),
        2,
        "edge columns have changed",
    );
    fs::write(folder.join("plain.csv"), "0,1\n1,2\n2,0\n").unwrap();
    ok(folder, "convert plain.csv --features random:8 --out plain");
    refused(folder, "infer plain --checkpoint run", 1, "edge column `weight`");
    refused(
        folder,
        "train ds --model gat --edge-weights weight",
        2,
        "--edge-weights weight: --model gat",
    );
}

#[test]
fn columns_that_cannot_weigh_are_refused() {
    let folder = &*scratch();
    weighted(folder);
    let train = "train ds --parallelism single --draw-by";
    for command in ["presample ds --draw-by", train] {
        let line = refused(folder, format!("{command} heavy"), 1, "edge column `heavy`");
        assert!(line.contains("it has weight"), "{line}");
    }
    refused(folder, format!("{train} weight --topology device"), 2, "--topology device");
    fs::write(folder.join("edges.csv"), "source,target,cost\n0,1,1\n1,0,-2.5\n").unwrap();
    let convert = "convert edges.csv --edge-columns cost --features random:2 --random-split 1,0,0";
    ok(folder, format!("{convert} --out negative"));
    let told = "edge column `cost` cannot weigh edges: edge 0 has -2.5, expected";
    refused(folder, "presample negative --draw-by cost", 1, told);
}
