//! `y = finish(x W + b)`, as a node of torch's graph.
//!
//! Backwards the gradient of the product is computed from `y` and the gradient of `y`; two products
//! then give those of `W` and `x`, the latter only if it is needed (never for features). torch
//! computes on the host or a GPU with whole matrices, the other engines in tiles (`tiles.rs`);
//! [`Engine`] chooses on the host.
//!
//! On a GPU that computes in bf16 or f16 all factors are rounded to it, the sums of a product are
//! f32, and so are the gradients of `W` and `b`; the gradient of `x` has the type of `x`. Values
//! kept for backward are kept rounded. (For the gradient of `x` cuBLAS may add up the parts of a
//! long sum in the rounded type.)

use tch::{Kind, Tensor};

use super::finish::{biased, column_sums};
use super::tiles::{self, TileSizes, TilesBackward};
use super::{Engine, Finish, filled_with_room, floor, mismatch, shape};
use crate::Result;
use crate::autograd::{Buffer, Gradient, attach, values};
use crate::operator::Place;

/// `[rows, out]`, f32 unless `finish` rounds them, from `input` `[rows, in]`, `weight` `[in, out]`
/// and `bias` `[out]`. `input` may be of the type that `place` computes in. With a `weight`
/// `[heads, in / heads, out / heads]` each head computes its part of a row from its part of the
/// input row.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if the shapes do not match,
/// [`Error::Kernel`](crate::Error::Kernel) if bias or dropout do not.
pub fn linear(
    place: &Place,
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    finish: Finish,
) -> Result<Tensor> {
    let ((rows, width), shape) = (shape("input", input)?, weight.size());
    let sizes = match shape.iter().map(|&size| size as usize).collect::<Vec<_>>()[..] {
        [input, output] => TileSizes { rows, heads: 1, input, output },
        [heads, input, output] => TileSizes { rows, heads, input, output },
        _ => {
            return Err(mismatch(format!(
                "weight: expected one matrix or one per head, got a tensor of shape {shape:?}"
            )));
        }
    };
    if width != sizes.heads * sizes.input {
        return Err(mismatch(format!(
            "a product of matrices of shapes [{rows}, {width}] and {shape:?}"
        )));
    }
    let fits = |tensor: &Tensor| [Kind::Float, place.row_kind()].contains(&tensor.kind());
    if let Some(other) = [input, weight].into_iter().find(|tensor| !fits(tensor)) {
        return Err(mismatch(format!("a product of f32 matrices, got one of {:?}", other.kind())));
    }
    if sizes.heads > 1 && !matches!(place, Place::Host(engine) if engine.takes_tiles()) {
        let of_head = |head: usize| {
            let input = input.f_narrow(1, (head * sizes.input) as i64, sizes.input as i64)?;
            linear(place, &input, &weight.f_select(0, head as i64)?, None, Finish::default())
        };
        let parts = (0..sizes.heads).map(of_head).collect::<Result<Vec<_>>>()?;
        return biased(place, &Tensor::f_cat(&parts, 1)?, bias, finish);
    }
    let (x, w) = (
        factor(place, &input.detach().contiguous())?,
        factor(place, &weight.detach().contiguous())?,
    );
    floor::note(sizes, input, weight);
    let result = match place {
        Place::Host(engine) if engine.takes_tiles() => {
            let bias = bias.map(|bias| bias.detach().contiguous());
            let bias = bias.as_ref().map(values).transpose()?;
            filled_with_room([rows, sizes.heads * sizes.output], finish.room, |out| {
                tiles::forward(*engine, sizes, values(&x)?, values(&w)?, bias, &finish, out)
            })?
        }
        _ => finish.apply(place, tch::no_grad(|| product(&x, &w, Kind::Float))?, bias)?,
    };
    let inputs: Vec<&Tensor> = [input, weight].into_iter().chain(bias).collect();
    let (kept, place, kind) = (result.shallow_clone(), place.clone(), input.kind());
    attach(&inputs, &[&x, &w, &kept], result, move |gradient| match &place {
        Place::Host(engine) if engine.takes_tiles() => in_tiles(*engine, sizes, &finish, &gradient),
        place => in_whole(place, &finish, kind, &gradient),
    })
}

