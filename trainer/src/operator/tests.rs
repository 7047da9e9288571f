//! Compares each operator in torch's graph with the same computation by torch's own operators in
//! f64: values and gradients, for every set of inputs that need one.

mod attention;
mod products;

use std::sync::Arc;

use gsplit_kernels::{Draws, Stream, StreamKey, dropout_mask};
use tch::{Device, Kind, Tensor};

use super::*;
use crate::autograd::backward;
use crate::config::Dtype;

const GEMM: Place = Place::Host(Engine::Gemm);
const BF16: Place = Place::Host(Engine::Bf16);
const TORCH: Place = Place::Host(Engine::Torch);

/// The host, with both engines, and a GPU.
fn all_places() -> [Place; 3] {
    [GEMM, TORCH, Place::emulated(1)]
}

/// Every activation, with and without dropout.
fn activations() -> impl Iterator<Item = (Activation, f32)> {
    let all = [Activation::Identity, Activation::Relu, Activation::Elu];
    all.into_iter().flat_map(|activation| [(activation, 0.0), (activation, 0.3)])
}

/// A [`Finish`] with `activation` and dropout of rows of `width` at distinct vertices, and the same
/// by torch, in f64.
fn finish(
    activation: Activation,
    probability: f32,
    [rows, width]: [usize; 2],
) -> (Finish, impl Fn(Tensor) -> Tensor) {
    let key = StreamKey { seed: 1, epoch: 2, step: 3, stream: Stream::Dropout, layer: 1 };
    let ids: Vec<u32> = (0..rows as u32).map(|row| row * 3).collect();
    let mut mask = vec![1f32; rows * width];
    dropout_mask(&ids, width, probability, &key, &mut mask).unwrap();
    let mask = Tensor::from_slice(&mask).view([rows as i64, width as i64]).to_kind(Kind::Double);
    let dropout = (probability > 0.0).then(|| Dropout { ids: ids[..].into(), probability, key });
    let torchs = move |sum: Tensor| match activation {
        Activation::Identity => sum * &mask,
        Activation::Relu => sum.relu() * &mask,
        Activation::Elu => sum.elu() * &mask,
    };
    (Finish { activation, dropout, ..Finish::default() }, torchs)
}

/// Random rows, every third all zeros.
fn with_zeros(seed: u32, shape: [usize; 2]) -> Tensor {
    let rows = random(seed, shape);
    let kept: Vec<f32> = (0..shape[0]).map(|row| if row % 3 == 1 { 0.0 } else { 1.0 }).collect();
    rows * Tensor::from_slice(&kept).view([-1, 1])
}

/// Every case on the host, and on a GPU whose threads run in a different order in every case.
fn at_places<T: Copy>(cases: &[T]) -> impl Iterator<Item = (T, Place)> {
    let places = |order: u32| [Place::host(), Place::emulated(order % 4)];
    cases.iter().zip(0..).flat_map(move |(&case, order)| places(order).map(|place| (case, place)))
}

fn random(seed: u32, shape: [usize; 2]) -> Tensor {
    let key = StreamKey { epoch: seed, ..StreamKey::new(7, Stream::Generate) };
    let row = |row: usize| {
        let mut draws = Draws::new(&key, row as u32);
        (0..shape[1]).map(move |_| draws.unit_f32() - 0.5)
    };
    let values: Vec<f32> = (0..shape[0]).flat_map(row).collect();
    Tensor::from_slice(&values).view(shape.map(|dim| dim as i64))
}

fn edges(place: &Place, targets: usize, sources: u32, degree: u32) -> Arc<Edges> {
    let mut draws = Draws::new(&StreamKey::new(8, Stream::Generate), sources);
    let (mut indptr, mut list) = (vec![0u32], Vec::new());
    for _ in 0..targets {
        list.extend((0..draws.below(degree + 1)).map(|_| draws.below(sources)));
        indptr.push(list.len() as u32);
    }
    Arc::new(Edges::new(place, indptr, list, sources as usize).unwrap())
}

