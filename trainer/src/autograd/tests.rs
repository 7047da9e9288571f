//! The graph node and the memory pool: gradients are right, nothing leaks, and every misuse is an
//! error.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::*;
use crate::Error;

fn leaf(values: &[f32]) -> Tensor {
    Tensor::from_slice(values).set_requires_grad(true)
}

/// `x²` as an operator of this crate; `alive` is held as long as the closure.
fn square(x: &Tensor, alive: &Arc<()>) -> Tensor {
    let alive = alive.clone();
    let output = tch::no_grad(|| x * x);
    attach(&[x], &[x], output, move |gradient| {
        let _ = &alive;
        Ok(vec![Some(gradient.output * &gradient.saved[0] * 2.0)])
    })
    .unwrap()
}

fn list(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.contiguous()).unwrap()
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn gradients_flow_through_ours_and_torchs_operators() {
    let alive = Arc::new(());
    let x = leaf(&[1.0, -2.0, 3.0]);
    // d/dx (2x)⁴ = 64 x³, with x used twice.
    let y = square(&square(&(&x + &x), &alive), &alive);
    assert_eq!(list(&y), [16.0, 256.0, 1296.0]);
    backward(&y, &Tensor::from_slice(&[1f32, 1.0, 0.5])).unwrap();
    assert_eq!(list(&x.grad()), [64.0, -512.0, 864.0]);
    drop(y);
    assert_eq!(Arc::strong_count(&alive), 1, "closures are freed");
}

#[test]
fn a_saved_output_is_given_back_and_does_not_keep_itself_alive() {
    let alive = Arc::new(());
    let make = |x: &Tensor| {
        let alive = alive.clone();
        let output = tch::no_grad(|| x.exp());
        let saved = output.shallow_clone();
        attach(&[x], &[&saved], output, move |gradient| {
            let _ = &alive;
            Ok(vec![Some(gradient.output * &gradient.saved[0])])
        })
        .unwrap()
    };
    let x = leaf(&[0.0, 1.0]);
    let y = make(&x);
    y.sum(Kind::Float).backward();
    assert_eq!(list(&x.grad()), list(&y));
    drop(y);
    drop(make(&x));
    assert_eq!(Arc::strong_count(&alive), 1, "a graph that was never used is freed too");
}

#[test]
fn the_second_use_of_a_graph_is_an_error() {
    let alive = Arc::new(());
    let x = leaf(&[2.0]);
    let y = square(&x, &alive);
    let one = Tensor::from_slice(&[1f32]);
    backward(&y, &one).unwrap();
    assert_eq!(Arc::strong_count(&alive), 1, "freed by the first use");
    assert!(message(backward(&y, &one)).contains("second time"));
    assert_eq!(list(&x.grad()), [4.0]);
    // On request torch keeps the graph, and gradients add up.
    let y = square(&x, &alive);
    Tensor::run_backward(&[&y], &[&x], true, false);
    backward(&y, &one).unwrap();
    assert_eq!(list(&x.grad()), [8.0]);
}

#[test]
fn nothing_is_kept_where_no_gradient_is_recorded() {
    let alive = Arc::new(());
    let x = leaf(&[2.0]);
    let unrecorded = tch::no_grad(|| square(&x, &alive));
    let plain = square(&x.detach(), &alive);
    assert!(!unrecorded.requires_grad() && !plain.requires_grad());
    assert_eq!(Arc::strong_count(&alive), 1);
    assert!(message(backward(&plain, &plain)).contains("does not require grad"));
}

#[test]
fn gradients_that_nobody_needs_are_not_asked_for() {
    for needs in [[true, false], [false, true], [true, true]] {
        let inputs = needs.map(|needs| Tensor::from_slice(&[3f32]).set_requires_grad(needs));
        let [a, b] = &inputs;
        let output = tch::no_grad(|| a * b);
        let y = attach(&[a, b], &[a, b], output, move |gradient| {
            assert_eq!(gradient.needed, needs);
            let product = |other: usize| Some(&gradient.output * &gradient.saved[other]);
            Ok(vec![product(1).filter(|_| needs[0]), product(0).filter(|_| needs[1])])
        })
        .unwrap();
        y.backward();
        for (input, needs) in inputs.iter().zip(needs) {
            assert_eq!(input.grad().defined(), needs);
        }
    }
}

