//! Compares the formulas with values worked out by hand.

use gsplit_store::DiskRates;
use gsplit_trainer::ModelConfig;

use super::*;
use crate::plan::Profile;
use crate::plan::profile::Pair;

fn profile(shared: bool, hosts: usize) -> Profile {
    let name = if shared { "cpu-2" } else { "a100-4" };
    let link = |bytes| Link { bytes, latency: 0.0 };
    Profile {
        hosts,
        shared,
        memory: 1e9,
        sampled_edges: 1e3,
        rows: 4e3,
        stream: 28e3,
        layer: 0.0,
        dense: super::super::profile::Dense { f32: 2e3, bf16: 4e3 },
        peer: link(4e3),
        bus: Some(link(1e3)),
        network: Some(link(100.0)),
        ..Profile::named(name).unwrap()
    }
}

/// Two layers: 10 seeds read 30 rows of 8 values over 40 edges, and the 30 read 50 rows of 4 values
/// over 60 edges.
fn work(exchanged: [f64; 2]) -> Work {
    let layer = |vertices, edges, rows_exchanged| LayerWork {
        vertices,
        edges,
        rows_exchanged,
        rows_abroad: rows_exchanged / 5.0,
    };
    let layers = vec![layer(10.0, 40.0, exchanged[0]), layer(30.0, 60.0, exchanged[1])];
    Work { layers, rows_loaded: 50.0, edge_imbalance: 1.2, row_imbalance: 1.5 }
}

fn way(parallelism: Parallelism, split_layers: usize, ranks: usize) -> Way {
    Way::new(parallelism, split_layers, ranks, 10)
}

fn shaped(kind: ModelKind, layers: usize, [features, hidden, outputs]: [usize; 3]) -> Shape {
    let model = ModelConfig { kind, layers, hidden, heads: 1, ..ModelConfig::default() };
    Shape::new(&model, [features, outputs], 4)
}

fn shape() -> Shape {
    shaped(ModelKind::Gcn, 2, [4, 8, 3])
}

fn piece(cost: &Cost, what: &str) -> f64 {
    cost.pieces.iter().filter(|piece| piece.what == what).map(|piece| piece.seconds).sum()
}

#[test]
fn one_rank_costs_what_the_formulas_say() {
    let shape = shape();
    assert_eq!(shape.widths, [[8.0, 3.0], [4.0, 8.0]]);
    assert_eq!(shape.parameters, 8.0 * 3.0 + 6.0 + 4.0 * 8.0 + 16.0);
    let cost = cost(&work([0.0; 2]), way(Parallelism::Single, 0, 1), &shape, &profile(true, 1));
    assert_eq!(piece(&cost, "drawing"), 0.1);
    // The bottom layer aggregates 4 values without a gradient of its rows; the one above multiplies
    // all 30 rows first and aggregates 3 values.
    assert_eq!(
        piece(&cost, "products"),
        (2.0 * 30.0 * 8.0 * 3.0 * 3.0 + 2.0 * 30.0 * 4.0 * 8.0 * 2.0) / 2e3
    );
    assert_eq!(piece(&cost, "aggregation"), (4.0 * 40.0 * 3.0 * 2.0 + 4.0 * 60.0 * 4.0) / 4e3);
    assert_eq!(piece(&cost, "element-wise operations"), (10.0 * 3.0 + 30.0 * 8.0) / 1e3);
    assert_eq!(piece(&cost, "update"), shape.parameters / 1e3);
    assert_eq!(
        (cost.of(Phase::Load), cost.of(Phase::Exchange)),
        (0.0, 0.0),
        "rows are read where they are stored"
    );
    let sum: f64 = cost.pieces.iter().map(|piece| piece.seconds).sum();
    assert!((cost.seconds - sum).abs() < 1e-12);
}

