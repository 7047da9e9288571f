//! `finish(x W + b)` and its gradients, a tile of rows at a time.
//!
//! Returns: the rows, and the gradients that are needed. Input: matrices of matching sizes. Idea:
//! each task takes a tile of rows through product and epilogue, backwards through the epilogue and
//! both products, while they are in its second-level cache; so the finished rows are written once
//! and the unfinished gradient never leaves the cache. Tasks share only the sums over all rows, the
//! gradients of `W` and `b`: those are added up in groups of tiles, then over the groups in order.
//! Tiles and groups depend only on the number of rows, so no result depends on the number of
//! threads. Cost: the products, one read of `x` and one write of the rows; backwards two reads of
//! the rows' size, one of `x`'s. (One product over all rows, split over threads by the gemm crate
//! itself, ran at 176 GFLOP/s forwards and 137 for the gradient of `W`, while tiles run at 195 and
//! 173, with two threads whose peak is 231.)

use std::cell::RefCell;

use gsplit_kernels::{MatrixView, PackedFactor, add_rows, product_bf16};
use rayon::prelude::*;

use super::{Engine, Finish};
use crate::Result;
use crate::autograd::{Buffer, gemm};

/// Maximum rows of a tile: with more, the unfinished gradient leaves the second-level cache between
/// epilogue and products.
const TILE: usize = 384;
/// Minimum rows of a group.
const LEAST: usize = 64;
/// Rows of tiles are multiples of this, the height of AMX tiles.
const ROWS: usize = 32;
/// Maximum number of groups of tiles: each holds a gradient of `W`. Equal sizes let threads end
/// together.
const GROUPS: usize = 16;
/// Maximum number of values of all groups' gradients of `W`.
const GROUP_VALUES: usize = 1 << 24;

/// The sizes of `x W`. Input rows have `heads` parts of `input` values, output rows of `output`;
/// `W` has a matrix per head.
#[derive(Clone, Copy, Debug)]
pub struct TileSizes {
    pub rows: usize,
    pub heads: usize,
    pub input: usize,
    pub output: usize,
}

impl TileSizes {
    fn tile(&self) -> usize {
        self.group_rows().div_ceil(self.group()).next_multiple_of(ROWS)
    }

    /// Number of tiles of a group.
    fn group(&self) -> usize {
        self.group_rows().div_ceil(TILE)
    }

    fn group_rows(&self) -> usize {
        let groups = (GROUP_VALUES / self.num_weights().max(1)).clamp(1, GROUPS);
        self.rows.div_ceil(groups).max(LEAST)
    }

    /// Number of values of `W`.
    fn num_weights(&self) -> usize {
        self.heads * self.input * self.output
    }
}

/// A matrix stored row after row.
fn matrix(values: &[f32], rows: usize, columns: usize) -> MatrixView<'_> {
    MatrixView { values, rows, columns, row_stride: columns, column_stride: 1 }
}

/// The transpose of a matrix.
fn transposed(matrix: MatrixView<'_>) -> MatrixView<'_> {
    let MatrixView { values, rows, columns, row_stride, column_stride } = matrix;
    MatrixView {
        values,
        rows: columns,
        columns: rows,
        row_stride: column_stride,
        column_stride: row_stride,
    }
}

/// Part `head` of `heads` equal parts of each of `rows` rows.
fn part(values: &[f32], head: usize, heads: usize, rows: usize) -> MatrixView<'_> {
    let row_stride = values.len().checked_div(rows).unwrap_or(0);
    let columns = row_stride / heads;
    MatrixView {
        values: &values[(head * columns).min(values.len())..],
        rows,
        columns,
        row_stride,
        column_stride: 1,
    }
}

/// A product on the calling thread: `out = a × b`, or `out += a × b` with `add`.
type Multiply = fn(out: &mut [f32], add: bool, a: MatrixView<'_>, b: MatrixView<'_>);

fn multiply(engine: Engine) -> Multiply {
    match engine {
        Engine::Bf16 => product_bf16,
        Engine::GemmOfRounded => gemm_of_rounded,
        Engine::Gemm | Engine::Torch | Engine::TorchOfRounded => gemm,
    }
}

/// The right factor of all tiles' products, in the order in which the engine reads it. (Otherwise
/// each tile would pack it again.)
enum RightFactor {
    /// Values, row after row.
    Values {
        values: Buffer,
        rows: usize,
        columns: usize,
        multiply: Multiply,
    },
    Packed(PackedFactor),
}

