//! Times the products of a run without anything else: a lower bound for the time of a step.
//!
//! Returns: the sizes of the products that [`linear`](super::linear) computes during a run, and the
//! seconds that products of these sizes take back to back. Cost: one lock per product.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor};

use super::calibrate::both_ways;
use super::{Engine, tiles::TileSizes};
use crate::Result;

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

impl Product {
    /// Number of floating-point operations, forwards and backwards.
    pub fn operations(&self) -> f64 {
        let products = if self.of_input { 3.0 } else { 2.0 };
        2.0 * products * (self.rows * self.heads * self.input * self.output) as f64
    }
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

/// Time that `products` take back to back, with factors allocated beforehand.
///
/// # Errors
/// [`Error::Torch`](crate::Error::Torch) if memory runs out.
pub fn time_products(engine: Engine, products: &[Product]) -> Result<Duration> {
    let made = |shape: &[usize]| {
        Tensor::rand(
            shape.iter().map(|&size| size as i64).collect::<Vec<_>>(),
            (Kind::Float, Device::Cpu),
        ) - 0.5
    };
    // For each shape of weight, make the factors with the most rows; each product uses their first
    // rows.
    let mut factors = HashMap::new();
    for product in products {
        let most = factors.entry([product.heads, product.input, product.output]).or_insert(0);
        *most = product.rows.max(*most);
    }
    let factors: HashMap<_, _> = factors
        .into_iter()
        .map(|(weight, rows)| {
            let [heads, input, output] = weight;
            (weight, [made(&[rows, heads * input]), made(&weight), made(&[rows, heads * output])])
        })
        .collect();
    let started = Instant::now();
    for product in products {
        let [x, w, gradient] = &factors[&[product.heads, product.input, product.output]];
        let first = |matrix: &Tensor| matrix.f_narrow(0, 0, product.rows as i64);
        both_ways(engine, product.of_input, &first(x)?, w, &first(gradient)?)?;
    }
    Ok(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{Finish, Place, linear};

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
        assert_eq!(found[1].operations(), 2.0 * 3.0 * 70.0 * 21.0);
        assert!(time_products(Engine::Gemm, &found).unwrap() > Duration::ZERO);
    }
}
