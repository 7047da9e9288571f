//! `y = finish(x W + b)`, as a node of torch's graph.
//!
//! Backwards the gradient of the product is made from `y` and the gradient of `y`; two products then give those of `W` and
//! `x`, the latter only if it is asked for (never for features). By torch with whole matrices, by the
//! other engines in tiles (`tiles.rs`).

use tch::{Kind, Tensor};

use super::tiles::{self, Backward, Sizes};
use super::{Engine, Finish, filled, mismatch, shape};
use crate::Result;
use crate::autograd::{Buffer, Gradient, attach, values};

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
    let ((rows, width), (inner, output)) = (shape("input", &x)?, shape("weight", &w)?);
    if width != inner {
        return Err(mismatch(format!("a product of matrices of shapes [{rows}, {width}] and [{inner}, {output}]")));
    }
    let sizes = Sizes { rows, input: width, output };
    let result = {
        let bias = bias.map(|bias| bias.detach().contiguous());
        let bias = bias.as_ref().map(values).transpose()?;
        filled(&[rows, output], |out| match engine {
            Engine::Torch => {
                let found = tch::no_grad(|| x.f_matmul(&w))?;
                out.copy_from_slice(values(&found)?);
                Ok(finish.epilogue(bias).apply(out, output)?)
            }
            _ => tiles::forward(engine, sizes, values(&x)?, values(&w)?, bias, &finish, out),
        })?
    };
    let inputs: Vec<&Tensor> = [input, weight].into_iter().chain(bias).collect();
    let kept = result.shallow_clone();
    attach(&inputs, &[&x, &w, &kept], result, move |gradient| match engine {
        Engine::Torch => in_whole(&finish, &gradient),
        _ => in_tiles(engine, sizes, &finish, &gradient),
    })
}

/// The gradients of input, weight and bias, as far as they are needed.
fn in_tiles(engine: Engine, sizes: Sizes, finish: &Finish, gradient: &Gradient) -> Result<Vec<Option<Tensor>>> {
    let [x, w, y] = gradient.saved()?;
    let given = gradient.output.contiguous();
    let shapes = [vec![sizes.rows, sizes.input], vec![sizes.input, sizes.output], vec![sizes.output]];
    let room = |(shape, &needed): (&Vec<usize>, &bool)| needed.then(|| Buffer::new(shape.iter().product())).transpose();
    let mut found = shapes.iter().zip(&gradient.needed).map(room).collect::<Result<Vec<_>>>()?;
    found.resize_with(shapes.len(), || None);
    let mut places = found.iter_mut().map(|buffer| buffer.as_mut().map(Buffer::as_mut_slice));
    let mut next = || places.next().flatten();
    let to = Backward {
        x: values(x)?,
        w: values(w)?,
        y: values(y)?,
        gradient: values(&given)?,
        finish,
        of_input: next(),
        of_weight: next(),
        of_bias: next(),
    };
    tiles::backward(engine, sizes, to)?;
    let tensor = |(buffer, shape): (Option<Buffer>, Vec<usize>)| {
        let shape: Vec<i64> = shape.iter().map(|&dim| dim as i64).collect();
        buffer.map(|buffer| buffer.into_tensor(&shape)).transpose()
    };
    found.into_iter().zip(shapes).take(gradient.needed.len()).map(tensor).collect()
}

/// As [`in_tiles`], by torch.
fn in_whole(finish: &Finish, gradient: &Gradient) -> Result<Vec<Option<Tensor>>> {
    let [x, w, y] = gradient.saved()?;
    let of_product = finish.backward(y, &gradient.output)?;
    tch::no_grad(|| {
        let needed = gradient.needed.iter().enumerate();
        needed
            .map(|(input, needed)| {
                let found = || match input {
                    0 => of_product.f_matmul(&w.tr()),
                    1 => x.tr().f_matmul(&of_product),
                    _ => of_product.f_sum_dim_intlist([0i64].as_slice(), false, Kind::Float),
                };
                Ok(needed.then(found).transpose()?)
            })
            .collect()
    })
}