impl RightFactor {
    fn of(engine: Engine, factor: MatrixView<'_>) -> Result<Self> {
        if engine == Engine::Bf16 {
            return Ok(Self::Packed(PackedFactor::new(factor)));
        }
        let MatrixView { rows, columns, row_stride, column_stride, .. } = factor;
        let mut values = Buffer::new(rows * columns)?;
        values.as_mut_slice().par_chunks_mut(columns.max(1)).enumerate().for_each(|(row, out)| {
            let from = factor.values[row * row_stride..].iter().step_by(column_stride);
            out.iter_mut().zip(from).for_each(|(out, &value)| *out = value);
        });
        Ok(Self::Values { values, rows, columns, multiply: multiply(engine) })
    }

    /// Computes `out = a × self` on the calling thread.
    fn product(&self, out: &mut [f32], a: MatrixView<'_>) {
        match self {
            Self::Values { values, rows, columns, multiply } => {
                multiply(out, false, a, matrix(values.as_slice(), *rows, *columns));
            }
            Self::Packed(factor) => factor.product(out, a),
        }
    }
}

/// The right factors of all tiles' products, one for each head.
struct RightFactors {
    heads: Vec<RightFactor>,
    /// Width of a head's part of the products' rows.
    columns: usize,
}

impl RightFactors {
    fn of<'a>(
        engine: Engine,
        columns: usize,
        heads: impl Iterator<Item = MatrixView<'a>>,
    ) -> Result<Self> {
        Ok(Self {
            heads: heads.map(|factor| RightFactor::of(engine, factor)).collect::<Result<_>>()?,
            columns,
        })
    }

    /// Sets each head's part of `rows` rows of `out` to the product of its part of `a` and its
    /// factor.
    fn products(&self, out: &mut [f32], a: &[f32], rows: usize) -> Result<()> {
        if let [factor] = &self.heads[..] {
            factor.product(out, part(a, 0, 1, rows));
            return Ok(());
        }
        let mut product = Buffer::new(rows * self.columns)?;
        for (head, factor) in self.heads.iter().enumerate() {
            factor.product(product.as_mut_slice(), part(a, head, self.heads.len(), rows));
            let parts = out.chunks_mut(self.columns.max(1)).skip(head).step_by(self.heads.len());
            for (out, row) in parts.zip(product.as_slice().chunks(self.columns.max(1))) {
                out.copy_from_slice(row);
            }
        }
        Ok(())
    }
}

/// Like [`product_bf16`], without bf16 instructions: f32 holds the products of rounded factors
/// exactly.
fn gemm_of_rounded(out: &mut [f32], add: bool, a: MatrixView<'_>, b: MatrixView<'_>) {
    thread_local! {
        static ROUNDED: RefCell<[Vec<f32>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
    }
    ROUNDED.with_borrow_mut(|[left, right]| {
        let [a, b] = [(a, left), (b, right)].map(|(matrix, rounded)| {
            rounded.clear();
            rounded.extend(matrix.values.iter().map(|&value| rounded_to_bf16(value)));
            MatrixView { values: rounded, ..matrix }
        });
        gemm(out, add, a, b);
    });
}

/// Rounds `value` to the nearest bf16, ties to even. (Without branches, so that a loop over it is
/// vectorised.)
#[inline(always)]
fn rounded_to_bf16(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) & 0xFFFF_0000;
    f32::from_bits(if value.is_nan() { bits } else { rounded })
}

/// The part of `values`, rows of `width` values, that belongs to tile `index`.
fn tile_of(values: &[f32], index: usize, tile: usize, width: usize) -> &[f32] {
    let start = index * tile * width;
    &values[start..values.len().min(start + tile * width)]
}

/// The matrix in `w` of each head.
fn of_heads(
    w: &[f32],
    TileSizes { heads, input, output, .. }: TileSizes,
) -> impl Iterator<Item = MatrixView<'_>> {
    (0..heads).map(move |head| matrix(&w[head * input * output..][..input * output], input, output))
}

/// Sets `out`, `[rows, heads · output]`, to the finished product of `x`, `[rows, heads · input]`,
/// and `w`, `[heads, input, output]`.
pub fn forward(
    engine: Engine,
    sizes: TileSizes,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    finish: &Finish,
    out: &mut [f32],
) -> Result<()> {
    let [input, output] = [sizes.input, sizes.output].map(|width| sizes.heads * width);
    let (tile, epilogue) = (sizes.tile(), finish.epilogue(bias)?);
    let w = RightFactors::of(engine, sizes.output, of_heads(w, sizes))?;
    out.par_chunks_mut((tile * output).max(1)).enumerate().try_for_each(|(index, out)| {
        w.products(out, tile_of(x, index, tile, input), out.len() / output)?;
        Ok(epilogue.apply_part(index * tile, out, output)?)
    })
}

