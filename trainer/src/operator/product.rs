//! Dense products, by the one of two engines that suits this machine.
//!
//! The `gemm` crate uses AVX-512 where the processor has it; torch's MKL does so on Intel's processors only, and takes
//! AVX2 elsewhere. Without AVX-512, or with neither, torch's own is chosen. `GSPLIT_GEMM=torch` or `GSPLIT_GEMM=gemm`
//! chooses by hand, for measurements.

use std::sync::OnceLock;

use tch::{Kind, Tensor};

use super::filled;
use crate::Result;
use crate::autograd::{Matrix, gemm, values};

/// What computes dense products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The `gemm` crate.
    Gemm,
    /// torch's own.
    Torch,
}

/// The engine of this process.
pub fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    *ENGINE.get_or_init(|| match std::env::var("GSPLIT_GEMM").as_deref() {
        Ok("torch") => Engine::Torch,
        Ok("gemm") => Engine::Gemm,
        _ => detect(),
    })
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Engine {
    if std::arch::is_x86_feature_detected!("avx512f") { Engine::Gemm } else { Engine::Torch }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Engine {
    Engine::Torch
}

/// A matrix operand, dense and on the host.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    pub tensor: &'a Tensor,
    /// Whether its transpose is meant.
    pub transposed: bool,
}

/// A matrix as it is.
pub fn plain(tensor: &Tensor) -> Operand<'_> {
    Operand { tensor, transposed: false }
}

/// The transpose of a matrix.
pub fn transposed(tensor: &Tensor) -> Operand<'_> {
    Operand { tensor, transposed: true }
}

impl Operand<'_> {
    fn matrix(&self) -> Result<Matrix<'_>> {
        let (rows, columns) = super::shape("operand of a product", self.tensor)?;
        let plain =
            Matrix { values: values(self.tensor)?, rows, columns, row_stride: columns.max(1), column_stride: 1 };
        Ok(match self.transposed {
            false => plain,
            true => Matrix { rows: columns, columns: rows, row_stride: 1, column_stride: columns.max(1), ..plain },
        })
    }

    fn view(&self) -> Tensor {
        if self.transposed { self.tensor.tr() } else { self.tensor.shallow_clone() }
    }
}

/// `a × b`, finished by `finish` where its values lie. No part of torch's graph.
pub fn product(
    engine: Engine,
    a: Operand<'_>,
    b: Operand<'_>,
    finish: impl FnOnce(&mut [f32]) -> Result<()>,
) -> Result<Tensor> {
    let (left, right) = (a.matrix()?, b.matrix()?);
    if left.columns != right.rows {
        let shapes = [left, right].map(|matrix| [matrix.rows, matrix.columns]);
        return Err(super::mismatch(format!("a product of matrices of shapes {:?} and {:?}", shapes[0], shapes[1])));
    }
    filled(&[left.rows, right.columns], |out| {
        match engine {
            Engine::Gemm => gemm(out, false, left, right),
            Engine::Torch => {
                let found = tch::no_grad(|| a.view().f_matmul(&b.view()))?;
                out.copy_from_slice(values(&found.to_kind(Kind::Float).contiguous())?);
            }
        }
        finish(out)
    })
}
