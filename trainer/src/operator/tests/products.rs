//! Products of rows and weights: on several threads, in tiles, and rounded.

use super::*;

#[test]
fn oracle_products_of_heads() {
    for (rows, heads, input, output) in
        [(300, 2, 33, 17), (1100, 3, 8, 1), (0, 2, 5, 3), (6, 2, 0, 4)]
    {
        let weight =
            random(2, [heads * input, output]).view([heads as i64, input as i64, output as i64]);
        let inputs = [
            with_zeros(1, [rows, heads * input]),
            weight,
            random(3, [1, heads * output]).view([-1]),
        ];
        for place in &all_places() {
            let (finish, torchs) = finish(Activation::Relu, 0.3, [rows, heads * output]);
            let of_torch = |t: &[Tensor]| {
                let part = |head: i64| {
                    t[0].narrow(1, head * input as i64, input as i64).matmul(&t[1].select(0, head))
                };
                torchs(Tensor::cat(&(0..heads as i64).map(part).collect::<Vec<_>>(), 1) + &t[2])
            };
            let ours = |t: &[Tensor]| linear(place, &t[0], &t[1], Some(&t[2]), finish.clone());
            compare(&format!("{place:?}, {rows} rows, {heads} heads"), &inputs, &ours, &of_torch);
        }
    }
}

/// Rows and gradients of a layer with enough rows for several groups of tiles, the last ones
/// ragged.
fn tall_product(place: &Place, rows: usize) -> Vec<Vec<f32>> {
    let [x, w] = [(1, [rows, 70]), (2, [70, 50])]
        .map(|(seed, size)| random(seed, size).set_requires_grad(true));
    let bias = random(3, [1, 50]).view([-1]).set_requires_grad(true);
    let dropout = Dropout {
        ids: (0..rows as u32).map(|row| row * 5 % 977).collect(),
        probability: 0.25,
        key: StreamKey::new(5, Stream::Dropout),
    };
    let finish =
        Finish { activation: Activation::Relu, dropout: Some(dropout), ..Finish::default() };
    let y = linear(place, &x, &w, Some(&bias), finish).unwrap();
    (&y * random(4, [rows, 50])).sum(Kind::Float).backward();
    [y.detach(), x.grad(), w.grad(), bias.grad()]
        .iter()
        .map(|t| Vec::try_from(t.contiguous().view([-1])).unwrap())
        .collect()
}

#[test]
fn products_are_the_same_for_any_number_of_threads() {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| [GEMM, BF16].map(|place| tall_product(&place, 3000)))
    };
    let first = run(1);
    for threads in [2, 4, 8] {
        assert_eq!(run(threads), first);
    }
}

#[test]
fn products_in_tiles_are_those_of_whole_matrices() {
    for rows in [0, 1, 63, 64, 1025, 17_000, 17_001] {
        for (tiled, whole) in tall_product(&GEMM, rows).iter().zip(tall_product(&TORCH, rows)) {
            assert_eq!(tiled.len(), whole.len());
            let largest = whole.iter().fold(1f32, |largest, value| largest.max(value.abs()));
            let apart = tiled.iter().zip(&whole).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(
                apart <= 2e-5 * largest,
                "{rows} rows: {apart} apart, the largest is {largest}"
            );
        }
    }
}

#[test]
fn rounded_products_are_off_by_their_rounding() {
    for rows in [1, 64, 1025, 17_001] {
        // Sums of 70 terms of both signs, and over all rows: errors of 2^-9 each partly cancel.
        // Where ReLU cuts off, a small error may let a gradient of any size through.
        let expected = tall_product(&TORCH, rows);
        let mut found = vec![tall_product(&BF16, rows)];
        if rows < 2000 {
            found.extend(
                [Dtype::Bf16, Dtype::F16]
                    .map(|dtype| tall_product(&device_in(dtype, rows as u32 % 4), rows)),
            );
        }
        assert!(found.iter().all(|found| found[0] != expected[0]));
        for (rounded, whole) in found.iter().flat_map(|found| found.iter().zip(&expected)) {
            let norm = |values: &mut dyn Iterator<Item = f32>| {
                values.map(|value| value * value).sum::<f32>().sqrt()
            };
            let apart = norm(&mut rounded.iter().zip(whole).map(|(a, b)| a - b));
            let size = norm(&mut whole.iter().copied());
            assert!(apart <= 0.1 * size, "{rows} rows: {apart} apart of {size}");
        }
    }
}

/// Random eighths from -4 to 4, which are exact in bf16 and f16; sums of their products are exact
/// in f32.
fn eighths(seed: u32, shape: [usize; 2]) -> Tensor {
    (random(seed, shape) * 64.0).round() / 8.0
}

/// On a GPU that computes in bf16 or f16, numbers that are exact in that type give the same
/// products as in f32; gradients of the weights are f32, and gradients of rows have the type of the
/// rows.
#[test]
fn products_of_numbers_that_the_type_holds_are_exact() {
    let mut sizes = vec![(1, 1, 1), (70, 33, 17), (0, 5, 3), (6, 0, 4), (20, 8, 40)];
    if std::env::var_os("GSPLIT_TEST_LARGE").is_some() {
        // Sums that cuBLAS may split into parts.
        sizes.push((1 << 14, 512, 256));
    }
    for (rows, input, output) in sizes {
        let gradient = eighths(4, [rows, output]);
        let run = |place: &Place, kind: Kind, dtype: Dtype| {
            let leaf = |tensor: Tensor| tensor.set_requires_grad(true);
            let x = leaf(eighths(1, [rows, input]).to_kind(kind));
            let (w, b) =
                (leaf(eighths(2, [input, output])), leaf(eighths(3, [1, output]).view([-1])));
            let finish = Finish { activation: Activation::Relu, dtype, ..Finish::default() };
            let y = linear(place, &x, &w, Some(&b), finish).unwrap();
            backward(&y, &gradient.to_kind(y.kind())).unwrap();
            [y.detach(), x.grad(), w.grad(), b.grad()]
        };
        let expected = run(&TORCH, Kind::Float, Dtype::F32);
        for narrow in [Dtype::Bf16, Dtype::F16] {
            for (kind, dtype) in [
                (Kind::Float, Dtype::F32),
                (Kind::Float, narrow),
                (narrow.kind(), Dtype::F32),
                (narrow.kind(), narrow),
            ] {
                let found = run(&device_in(narrow, 1), kind, dtype);
                let kinds = [dtype.kind(), kind, Kind::Float, Kind::Float];
                for ((found, expected), kind) in found.iter().zip(&expected).zip(kinds) {
                    assert_eq!(found.kind(), kind);
                    assert_eq!(
                        found,
                        &expected.to_kind(kind),
                        "{rows} rows, {input} to {output}, {dtype:?}"
                    );
                }
            }
        }
    }
    let refused = linear(
        &GEMM,
        &eighths(1, [2, 2]).to_kind(Kind::BFloat16),
        &eighths(2, [2, 2]),
        None,
        Finish::default(),
    );
    assert!(refused.unwrap_err().to_string().contains("got one of BFloat16"));
}