/// Input and output of [`backward`].
pub struct TilesBackward<'a> {
    pub x: &'a [f32],
    pub w: &'a [f32],
    /// The finished rows and their gradient, both `[rows, heads · output]`.
    pub y: &'a [f32],
    pub gradient: &'a [f32],
    pub finish: &'a Finish,
    /// Gradients of `x` and `w`.
    pub of_input: Option<&'a mut [f32]>,
    pub of_weight: Option<&'a mut [f32]>,
    /// Gradient of the bias.
    pub of_bias: Option<&'a mut [f32]>,
}

/// Computes the gradients that `to` requests.
pub fn backward(engine: Engine, sizes: TileSizes, mut to: TilesBackward<'_>) -> Result<()> {
    let TileSizes { rows, heads, .. } = sizes;
    let [input, output] = [sizes.input, sizes.output].map(|width| heads * width);
    let (tile, group, multiply) = (sizes.tile(), sizes.group(), multiply(engine));
    let TilesBackward { x, w, y, gradient, finish, .. } = to;
    let (with_weight, with_bias) = (to.of_weight.is_some(), to.of_bias.is_some());
    let w_transposed = || RightFactors::of(engine, sizes.input, of_heads(w, sizes).map(transposed));
    let w_transposed = to.of_input.is_some().then(w_transposed).transpose()?;
    let mut given: Vec<Option<&mut [f32]>> = match to.of_input.take() {
        Some(of_input) => of_input.chunks_mut((group * tile * input).max(1)).map(Some).collect(),
        None => Vec::new(),
    };
    given.resize_with(rows.div_ceil(group * tile), || None);
    let sums = given.into_par_iter().enumerate().map(|(index, of_input)| {
        let mut weight = Buffer::new(if with_weight { sizes.num_weights() } else { 0 })?;
        let mut bias = vec![0f32; if with_bias { output } else { 0 }];
        let mut unfinished = Buffer::new(tile * output)?;
        let mut of_input = of_input.map(|rows| rows.chunks_mut((tile * input).max(1)));
        for (at, index) in (index * group..rows.div_ceil(tile).min((index + 1) * group)).enumerate()
        {
            let [x, y, g] = [(x, input), (y, output), (gradient, output)]
                .map(|(values, width)| tile_of(values, index, tile, width));
            let rows = y.len() / output.max(1);
            let g = if finish.is_none() {
                add_rows(g, &mut bias);
                g
            } else {
                let unfinished = &mut unfinished.as_mut_slice()[..y.len()];
                finish.epilogue(None)?.backward_part(
                    index * tile,
                    [y, g],
                    output,
                    unfinished,
                    &mut bias,
                )?;
                &*unfinished
            };
            // There are no chunks if the gradient of the weights is not needed.
            let weights = weight.as_mut_slice().chunks_mut((sizes.input * sizes.output).max(1));
            for (head, weight) in weights.enumerate() {
                multiply(
                    weight,
                    at > 0,
                    transposed(part(x, head, heads, rows)),
                    part(g, head, heads, rows),
                );
            }
            if let Some((of_input, w)) =
                of_input.as_mut().and_then(Iterator::next).zip(w_transposed.as_ref())
            {
                w.products(of_input, g, rows)?;
            }
        }
        Ok((weight, bias))
    });
    let sums = sums.collect::<Result<Vec<_>>>()?;
    if let Some(out) = to.of_weight {
        add_up(sums.iter().map(|(weight, _)| weight.as_slice()), out);
    }
    if let Some(out) = to.of_bias {
        add_up(sums.iter().map(|(_, bias)| bias.as_slice()), out);
    }
    Ok(())
}

/// Sets `out` to the sum of `parts`, in their order.
fn add_up<'a>(parts: impl Iterator<Item = &'a [f32]>, out: &mut [f32]) {
    const VALUES: usize = 1 << 13;
    let parts: Vec<&[f32]> = parts.collect();
    out.par_chunks_mut(VALUES).enumerate().for_each(|(piece, out)| {
        out.fill(0.0);
        for part in &parts {
            add_rows(&part[piece * VALUES..][..out.len()], out);
        }
    });
}