fn index(values: impl Iterator<Item = u32>) -> Tensor {
    Tensor::from_slice(&values.map(i64::from).collect::<Vec<_>>())
}

fn targets_of(edges: &Edges) -> Tensor {
    let edges = edges.on_host().unwrap();
    index((0..edges.num_targets()).flat_map(|target| edges.of(target).map(move |_| target as u32)))
}

fn degrees(edges: &Edges) -> Tensor {
    let edges = edges.on_host().unwrap();
    let counts: Vec<f64> =
        (0..edges.num_targets()).map(|target| edges.of(target).len().max(1) as f64).collect();
    Tensor::from_slice(&counts).view([-1, 1])
}

/// Sums of the rows of `values`, f64 `[edges, width]`, by target.
fn sum_by_target(edges: &Edges, values: &Tensor) -> Tensor {
    let zeros =
        Tensor::zeros([edges.num_targets() as i64, values.size()[1]], (Kind::Double, Device::Cpu));
    zeros.index_add(0, &targets_of(edges), values)
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    if expected.numel() == 0 {
        return;
    }
    let off = (found.to_kind(Kind::Double) - expected).abs().max().double_value(&[]);
    let scale = expected.abs().max().double_value(&[]).max(1e-3);
    assert!(off <= 1e-5 * scale, "{what}: off by {off} of {scale}");
}

/// Runs `ours` and, in f64, `torchs` on the same inputs, with gradients needed for each input alone
/// and for all.
fn compare(
    what: &str,
    inputs: &[Tensor],
    ours: &dyn Fn(&[Tensor]) -> Result<Tensor>,
    torchs: &dyn Fn(&[Tensor]) -> Tensor,
) {
    for which in 0..=inputs.len() {
        let leaves = |kind: Kind| -> Vec<Tensor> {
            let needs = |i: usize| which == inputs.len() || which == i;
            let leaf = |(i, input): (usize, &Tensor)| {
                input.to_kind(kind).copy().set_requires_grad(needs(i))
            };
            inputs.iter().enumerate().map(leaf).collect()
        };
        let (mine, theirs) = (leaves(Kind::Float), leaves(Kind::Double));
        let (found, expected) = (ours(&mine).unwrap(), torchs(&theirs));
        assert_close(&found.detach(), &expected.detach(), what);
        let gradient = random(99, [found.size()[0] as usize, found.size()[1] as usize]);
        backward(&found, &gradient).unwrap();
        backward(&expected, &gradient.to_kind(Kind::Double)).unwrap();
        for (i, (mine, theirs)) in mine.iter().zip(&theirs).enumerate() {
            let (mine, theirs) = (mine.grad(), theirs.grad());
            assert_eq!(mine.defined(), which == inputs.len() || which == i, "{what}, input {i}");
            if mine.defined() {
                assert_close(&mine, &theirs, &format!("{what}, gradient of input {i}"));
            }
        }
    }
    let unrecorded = tch::no_grad(|| {
        ours(&inputs.iter().map(Tensor::shallow_clone).collect::<Vec<_>>()).unwrap()
    });
    assert!(!unrecorded.requires_grad());
}

#[test]
fn oracle_linear() {
    for (rows, input, output) in [(1, 1, 1), (200, 33, 17), (40, 256, 47), (0, 5, 3), (6, 0, 4)] {
        let tensors = [
            with_zeros(1, [rows, input]),
            random(2, [input, output]),
            random(3, [1, output]).view([-1]),
        ];
        for (place, (activation, probability)) in
            all_places().iter().flat_map(|place| activations().map(move |choice| (place, choice)))
        {
            let (finish, torchs) = finish(activation, probability, [rows, output]);
            let what = format!("{place:?}, {activation:?}, dropout {probability}, {rows} rows");
            compare(
                &what,
                &tensors,
                &|t| linear(place, &t[0], &t[1], Some(&t[2]), finish.clone()),
                &|t| torchs(t[0].matmul(&t[1]) + &t[2]),
            );
            compare(
                &format!("{what}, without bias"),
                &tensors[..2],
                &|t| linear(place, &t[0], &t[1], None, finish.clone()),
                &|t| torchs(t[0].matmul(&t[1])),
            );
            compare(
                &format!("{what}, alone"),
                &tensors[..1],
                &|t| finished(place, &t[0].matmul(&tensors[1]), finish.clone()),
                &|t| torchs(t[0].matmul(&tensors[1].to_kind(Kind::Double))),
            );
        }
    }
}

