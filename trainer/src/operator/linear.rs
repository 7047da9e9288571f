//! `y = finish(x W + b)`, in one product and one pass over its rows.
//!
//! Backwards the gradient of the product is made in one pass from `y` and the gradient of `y`; then two products give those
//! of `W` and `x`, the latter only if it is asked for (never for features). Source of the product: `product.rs`.

use gsplit_kernels::column_sums;
use tch::Tensor;

use super::product::{plain, product, transposed};
use super::{Engine, Finish, filled, shape};
use crate::Result;
use crate::autograd::{attach, values};

/// f32 `[rows, out]` from `input` `[rows, in]`, `weight` `[in, out]` and `bias` `[out]`.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if the shapes do not fit, [`Error::Kernel`](crate::Error::Kernel) if bias or
/// dropout do not.
pub fn linear(
    engine: Engine,
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    finish: Finish,
) -> Result<Tensor> {
    let (x, w) = (input.detach().contiguous(), weight.detach().contiguous());
    let columns = shape("weight", &w)?.1;
    let output = {
        let bias = bias.map(|bias| bias.detach().contiguous());
        let bias = bias.as_ref().map(values).transpose()?;
        product(engine, plain(&x), plain(&w), |rows| Ok(finish.epilogue(bias).apply(rows, columns)?))?
    };
    let inputs: Vec<&Tensor> = [input, weight].into_iter().chain(bias).collect();
    let result = output.shallow_clone();
    attach(&inputs, &[&x, &w, &result], output, move |gradient| {
        let [x, w, y] = gradient.saved()?;
        let of_product = finish.backward(y, &gradient.output)?;
        let needed = |input: usize| gradient.needed.get(input) == Some(&true);
        let done = |_: &mut [f32]| Ok(());
        let of_input = || product(engine, plain(&of_product), transposed(w), done);
        let of_weight = || product(engine, transposed(x), plain(&of_product), done);
        let of_bias = || filled(&[columns], |out| Ok(column_sums(values(&of_product)?, out)?));
        let mut gradients = vec![needed(0).then(of_input).transpose()?, needed(1).then(of_weight).transpose()?];
        if gradient.needed.len() > 2 {
            gradients.push(needed(2).then(of_bias).transpose()?);
        }
        Ok(gradients)
    })
}
