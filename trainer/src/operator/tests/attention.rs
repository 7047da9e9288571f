//! Attention against torch's own operators, and over rounded rows.

use super::*;

/// Dropout of attention weights with a distinct vertex for each row, and the factors by which it
/// multiplies the weights, of the targets' loops and then of the edges, f64 `[targets + edges,
/// heads, 1]`.
fn share_dropout(edges: &Edges, heads: usize, probability: f32) -> (Option<Dropout>, Tensor) {
    let edges = edges.on_host().unwrap();
    let (targets, count) = (edges.num_targets(), edges.num_targets() + edges.num_edges());
    let key = StreamKey { epoch: 4, layer: 1, ..StreamKey::new(9, Stream::Attention) };
    let ids: Vec<u32> =
        (0..edges.num_sources().max(targets) as u32).map(|row| 5 + 3 * row).collect();
    let mut factors = vec![1f32; count * heads];
    for target in 0..targets {
        let mut own = vec![0f32; (1 + edges.of(target).len()) * heads];
        dropout_mask(&ids[target..][..1], own.len(), probability, &key, &mut own).unwrap();
        let (of_loop, others) = own.split_at(heads);
        factors[target * heads..][..heads].copy_from_slice(of_loop);
        factors[(targets + edges.of(target).start) * heads..][..others.len()]
            .copy_from_slice(others);
    }
    let factors =
        Tensor::from_slice(&factors).view([count as i64, heads as i64]).to_kind(Kind::Double);
    ((probability > 0.0).then_some(Dropout { ids: ids.into(), probability, key }), factors)
}

/// LeakyReLU whose slope at 0 is that below 0.
fn leaky(x: Tensor) -> Tensor {
    &x * 0.2 + x.relu() * 0.8
}

/// Tests finishes with a bias, and with a bias of zeros.
#[test]
fn oracle_attention() {
    let shapes = [(1, 1, 0, 1, 1), (40, 90, 6, 2, 8), (60, 60, 3, 3, 5), (5, 9, 0, 4, 16)];
    let finishes = [
        (Activation::Elu, 0.0, 1.0),
        (Activation::Elu, 0.3, 0.0),
        (Activation::Identity, 0.3, 0.0),
    ];
    for (((targets, sources, degree, heads, dim), place), shares_rows) in
        at_places(&shapes).flat_map(|case| [(case.clone(), false), (case, true)])
    {
        if shares_rows && (heads == 1 || place.gpu().is_some()) {
            continue;
        }
        let edges = edges(&place, targets, sources, degree);
        // Both ends of each edge, loops first.
        let own = || Tensor::arange(targets as i64, (Kind::Int64, Device::Cpu));
        let from =
            Tensor::cat(&[own(), index(edges.on_host().unwrap().sources().iter().copied())], 0);
        let to = Tensor::cat(&[own(), targets_of(&edges)], 0);
        let (dropout, factors) = share_dropout(&edges, heads, [0.0, 0.4, 0.6][targets % 3]);
        let rows = with_zeros(1, [sources as usize, if shares_rows { dim } else { heads * dim }]);
        let [from_source, from_target] = [2, 3].map(|seed| random(seed, [heads, dim]) * 3.0);
        let torchs = |t: &[Tensor]| {
            let rows =
                if shares_rows { t[0].repeat([1, heads as i64]) } else { t[0].shallow_clone() };
            let rows = rows.view([-1, heads as i64, dim as i64]);
            let score = |a: &Tensor| (&rows * a).sum_dim_intlist(-1, false, Kind::Double);
            let raised =
                leaky(score(&t[1]).index_select(0, &from) + score(&t[2]).index_select(0, &to))
                    .exp();
            let zeros = |shape: &[i64]| Tensor::zeros(shape, (Kind::Double, Device::Cpu));
            let total = zeros(&[targets as i64, heads as i64]).index_add(0, &to, &raised);
            let weight = raised / total.index_select(0, &to) * &factors;
            let terms = rows.index_select(0, &from) * weight.unsqueeze(-1);
            let sums = zeros(&[targets as i64, heads as i64, dim as i64]).index_add(0, &to, &terms);
            sums.view([targets as i64, -1]) + &t[3]
        };
        for (activation, probability, bias) in finishes {
            let (finish, finished) = finish(activation, probability, [targets, heads * dim]);
            let bias = random(4, [1, heads * dim]).view([-1]) * bias;
            let inputs = [rows.copy(), from_source.copy(), from_target.copy(), bias];
            let ours = |t: &[Tensor]| {
                attention(&edges, &t[0], &t[1], &t[2], Some(&t[3]), dropout.clone(), finish.clone())
            };
            let what = format!(
                "{targets} targets, {heads} heads of {dim}, {activation:?}, dropout {probability}"
            );
            compare(&format!("{what}, shared rows {shares_rows}"), &inputs, &ours, &|t| {
                finished(torchs(t))
            });
        }
    }
}

/// Attention over rounded rows equals attention over the same rows in f32, with gradients rounded
/// once.
#[test]
fn rounded_rows_are_attended_to_as_those_of_f32() {
    for (dtype, dynamic) in
        [Dtype::Bf16, Dtype::F16].into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)])
    {
        let kind = dtype.kind();
        let rows = [random(1, [70, 12]), random(2, [50, 12])].map(|rows| rows.to_kind(kind));
        let vectors = [random(3, [3, 4]), random(4, [3, 4]), random(5, [1, 12]).view([-1])];
        let gradient = random(6, [50, 12]).to_kind(kind);
        let run = |place: &Place, kind: Kind, finish: Finish| {
            let edges = edges(place, 50, 70, 5);
            let (dropout, _) = share_dropout(&edges, 3, 0.5);
            let leaf = |tensor: &Tensor, kind| tensor.to_kind(kind).copy().set_requires_grad(true);
            let ([x, own], [v, w, b]) = (
                rows.each_ref().map(|rows| leaf(rows, kind)),
                vectors.each_ref().map(|v| leaf(v, Kind::Float)),
            );
            let y = match dynamic {
                true => dynamic_attention(&edges, &x, &own, &v, &b, dropout, finish).unwrap(),
                false => attention(&edges, &x, &v, &w, Some(&b), dropout, finish).unwrap(),
            };
            backward(&y, &gradient.to_kind(y.kind())).unwrap();
            let last = if dynamic { own.grad() } else { w.grad() };
            [y.detach(), x.grad(), last, v.grad(), b.grad()]
        };
        let expected = run(&Place::emulated(1), Kind::Float, Finish::default());
        let place = device_in(dtype, 3);
        for finish in [Finish::default(), Finish::rounding(&place)] {
            let of_rows = finish.dtype.kind();
            let found = run(&place, kind, finish);
            let kinds =
                [of_rows, kind, if dynamic { kind } else { Kind::Float }, Kind::Float, Kind::Float];
            for (which, ((found, expected), kind)) in
                found.iter().zip(&expected).zip(kinds).enumerate()
            {
                assert_eq!(found, &expected.to_kind(kind), "{which}, {dtype:?}, dynamic {dynamic}");
            }
        }
    }
}