#[test]
fn oracle_aggregations() {
    let cases = [(1, 1, 0, 3), (50, 70, 5, 1), (200, 400, 9, 40), (30, 30, 3, 16)];
    for (((targets, sources, degree, dim), place), with_factors) in
        at_places(&cases).flat_map(|case| [(case.clone(), false), (case, true)])
    {
        let plain = Arc::into_inner(edges(&place, targets, sources, degree)).unwrap();
        let count = if with_factors { plain.num_edges() } else { 0 };
        let factors = random(3, [count, 1]);
        let edges = Arc::new(plain.with_factors(to_rows(&factors).unwrap()).unwrap());
        assert_eq!(edges.factors().is_some(), count > 0);
        let from = index(edges.on_host().unwrap().sources().iter().copied());
        let rows = random(1, [sources as usize, dim]);
        let weights = random(2, [edges.num_edges(), 1]).view([-1]);
        for (reduce, own) in [Reduce::Sum, Reduce::Mean]
            .into_iter()
            .flat_map(|reduce| [(reduce, false), (reduce, true)])
        {
            let torchs = |rows: &Tensor, weights: Option<&Tensor>| {
                let of_edges = rows.index_select(0, &from);
                let of_edges = weights
                    .map_or(of_edges.shallow_clone(), |weights| &of_edges * weights.view([-1, 1]));
                let of_edges = if count > 0 { of_edges * &factors } else { of_edges };
                let sum = sum_by_target(&edges, &of_edges);
                let sum = if reduce == Reduce::Mean { sum / degrees(&edges) } else { sum };
                if own { Tensor::cat(&[&rows.narrow(0, 0, targets as i64), &sum], 1) } else { sum }
            };
            let what = format!("{targets} targets, {reduce:?}, own {own}");
            compare(
                &what,
                &[rows.copy()],
                &|t| aggregate(&edges, reduce, &t[0], None, own),
                &|t| torchs(&t[0], None),
            );
            compare(
                &format!("{what}, weighted"),
                &[rows.copy(), weights.copy()],
                &|t| aggregate(&edges, reduce, &t[0], Some(&t[1]), own),
                &|t| torchs(&t[0], Some(&t[1])),
            );
        }
        if count > 0 {
            let line = aggregate_max(&edges, &rows).unwrap_err().to_string();
            assert!(line.contains("cannot use edge factors"), "{line}");
            continue;
        }
        let torchs = |rows: &Tensor| {
            let largest = |target: usize| {
                let of = edges.on_host().unwrap().of(target);
                let rows = rows.index_select(0, &from.narrow(0, of.start as i64, of.len() as i64));
                if of.is_empty() {
                    Tensor::zeros([dim as i64], (Kind::Double, Device::Cpu))
                } else {
                    rows.amax(0, false)
                }
            };
            // Adding a sum times zero keeps the result in the graph if no target has edges.
            Tensor::stack(&(0..targets).map(largest).collect::<Vec<_>>(), 0)
                + rows.sum(Kind::Double) * 0.0
        };
        compare("maxima", &[distinct(&edges, dim)], &|t| aggregate_max(&edges, &t[0]), &|t| {
            torchs(&t[0])
        });
    }
}

/// Rows without equal values: torch splits the gradient of a maximum between equal values.
fn distinct(edges: &Edges, dim: usize) -> Tensor {
    random(1, [edges.num_sources(), dim])
        + Tensor::arange((edges.num_sources() * dim) as i64, (Kind::Float, Device::Cpu))
            .view([-1, dim as i64])
            * 1e-3
}