#[test]
fn devices_share_the_work_and_hide_what_is_ahead() {
    let (shape, work) = (shape(), work([20.0, 25.0]));
    let one = cost(&work, way(Parallelism::Single, 0, 1), &shape, &profile(true, 1));
    let four = cost(&work, way(Parallelism::Split, 2, 4), &shape, &profile(false, 1));
    assert!(
        (piece(&four, "products") - piece(&one, "products") * 1.2 / 4.0).abs() < 1e-12,
        "the busiest rank's"
    );
    // Hidden rows are sent twice, features once; a rank sends a quarter of all.
    assert_eq!(piece(&four, "rows"), 4.0 * (20.0 * 8.0 * 2.0 + 25.0 * 4.0) / 4.0 / 4e3);
    assert_eq!(piece(&four, "gradients"), 8.0 * shape.parameters * 3.0 / 4.0 / 4e3);
    let [ahead, here] = [
        four.of(Phase::Sample) + four.of(Phase::Load),
        four.of(Phase::Compute) + four.of(Phase::Exchange),
    ];
    assert!((four.seconds - ahead.max(here)).abs() < 1e-12);
    // With four ranks on two hosts, two of the three other ranks are on the other host.
    let abroad = cost(&work, way(Parallelism::Split, 2, 4), &shape, &profile(false, 2));
    assert!(
        (piece(&abroad, "rows")
            - 4.0 * (20.0 * 8.0 * 2.0 + 25.0 * 4.0) * (2.0 / 3.0) / 2.0 / 100.0)
            .abs()
            < 1e-12
    );
    // With a map for two hosts a fifth of the rows cross between them, as counted.
    let by_host = Way { servers: 2, ..way(Parallelism::Split, 2, 4) };
    let by_host = cost(&work, by_host, &shape, &profile(false, 2));
    assert!(
        (piece(&by_host, "rows") - 4.0 * (20.0 * 8.0 * 2.0 + 25.0 * 4.0) / 5.0 / 2.0 / 100.0).abs()
            < 1e-12
    );
    // Rows of 2 bytes per value are summed where they are stored.
    let halves = Shape { stored: 2.0, ..shape.clone() };
    let all_here = cost(&work, way(Parallelism::Data, 0, 4), &halves, &profile(false, 1));
    assert_eq!(all_here.of(Phase::Load), 0.0);
    let of_edges = (4.0 * 40.0 * 3.0 * 2.0 + 2.0 * 60.0 * 4.0) * 1.2 / 4.0 / 4e3;
    assert!((piece(&all_here, "aggregation") - of_edges).abs() < 1e-12);
    // Rows in the host's memory cross the bus.
    let sources = Sources { own: 0.25, peers: 0.25, host: 0.5 };
    let far =
        cost(&work, Way { sources, ..way(Parallelism::Data, 0, 4) }, &shape, &profile(false, 1));
    let bytes = 50.0 * 16.0 * 1.5 / 4.0;
    assert_eq!(far.of(Phase::Load), bytes * (0.25 / 4e3 + 0.25 / 4e3 + 0.5 / 1e3));
    // Draws from a graph in the host's memory also cross the bus.
    let way = Way { far_graph: true, ..way(Parallelism::Data, 0, 4) };
    let far = cost(&work, way, &shape, &profile(false, 1));
    assert_eq!(piece(&far, "drawing over the bus"), 32.0 * 100.0 * 1.2 / 4.0 / 1e3);
}

#[test]
fn columns_cross_in_place_of_rows() {
    let (shape, work) = (shape(), work([0.0; 2]));
    let cost = cost(&work, way(Parallelism::PushPull, 0, 2), &shape, &profile(true, 1));
    // Starts of lists, edges and the ids of their rows go to both ranks; sums and their gradients
    // follow.
    assert_eq!(piece(&cost, "edges to all ranks"), 4.0 * (30.0 + 60.0 + 50.0) * 2.0 / 4e3);
    assert_eq!(piece(&cost, "sums of the bottom layer"), 2.0 * 4.0 * 30.0 * 8.0 * 2.0 / 4e3);
    assert_eq!(piece(&cost, "feature rows in own memory"), 0.0);
    // Attention needs the projections of all 50 rows.
    let gat = Shape { kind: ModelKind::Gat, ..shape.clone() };
    let gat = self::cost(&work, way(Parallelism::PushPull, 0, 2), &gat, &profile(true, 1));
    assert_eq!(piece(&gat, "sums of the bottom layer"), 2.0 * 4.0 * 50.0 * 8.0 * 2.0 / 4e3);
    // A device loads its columns of all rows; no rank has more work than another.
    let device = self::cost(&work, way(Parallelism::PushPull, 0, 2), &shape, &profile(false, 1));
    assert_eq!(
        piece(&device, "sums of the bottom layer"),
        2.0 * 4.0 * 30.0 * 8.0 / 2.0 / 4e3,
        "to the other alone"
    );
    assert_eq!(piece(&device, "feature rows in own memory"), 50.0 * 16.0 / 2.0 / 4e3);
}

#[test]
fn what_is_made_once_is_neither_drawn_nor_asked_for() {
    let (shape, work) = (shape(), work([20.0, 25.0]));
    let with = |steps: usize| {
        let way = Way { steps, ..way(Parallelism::Cooperative, 2, 2) };
        cost(&work, way, &shape, &profile(true, 1))
    };
    let (all, few) = (with(1), with(4));
    assert_eq!((all.of(Phase::Sample), few.of(Phase::Sample)), (0.0, 0.0));
    // The rows of the only mini-batch stay where they are read: only hidden rows are exchanged.
    assert_eq!(
        (all.of(Phase::Load), piece(&few, "feature rows in own memory")),
        (0.0, 50.0 * 16.0 / 4e3)
    );
    assert_eq!(piece(&all, "rows"), 4.0 * (20.0 * 8.0 * 2.0) / 4e3);
    assert_eq!(piece(&few, "rows"), 4.0 * (20.0 * 8.0 * 2.0 + 25.0 * 4.0) / 4e3);
    // Layers with the same work share their edges.
    let [mut deep, mut drawn] = [work.clone(), work.clone()];
    deep.layers.push(deep.layers[1]);
    drawn.layers.push(LayerWork { vertices: 31.0, ..drawn.layers[1] });
    let three = shaped(ModelKind::Gcn, 3, [4, 8, 3]);
    let [deep, drawn] = [deep, drawn].map(|work| {
        cost(&work, way(Parallelism::Cooperative, 3, 2), &three, &profile(true, 1)).memory
    });
    // For 10 mini-batches: edges, starts of lists, their vertices and the ids of rows; a further
    // row is read above, also by source.
    assert_eq!(drawn - deep, 10.0 * 4.0 * ((60.0 + 2.0 * 31.0 + 75.0) + 1.0 + 1.0));
}

