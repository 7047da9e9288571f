//! Attention against torch's own operators, and over rounded rows.

use super::*;

/// Dropout of shares at edges whose rows are those of vertices of their own, and what it multiplies the shares of the targets'
/// loops and then of the edges with, f64 `[targets + edges, heads, 1]`.
fn share_dropout(edges: &Edges, heads: usize, probability: f32) -> (Option<Dropout>, Tensor) {
    let edges = edges.on_host().unwrap();
    let (targets, count) = (edges.num_targets(), edges.num_targets() + edges.num_edges());
    let key = StreamKey { epoch: 4, layer: 1, ..StreamKey::new(9, Stream::Attention) };
    let ids: Vec<u32> = (0..edges.num_sources().max(targets) as u32).map(|row| 5 + 3 * row).collect();
    let mut factors = vec![1f32; count * heads];
    for target in 0..targets {
        let mut own = vec![0f32; (1 + edges.of(target).len()) * heads];
        dropout_mask(&ids[target..][..1], own.len(), probability, &key, &mut own).unwrap();
        let (of_loop, others) = own.split_at(heads);
        factors[target * heads..][..heads].copy_from_slice(of_loop);
        factors[(targets + edges.of(target).start) * heads..][..others.len()].copy_from_slice(others);
    }
    let factors = Tensor::from_slice(&factors).view([count as i64, heads as i64]).to_kind(Kind::Double);
    ((probability > 0.0).then_some(Dropout { ids: ids.into(), probability, key }), factors)
}

#[test]
fn oracle_attention() {
    let cases = [(1, 1, 0, 1, 1), (40, 90, 6, 2, 8), (60, 60, 3, 3, 5), (5, 9, 0, 4, 16)];
    for ((targets, sources, degree, heads, dim), place) in at_places(&cases) {
        let edges = edges(&place, targets, sources, degree);
        let (from, to) = (index(edges.on_host().unwrap().sources().iter().copied()), targets_of(&edges));
        let own = Tensor::arange(targets as i64, (Kind::Int64, Device::Cpu));
        let (from, to) = (Tensor::cat(&[&own, &from], 0), Tensor::cat(&[&own, &to], 0));
        let (dropout, factors) = share_dropout(&edges, heads, [0.0, 0.4, 0.6][targets % 3]);
        let (width, n) = (heads * dim, targets as i64);
        let inputs = [
            random(1, [sources as usize, width]),
            random(2, [heads, dim]) * 3.0,
            random(3, [heads, dim]) * 3.0,
            random(4, [1, width]).view([-1]),
        ];
        let torchs = |t: &[Tensor]| {
            let z = t[0].view([-1, heads as i64, dim as i64]);
            let score = |a: &Tensor| (&z * a).sum_dim_intlist(-1, false, Kind::Double);
            let score = score(&t[1]).index_select(0, &from) + score(&t[2]).index_select(0, &to);
            let raised = score.maximum(&(&score * 0.2)).exp();
            let total = Tensor::zeros([n, heads as i64], (Kind::Double, Device::Cpu)).index_add(0, &to, &raised);
            let share = raised / total.index_select(0, &to) * &factors;
            let terms = z.index_select(0, &from) * share.unsqueeze(-1);
            let zeros = Tensor::zeros([n, heads as i64, dim as i64], (Kind::Double, Device::Cpu));
            (zeros.index_add(0, &to, &terms).view([n, width as i64]) + &t[3]).elu()
        };
        let finish = Finish { activation: Activation::Elu, ..Finish::default() };
        compare(
            &format!("{targets} targets, {heads} heads of {dim}"),
            &inputs,
            &|t| attention(&edges, &t[0], &t[1], &t[2], &t[3], dropout.clone(), finish.clone()),
            &torchs,
        );
    }
}