/// Layer norm, and batch norm with known moments; with dropout, rows of zeros stay zero.
#[test]
fn oracle_norms() {
    for (((rows, dim), place), (activation, probability)) in
        at_places(&[(1, 4), (50, 7), (300, 40)])
            .flat_map(|case| activations().map(move |choice| (case.clone(), choice)))
    {
        let (finish, torchs) = finish(activation, probability, [rows, dim]);
        let of_columns = |seed| random(seed, [1, dim]).view([-1]);
        let shift = of_columns(3) * if probability > 0.0 { 0.0 } else { 1.0 };
        let inputs = [with_zeros(1, [rows, dim]), of_columns(2), shift];
        let what = format!("{rows} rows of {dim}, {activation:?}, dropout {probability}");
        compare(
            &what,
            &inputs,
            &|t| layer_norm(&place, &t[0], &t[1], &t[2], finish.clone()),
            &|t| torchs(t[0].layer_norm([dim as i64], Some(&t[1]), Some(&t[2]), 1e-5, false)),
        );
        let variance = of_columns(4) + 1.0;
        let moments = Moments::running(&place, &(of_columns(5) * 0.0), &variance).unwrap();
        compare(
            &format!("{what}, by columns"),
            &inputs,
            &|t| standardise(&place, &t[0], &moments, &t[1], &t[2], finish.clone()),
            &|t| torchs(&t[0] / (variance.to_kind(Kind::Double) + 1e-5).sqrt() * &t[1] + &t[2]),
        );
    }
}

/// Compares batch norm on two ranks, each with its own rows and one on both, with torch's batch
/// norm of all rows.
#[test]
fn oracle_batch_norm_over_ranks() {
    for place in [Place::host(), Place::emulated(2)] {
        batch_norm_over_ranks(&place);
    }
}

fn batch_norm_over_ranks(place: &Place) {
    const DIM: usize = 5;
    let inputs = || {
        let [scale, shift] = [3, 4].map(|seed| random(seed, [1, DIM]).view([-1]));
        [random(1, [21, DIM]), random(2, [22, DIM]), scale, shift]
    };
    // Row 12 is on both ranks.
    let places = [0..13i64, 12..21];
    let starts = [0i64, 13];
    let of_ranks: Vec<[Tensor; 4]> = crate::tests::on_ranks(2, |comm| {
        let (mine, start) = (places[comm.rank()].clone(), starts[comm.rank()]);
        let count = mine.end - mine.start;
        let [all, upstream, scale, shift] = inputs();
        let rows = all.narrow(0, mine.start, count).copy().set_requires_grad(true);
        let [a, b] = [&scale, &shift].map(|tensor| tensor.copy().set_requires_grad(true));
        let weights: Vec<f32> = mine.map(|row| if row == 12 { 0.5 } else { 1.0 }).collect();
        let moments = Moments::of(place, &rows, Some(Tensor::from_slice(&weights)), comm).unwrap();
        let out = standardise(place, &rows, &moments, &a, &b, Finish::default()).unwrap();
        backward(&out, &upstream.narrow(0, start, count)).unwrap();
        let of_rows = moments.correct(&rows, &rows.grad(), comm).unwrap();
        [out.detach(), of_rows, a.grad(), b.grad()]
    });
    let leaf = |tensor: &Tensor| tensor.to_kind(Kind::Double).copy().set_requires_grad(true);
    let [all, upstream, scale, shift] = inputs();
    let (x, a, b) = (leaf(&all), leaf(&scale), leaf(&shift));
    let normed =
        x.batch_norm(Some(&a), Some(&b), None::<&Tensor>, None::<&Tensor>, true, 0.1, 1e-5, false);
    let expanded = Tensor::cat(
        &places.clone().map(|rows| normed.narrow(0, rows.start, rows.end - rows.start)),
        0,
    );
    backward(&expanded, &upstream.to_kind(Kind::Double)).unwrap();
    let of_rows = Tensor::zeros([21, DIM as i64], (Kind::Double, Device::Cpu));
    for (places, [out, of_mine, ..]) in places.iter().zip(&of_ranks) {
        let count = places.end - places.start;
        assert_close(out, &normed.detach().narrow(0, places.start, count), "rows");
        let _ = of_rows.narrow(0, places.start, count).g_add_(&of_mine.to_kind(Kind::Double));
    }
    assert_close(&of_rows, &x.grad(), "gradient of the rows");
    let sum = |at: usize| &of_ranks[0][at] + &of_ranks[1][at];
    assert_close(&sum(2), &a.grad(), "gradient of the scale");
    assert_close(&sum(3), &b.grad(), "gradient of the shift");
}