#[test]
fn errors_and_panics_come_out_of_backward_as_errors() {
    let x = leaf(&[1.0, 2.0]);
    let one = Tensor::from_slice(&[1f32, 1.0]);
    let fails = |backward_fn: fn() -> Result<Vec<Option<Tensor>>>| {
        let y = attach(&[&x], &[], x.detach().copy(), move |_| backward_fn()).unwrap();
        message(backward(&y, &one))
    };
    assert!(fails(|| Err(Error::Option("no such luck".into()))).contains("no such luck"));
    assert!(fails(|| panic!("lost {}", 7)).contains("backward panicked: lost 7"));
    assert!(fails(|| panic!("{}", "long ".repeat(1000))).len() < 600);
    assert!(fails(|| std::panic::panic_any(5)).contains("no message"));
    assert!(fails(|| Ok(vec![])).contains("0 gradients for 1 inputs"));
    assert!(
        fails(|| Ok(vec![Some(Tensor::from_slice(&[1f32, 2.0, 3.0]))]))
            .contains("invalid gradient")
    );
    assert!(!x.grad().defined());
    // The graph still works for others.
    backward(&square(&x, &Arc::new(())), &one).unwrap();
    assert_eq!(list(&x.grad()), [2.0, 4.0]);
}

#[test]
fn no_gradient_is_zero() {
    let x = leaf(&[1.0]);
    let y = attach(&[&x], &[], x.detach() + 1.0, |_| Ok(vec![None])).unwrap();
    (&y + &x).backward();
    assert_eq!(list(&x.grad()), [1.0]);
}

#[test]
fn a_value_changed_in_place_is_noticed() {
    let x = leaf(&[1.0]);
    let hidden = &x * 3.0;
    let y = square(&hidden, &Arc::new(()));
    let _ = hidden.shallow_clone().g_add_(&Tensor::from_slice(&[1f32]));
    assert!(
        message(backward(&y, &Tensor::from_slice(&[1f32])))
            .contains("modified by an inplace operation")
    );
}

#[test]
fn an_output_with_history_is_refused() {
    let x = leaf(&[1.0]);
    assert!(message(attach(&[&x], &[], &x * 2.0, |_| Ok(vec![None]))).contains("without history"));
}

#[test]
fn a_graph_of_the_gradient_is_refused() {
    let x = leaf(&[1.0]);
    let y = square(&x, &Arc::new(()));
    let second = Tensor::f_run_backward(&[&y], &[&x], true, true);
    assert!(message(second.map_err(Error::from)).contains("no second derivative"));
}

#[test]
fn only_dense_f32_rows_on_the_host_are_lent() {
    let matrix = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]);
    assert_eq!(values::<f32>(&matrix).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values::<f32>(&matrix.narrow(0, 1, 1)).unwrap(), [3.0, 4.0]);
    for other in
        [matrix.tr(), matrix.to_kind(Kind::Double), matrix.sum(Kind::Float).expand([3], false)]
    {
        assert!(message(values::<f32>(&other)).contains("dense tensor of Float"));
    }
    assert!(
        values::<f32>(&Tensor::zeros([0, 4], (Kind::Float, tch::Device::Cpu))).unwrap().is_empty()
    );
    // The gradient of a sum is one value, expanded.
    let x = leaf(&[1.0, 2.0]);
    let y = attach(&[&x], &[], x.detach().copy(), |gradient| {
        assert!(values::<f32>(&gradient.output).is_err());
        Ok(vec![Some(Tensor::from_slice(values::<f32>(&gradient.output.contiguous())?))])
    });
    y.unwrap().sum(Kind::Float).backward();
    assert_eq!(list(&x.grad()), [1.0, 1.0]);
}

#[test]
fn memory_is_not_used_again_before_its_tensor_is_gone() {
    const LEN: usize = 7 << 18;
    let mut buffer = Buffer::new(LEN).unwrap();
    buffer.as_mut_slice().iter_mut().enumerate().for_each(|(i, value)| *value = i as f32);
    let tensor = buffer.into_tensor(&[7, 1 << 18]).unwrap();
    let place = tensor.data_ptr();
    let view = tensor.select(0, 6);
    drop(tensor);
    let other = Buffer::new(LEN).unwrap();
    assert_ne!(other.as_slice().as_ptr().cast(), place.cast_const(), "a view keeps the memory");
    assert_eq!(view.double_value(&[5]), (LEN - (1 << 18) + 5) as f64);
    drop(view);
    let again = Buffer::new(LEN - 100).unwrap();
    assert_eq!(again.as_slice().len(), LEN - 100);
    assert!(message(again.into_tensor(&[LEN as i64 + 1])).contains("a tensor of shape"));
    assert!(message(Buffer::new(10).unwrap().into_tensor(&[-1])).contains("a tensor of shape"));
    assert!(message(Buffer::new(usize::MAX / 2)).contains("more than there is memory"));
    assert_eq!(Buffer::new(0).unwrap().into_tensor(&[0, 5]).unwrap().size(), [0, 5]);
}