#[test]
fn the_slowest_pair_of_ranks_bounds_what_crosses() {
    let (shape, work) = (shape(), work([20.0, 25.0]));
    let pair = |ranks, bytes| Pair { ranks, bytes, latency: 0.0 };
    let rows = |pairs: Vec<Pair>, ranks: usize| {
        let profile = Profile { pairs, ..profile(false, 1) };
        piece(&cost(&work, way(Parallelism::Split, 2, ranks), &shape, &profile), "rows")
    };
    let alike = rows(Vec::new(), 4);
    assert_eq!(rows(vec![pair([0, 1], 4e3)], 4), alike, "its ports are busy before that pair is");
    // Each of three others gets a third of a rank's bytes: one over a link of 1e3 bytes per second
    // takes as long as all at 3e3.
    assert!(
        (rows(vec![pair([0, 1], 4e3), pair([3, 2], 1e3)], 4) - alike * 4.0 / 3.0).abs() < 1e-12
    );
    assert_eq!(rows(vec![pair([3, 2], 1e3)], 2), rows(Vec::new(), 2), "not among these two");
}

#[test]
fn rows_of_16_bits_are_half_as_long_on_gpus() {
    let (shape, work) = (shape(), work([20.0, 25.0]));
    let cost_of = |dtype, shared| {
        let (shape, way) = (Shape { dtype, ..shape.clone() }, way(Parallelism::Split, 2, 4));
        cost(&work, way, &shape, &profile(shared, 1))
    };
    let halves = |shared: bool, what: &str| {
        piece(&cost_of(Dtype::F32, shared), what) / piece(&cost_of(Dtype::Bf16, shared), what)
    };
    for what in ["rows", "aggregation", "element-wise operations"] {
        assert!(
            (halves(false, what) - 2.0).abs() < 1e-12 && (halves(true, what) - 1.0).abs() < 1e-12,
            "{what}"
        );
    }
}

#[test]
fn a_gpu_takes_gradients_through_relu_while_it_sums_them() {
    // Aggregation comes first in both layers: of 10 rows of 64 values and of 30 rows of 4.
    let shape = shaped(ModelKind::Sage, 2, [4, 4, 64]);
    let values = |split_layers, shared| {
        let way = way(Parallelism::Single, split_layers, 1);
        piece(&cost(&work([0.0; 2]), way, &shape, &profile(shared, 1)), "element-wise operations")
            * 28e3
            / 4.0
    };
    let (all, fewer) = (7.0 * (640.0 + 120.0), 7.0 * 640.0 + 5.0 * 120.0);
    for (split_layers, shared, expected) in
        [(0, false, fewer * 1.2), (0, true, all), (2, false, all * 1.2)]
    {
        assert!(
            (values(split_layers, shared) - expected).abs() < 1e-9,
            "{split_layers} layers split, shared {shared}"
        );
    }
}

#[test]
fn the_disk_is_read_while_others_are_computed() {
    let (shape, work) = (shape(), work([0.0; 2]));
    let rates = |random, stream| DiskRates { by: String::new(), random: [random; 4], stream };
    let way = Way { disk: Some([20.0, 30.0 * 4096.0]), ..way(Parallelism::Single, 0, 1) };
    let with = |disk, shared| {
        cost(&work, way, &shape, &Profile { disk: Some(disk), ..profile(shared, 1) })
    };
    let slow = with(rates(0.2, 409.6), true);
    assert_eq!(
        piece(&slow, DISK),
        20.0 / 0.2 + 10.0 * 4096.0 / 409.6,
        "a block per read, then the rest"
    );
    let [computing, others] =
        [slow.of(Phase::Compute), slow.of(Phase::Sample) + slow.of(Phase::Load) - 200.0];
    assert!(others > 0.1 && computing < 200.0, "rows are copied");
    assert!((slow.seconds - 200.0 - others).abs() < 1e-9 && slow.bound == DISK);
    let fast = with(rates(1e9, 1e12), true);
    assert!(
        (fast.seconds - computing - others).abs() < 1e-3 && fast.bound != DISK,
        "{}",
        fast.bound
    );
    let devices = with(rates(0.2, 409.6), false);
    let ahead = devices.of(Phase::Sample) + devices.of(Phase::Load);
    assert!((devices.seconds - ahead).abs() < 1e-9 && devices.bound == DISK);
}