#[test]
fn rows_that_are_not_contiguous_are_read_rightly() {
    for place in all_places() {
        strided_rows(&place);
    }
}

fn strided_rows(place: &Place) {
    let edges = edges(place, 20, 30, 4);
    let (wide, tall) = (random(1, [12, 30]), random(2, [7, 12]));
    let ours = |x: &Tensor, w: &Tensor| {
        let rows = aggregate(&edges, Reduce::Sum, x, None, false).unwrap();
        linear(place, &rows, w, None, Finish::default()).unwrap()
    };
    let (x, w) = (wide.copy().set_requires_grad(true), tall.copy().set_requires_grad(true));
    let strided = ours(&x.tr(), &w.tr());
    let dense = ours(&wide.tr().contiguous(), &tall.tr().contiguous());
    assert_eq!(strided.detach(), dense);
    // The gradient of a sum is one value, expanded.
    strided.sum(Kind::Float).backward();
    assert_eq!((x.grad().size(), w.grad().size()), (vec![12, 30], vec![7, 12]));
}

fn device_in(dtype: Dtype, order: u32) -> Place {
    Place::emulated(order).with_dtype(dtype)
}

#[test]
fn rounded_rows_are_aggregated_as_those_of_f32() {
    [Dtype::Bf16, Dtype::F16].into_iter().for_each(rounded_rows_are_aggregated);
}