#[test]
fn oracle_dynamic_attention() {
    let cases = [(1, 1, 0, 1, 1), (40, 90, 6, 2, 8), (60, 60, 3, 3, 5), (5, 9, 0, 4, 16)];
    for ((targets, sources, degree, heads, dim), place) in at_places(&cases) {
        let edges = edges(&place, targets, sources, degree);
        let (from, to) = (index(edges.on_host().unwrap().sources().iter().copied()), targets_of(&edges));
        let own = Tensor::arange(targets as i64, (Kind::Int64, Device::Cpu));
        let (from, to) = (Tensor::cat(&[&own, &from], 0), Tensor::cat(&[&own, &to], 0));
        let (dropout, factors) = share_dropout(&edges, heads, [0.0, 0.4, 0.6][targets % 3]);
        let (width, n) = (heads * dim, targets as i64);
        let inputs = [
            random(1, [sources as usize, width]),
            random(2, [targets, width]),
            random(3, [heads, dim]) * 3.0,
            random(4, [1, width]).view([-1]),
        ];
        let torchs = |t: &[Tensor]| {
            let split = |rows: &Tensor| rows.view([-1, heads as i64, dim as i64]);
            let sum = split(&t[0]).index_select(0, &from) + split(&t[1]).index_select(0, &to);
            let score = (sum.maximum(&(&sum * 0.2)) * &t[2]).sum_dim_intlist(-1, false, Kind::Double);
            let raised = score.exp();
            let total = Tensor::zeros([n, heads as i64], (Kind::Double, Device::Cpu)).index_add(0, &to, &raised);
            let share = raised / total.index_select(0, &to) * &factors;
            let terms = split(&t[0]).index_select(0, &from) * share.unsqueeze(-1);
            let zeros = Tensor::zeros([n, heads as i64, dim as i64], (Kind::Double, Device::Cpu));
            (zeros.index_add(0, &to, &terms).view([n, width as i64]) + &t[3]).elu()
        };
        let finish = Finish { activation: Activation::Elu, ..Finish::default() };
        let ours =
            |t: &[Tensor]| dynamic_attention(&edges, &t[0], &t[1], &t[2], &t[3], dropout.clone(), finish.clone());
        compare(&format!("{targets} targets, {heads} heads of {dim}"), &inputs, &ours, &torchs);
    }
}

/// Attention over rounded rows is that over the same rows in f32, its gradients rounded once.
#[test]
fn rounded_rows_are_attended_to_as_those_of_f32() {
    for (dtype, dynamic) in [Dtype::Bf16, Dtype::F16].into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        let kind = dtype.kind();
        let rows = [random(1, [70, 12]), random(2, [50, 12])].map(|rows| rows.to_kind(kind));
        let vectors = [random(3, [3, 4]), random(4, [3, 4]), random(5, [1, 12]).view([-1])];
        let gradient = random(6, [50, 12]).to_kind(kind);
        let run = |place: &Place, kind: Kind, finish: Finish| {
            let edges = edges(place, 50, 70, 5);
            let (dropout, _) = share_dropout(&edges, 3, 0.5);
            let leaf = |tensor: &Tensor, kind| tensor.to_kind(kind).copy().set_requires_grad(true);
            let ([x, own], [v, w, b]) =
                (rows.each_ref().map(|rows| leaf(rows, kind)), vectors.each_ref().map(|v| leaf(v, Kind::Float)));
            let y = match dynamic {
                true => dynamic_attention(&edges, &x, &own, &v, &b, dropout, finish).unwrap(),
                false => attention(&edges, &x, &v, &w, &b, dropout, finish).unwrap(),
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
            let kinds = [of_rows, kind, if dynamic { kind } else { Kind::Float }, Kind::Float, Kind::Float];
            for (which, ((found, expected), kind)) in found.iter().zip(&expected).zip(kinds).enumerate() {
                assert_eq!(found, &expected.to_kind(kind), "{which}, {dtype:?}, dynamic {dynamic}");
            }
        }
    }
}
