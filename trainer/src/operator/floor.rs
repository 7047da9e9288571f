//! Records the sizes of the products that [`linear`](super::linear) computes during a run, for a
//! lower bound of the time of a step. Cost: one lock per product.

use std::sync::{Mutex, PoisonError};

use tch::Tensor;

use super::tiles::TileSizes;

static RECORD: Mutex<Option<Vec<Product>>> = Mutex::new(None);

/// A product `x W` and its gradients, separate for each head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// Rows of `x`.
    pub rows: usize,
    /// Number of heads.
    pub heads: usize,
    /// Width of a head's part of a row of `x`.
    pub input: usize,
    /// Width of a head's part of a row of the result.
    pub output: usize,
    /// Whether the gradient of `x` was needed, in addition to that of `W`.
    pub of_input: bool,
}

/// Notes a product, if products are being recorded.
pub(super) fn note(TileSizes { rows, heads, input, output }: TileSizes, x: &Tensor, w: &Tensor) {
    if w.requires_grad() {
        let product = Product { rows, heads, input, output, of_input: x.requires_grad() };
        RECORD
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter_mut()
            .for_each(|record| record.push(product));
    }
}

/// The products computed for training since the last call, by any thread of the process, in order.
/// The first call returns none and starts the record.
pub fn recorded_products() -> Vec<Product> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner).replace(Vec::new()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::operator::{Engine, Finish, Place, linear};

    #[test]
    fn products_for_training_are_recorded_and_can_be_timed() {
        let place = Place::Host(Engine::Gemm);
        let matrix = |rows, columns| Tensor::rand([rows, columns], (Kind::Float, Device::Cpu));
        let (x, w) = (matrix(70, 7), matrix(7, 3).set_requires_grad(true));
        let product =
            |x: &Tensor, w: &Tensor| linear(&place, x, w, None, Finish::default()).unwrap();
        recorded_products();
        for (x, w) in [(&x, &w), (&x, &w.detach()), (&x.copy().set_requires_grad(true), &w)] {
            drop(product(x, w));
        }
        let found = recorded_products();
        // Other tests multiply at the same time.
        let found: Vec<Product> =
            found.into_iter().filter(|product| (product.rows, product.input) == (70, 7)).collect();
        let of = |of_input| Product { rows: 70, heads: 1, input: 7, output: 3, of_input };
        assert_eq!(found, [of(false), of(true)]);
    }
}