fn rounded_rows_are_aggregated(dtype: Dtype) {
    let (device, kind) = (device_in(dtype, 2), dtype.kind());
    for (targets, sources, degree, dim) in [(1, 1, 0, 3), (50, 70, 5, 12), (30, 30, 3, 16)] {
        let (edges, wide) = (
            edges(&device, targets, sources, degree),
            edges(&Place::emulated(1), targets, sources, degree),
        );
        let rows = random(1, [sources as usize, dim]).to_kind(kind);
        let weights = random(2, [edges.num_edges(), 1]).view([-1]);
        let gradient = random(3, [targets, 2 * dim]).to_kind(kind);
        let leaf = |tensor: &Tensor, kind| tensor.to_kind(kind).copy().set_requires_grad(true);
        for reduce in [Reduce::Sum, Reduce::Mean] {
            let (x, w) = (leaf(&rows, Kind::Float), leaf(&weights, Kind::Float));
            let y = aggregate(&wide, reduce, &x, Some(&w), true).unwrap();
            backward(&y, &gradient.to_kind(Kind::Float)).unwrap();
            for for_product in [false, true] {
                let (narrow, v) = (leaf(&rows, kind), leaf(&weights, Kind::Float));
                let found = match for_product {
                    true => aggregate_for_product(&edges, reduce, &narrow, Some(&v), true).unwrap(),
                    false => aggregate(&edges, reduce, &narrow, Some(&v), true).unwrap(),
                };
                assert_eq!(found.kind(), if for_product { kind } else { Kind::Float });
                assert_eq!(found.detach(), y.detach().to_kind(found.kind()));
                backward(&found, &gradient.to_kind(found.kind())).unwrap();
                assert_eq!(narrow.grad(), x.grad().to_kind(kind));
                assert_eq!(v.grad(), w.grad());
            }
        }
        let gradient = gradient.narrow(1, 0, dim as i64);
        let (x, narrow) = (leaf(&rows, Kind::Float), leaf(&rows, kind));
        let (y, found) =
            (aggregate_max(&wide, &x).unwrap(), aggregate_max(&edges, &narrow).unwrap());
        assert_eq!(found.detach(), y.detach().to_kind(kind));
        backward(&y, &gradient.to_kind(Kind::Float)).unwrap();
        backward(&found, &gradient).unwrap();
        assert_eq!(narrow.grad(), x.grad().to_kind(kind));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    for place in all_places() {
        refuse(&place);
    }
}

fn refuse(place: &Place) {
    let message = |result: Result<Tensor>| result.map(|_| ()).unwrap_err().to_string();
    let (edges, rows) = (edges(place, 3, 5, 2), random(1, [5, 4]));
    let none = Finish::default;
    assert!(message(linear(place, &rows, &rows, None, none())).contains("[5, 4]"));
    assert!(
        message(linear(place, &rows, &random(1, [4, 2]), Some(&rows.view([-1])), none()))
            .contains("bias")
    );
    assert!(
        message(linear(place, &rows.view([-1]), &rows, None, none())).contains("expected a matrix")
    );
    assert!(message(linear(place, &rows, &rows.view([-1]), None, none())).contains("one per head"));
    assert!(
        message(linear(place, &rows, &rows.view([1, 5, 4]), None, none())).contains("[1, 5, 4]")
    );
    let doubles = random(1, [4, 4]).to_kind(Kind::Double);
    assert!(message(linear(place, &doubles, &doubles, None, none())).contains("f32"));
    assert!(
        message(aggregate(&edges, Reduce::Sum, &random(1, [4, 4]), None, false))
            .contains("rows to aggregate")
    );
    assert!(
        message(aggregate(&edges, Reduce::Sum, &rows, Some(&random(1, [9, 1])), false))
            .contains("edge weights")
    );
    assert!(message(aggregate_max(&edges, &random(1, [4, 4]))).contains("rows of the sources"));
    let heads = random(2, [2, 2]);
    let attend = |rows: &Tensor, bias: &Tensor| {
        attention(&edges, rows, &heads, &heads, Some(bias), None, none())
    };
    assert!(message(attend(&random(1, [5, 6]), &random(1, [1, 6]).view([-1]))).contains("width 6"));
    assert!(
        message(attend(&random(1, [4, 4]), &random(1, [1, 4]).view([-1])))
            .contains("rows of the sources")
    );
    assert!(message(attend(&rows, &random(1, [1, 3]).view([-1]))).contains("bias"));
    let (bias, targets) = (random(1, [1, 4]).view([-1]), random(1, [3, 4]));
    let dynamic = |rows: &Tensor, targets: &Tensor| {
        dynamic_attention(&edges, rows, targets, &heads, &bias, None, none())
    };
    assert!(message(dynamic(&random(1, [5, 6]), &targets)).contains("width 6"));
    assert!(message(dynamic(&rows, &rows)).contains("rows of the targets"));
    let dropping = |ids: Vec<u32>, probability| {
        let dropout =
            Dropout { ids: ids.into(), probability, key: StreamKey::new(1, Stream::Attention) };
        message(attention(&edges, &rows, &heads, &heads, Some(&bias), Some(dropout), none()))
    };
    assert!(dropping(vec![1, 2], 0.5).contains("vertices of the targets"));
    assert!(dropping(vec![1, 2, 3], 1.0).contains("dropout"));
    let unlike = message(layer_norm(place, &rows, &bias, &random(1, [1, 3]).view([-1]), none()));
    // The message is this crate's, or torch's.
    assert!(
        unlike.contains("shift") || unlike.contains("same shape as normalized_shape"),
        "{unlike}"
    );
    assert!(
        message(biased(place, &rows, Some(&random(1, [1, 3]).view([-1])), none())).contains("bias")
    );
    assert!(message(super::Rows::Hidden(&rows).first(6)).contains("6"));
}
