//! `y = finish(x W + b)`, as a node of torch's graph.
//!
//! Backwards the gradient of the product is made from `y` and the gradient of `y`; two products then give those of `W` and
//! `x`, the latter only if it is asked for (never for features). By torch, on the host or a GPU, with whole matrices, by the
//! other engines in tiles (`tiles.rs`).

use tch::{Kind, Tensor};

use super::finish::column_sums;
use super::tiles::{self, Backward, Sizes};
use super::{Engine, Finish, filled, mismatch, shape};
use crate::Result;
use crate::autograd::{Buffer, Gradient, attach, values};
use crate::place::Place;

/// f32 `[rows, out]` from `input` `[rows, in]`, `weight` `[in, out]` and `bias` `[out]`.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if the shapes do not fit, [`Error::Kernel`](crate::Error::Kernel) if bias or
/// dropout do not.
pub fn linear(place: &Place, input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, finish: Finish) -> Result<Tensor> {
    let (x, w) = (input.detach().contiguous(), weight.detach().contiguous());
    let ((rows, width), (inner, output)) = (shape("input", &x)?, shape("weight", &w)?);
    if width != inner {
        return Err(mismatch(format!("a product of matrices of shapes [{rows}, {width}] and [{inner}, {output}]")));
    }
    if let Some(other) = [&x, &w].into_iter().find(|tensor| tensor.kind() != Kind::Float) {
        return Err(mismatch(format!("a product of f32 matrices, got one of {:?}", other.kind())));
    }
    let sizes = Sizes { rows, input: width, output };
    let result = match place {
        Place::Host(engine) if *engine != Engine::Torch => {
            let bias = bias.map(|bias| bias.detach().contiguous());
            let bias = bias.as_ref().map(values).transpose()?;
            filled(&[rows, output], |out| tiles::forward(*engine, sizes, values(&x)?, values(&w)?, bias, &finish, out))?
        }
        _ => finish.apply(place, tch::no_grad(|| x.f_matmul(&w))?, bias)?,
    };
    let inputs: Vec<&Tensor> = [input, weight].into_iter().chain(bias).collect();
    let (kept, place) = (result.shallow_clone(), place.clone());
    attach(&inputs, &[&x, &w, &kept], result, move |gradient| match &place {
        Place::Host(engine) if *engine != Engine::Torch => in_tiles(*engine, sizes, &finish, &gradient),
        place => in_whole(place, &finish, &gradient),
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
fn in_whole(place: &Place, finish: &Finish, gradient: &Gradient) -> Result<Vec<Option<Tensor>>> {
    let [x, w, y] = gradient.saved()?;
    let of_product = finish.backward(place, y, &gradient.output)?;
    tch::no_grad(|| {
        let needed = gradient.needed.iter().enumerate();
        needed
            .map(|(input, needed)| {
                let found = || match input {
                    0 => Ok(of_product.f_matmul(&w.tr())?),
                    1 => Ok(x.tr().f_matmul(&of_product)?),
                    _ => column_sums(place, &of_product),
                };
                needed.then(found).transpose()
            })
            .collect()
    })
}