/// `rows` times `weight`, in the type in which rows pass from operator to operator at `place`.
///
/// # Errors
/// Errors of [`linear`].
pub fn projected(place: &Place, rows: &Tensor, weight: &Tensor) -> Result<Tensor> {
    linear(place, rows, weight, None, Finish::rounding(place))
}

/// `tensor` as a factor of products at `place`. (Engines that take tiles round it there.)
fn factor(place: &Place, tensor: &Tensor) -> Result<Tensor> {
    match place {
        Place::Host(Engine::TorchOfRounded) => {
            Ok(tensor.f_totype(Kind::BFloat16)?.f_totype(Kind::Float)?)
        }
        _ => Ok(tensor.f_totype(place.row_kind())?),
    }
}

/// a × b by torch, summed in f32, returned in type `out`.
fn product(a: &Tensor, b: &Tensor, out: Kind) -> Result<Tensor> {
    if a.kind() == Kind::Float {
        return Ok(a.f_matmul(b)?);
    }
    if a.numel() == 0 || b.numel() == 0 {
        return Ok(Tensor::f_zeros([a.size()[0], b.size()[1]], (out, a.device()))?);
    }
    match (a.device().is_cuda(), out) {
        (true, Kind::Float) => Ok(a.f_mm_dtype(b, Kind::Float)?),
        (true, _) => Ok(a.f_mm(b)?),
        // torch has no such product on the host, but f32 holds the products of rounded factors
        // exactly.
        (false, _) => {
            Ok(a.f_totype(Kind::Float)?.f_matmul(&b.f_totype(Kind::Float)?)?.f_totype(out)?)
        }
    }
}

/// The gradients of input, weight and bias that are needed, computed in tiles.
fn in_tiles(
    engine: Engine,
    sizes: TileSizes,
    finish: &Finish,
    gradient: &Gradient,
) -> Result<Vec<Option<Tensor>>> {
    let [x, w, y] = gradient.saved()?;
    let given = gradient.output.contiguous();
    let shapes = [x.size(), w.size(), vec![(sizes.heads * sizes.output) as i64]];
    let room = |(shape, &needed): (&Vec<i64>, &bool)| {
        needed.then(|| Buffer::new(shape.iter().product::<i64>() as usize)).transpose()
    };
    let mut found = shapes.iter().zip(&gradient.needed).map(room).collect::<Result<Vec<_>>>()?;
    found.resize_with(shapes.len(), || None);
    let mut places = found.iter_mut().map(|buffer| buffer.as_mut().map(Buffer::as_mut_slice));
    let mut next = || places.next().flatten();
    let to = TilesBackward {
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
    let tensor = |(buffer, shape): (Option<Buffer>, Vec<i64>)| {
        buffer.map(|buffer| buffer.into_tensor(&shape)).transpose()
    };
    found.into_iter().zip(shapes).take(gradient.needed.len()).map(tensor).collect()
}

/// Like [`in_tiles`], by torch; the gradient of the input has its type, `kind`.
fn in_whole(
    place: &Place,
    finish: &Finish,
    kind: Kind,
    gradient: &Gradient,
) -> Result<Vec<Option<Tensor>>> {
    let [x, w, y] = gradient.saved()?;
    let of_product = match finish.passes_gradients() {
        true => gradient.output.contiguous(),
        false => finish.backward_as(place, y, &gradient.output, true)?,
    };
    tch::no_grad(|| {
        let given = factor(place, &of_product)?;
        let needed = gradient.needed.iter().enumerate();
        needed
            .map(|(input, needed)| {
                let found = || match input {
                    0 => product(&given, &w.tr(), kind),
                    1 => product(&x.tr(), &given, Kind::Float),
                    _ => column_sums(place, &of_product),
                };
                needed.then(found).transpose()
            })
            .collect()
    })
}
