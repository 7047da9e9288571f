//! Chooses the engine that computes dense products fastest on this machine: timed once, then read
//! from a file.
//!
//! Returns: the engine, and the GFLOP/s of each. Idea: each engine in turn computes the products of
//! a mini-batch, forwards and backwards. The fastest of a few rounds counts, since other work only
//! slows them. The first engine is used unless another is clearly faster. Two runs with different
//! engines differ in the last bits of their sums, so the first choice is kept
//! (`$XDG_CACHE_HOME/gsplit/products`), for the processor and this version, whatever the number of
//! threads. If no file can be kept, and in builds without optimisation, nothing is timed. Cost: a
//! second or two, once.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use gsplit_kernels::{cache_folder, processor};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use super::{Engine, Finish, linear, set_torch_threads};
use crate::config::Dtype;
use crate::operator::Place;

/// Rows, input width and output width of each layer's product, from the features upwards: about 0.6
/// of the rows of a mini-batch of 1024 seeds. (Fewer would mislead: torch computes an eighth of
/// these rows a quarter faster than these on a Zen 3, `gemm` a tenth slower.)
const SHAPES: [[i64; 3]; 3] = [[65_536, 128, 256], [8192, 512, 256], [1024, 512, 47]];
const ROUNDS: usize = 2;
/// How much faster another engine must be than the first.
const CLEARLY: f64 = 1.1;

/// The engine chosen for one type of factors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Calibration {
    /// Type of the factors.
    pub dtype: Dtype,
    /// The processor, as the system names it.
    pub processor: String,
    /// The chosen engine.
    pub engine: Engine,
    /// Rate of each engine, with all threads at that time; empty if none was timed.
    pub gflops: Vec<(Engine, f64)>,
}

/// The calibration of this machine for factors of type `dtype`: kept by an earlier run, or made
/// now.
pub fn calibrated(dtype: Dtype) -> Calibration {
    match cache_folder() {
        Some(folder) if !cfg!(debug_assertions) => {
            kept(&folder.join("products"), dtype, || timed(dtype, SHAPES))
        }
        _ => untimed(dtype),
    }
}

fn untimed(dtype: Dtype) -> Calibration {
    Calibration {
        dtype,
        processor: processor(),
        engine: Engine::candidates(dtype)[0],
        gflops: Vec::new(),
    }
}

/// The calibration in `folder` for this processor, or the result of `make` if it can be saved
/// there.
fn kept(folder: &Path, dtype: Dtype, make: impl FnOnce() -> Calibration) -> Calibration {
    let named = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let processor: String = processor().chars().map(named).collect();
    let path = folder.join(format!("{processor}-{}-{dtype:?}.json", env!("CARGO_PKG_VERSION")));
    let read = || -> Option<Calibration> {
        let found: Calibration =
            serde_json::from_str(&gsplit_store::read_text(&path).ok()?).ok()?;
        Engine::candidates(dtype).contains(&found.engine).then_some(found)
    };
    if let Some(found) = read() {
        return found;
    }
    let keep = || -> std::io::Result<Calibration> {
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let made = make();
        file.write_all(&serde_json::to_vec(&made)?)?;
        // Of several processes the first decides for all; a file that cannot be read is replaced.
        match file.persist_noclobber(&path) {
            Ok(_) => Ok(made),
            Err(taken) => match read() {
                Some(found) => Ok(found),
                None => taken.file.persist(&path).map(|_| made).map_err(|error| error.error),
            },
        }
    };
    keep().unwrap_or_else(|_| untimed(dtype))
}

/// Times products of these shapes.
fn timed(dtype: Dtype, shapes: [[i64; 3]; 3]) -> Calibration {
    let engines = Engine::candidates(dtype);
    let threads = tch::get_num_threads();
    set_torch_threads(rayon::current_num_threads());
    let mut seconds = vec![f64::INFINITY; engines.len()];
    let matrix = |rows, columns| Tensor::rand([rows, columns], (Kind::Float, Device::Cpu)) - 0.5;
    let factors = shapes.map(|[rows, input, output]| {
        [matrix(rows, input), matrix(input, output), matrix(rows, output)]
    });
    // The first round warms up.
    for round in 0..=ROUNDS {
        for (&engine, best) in engines.iter().zip(&mut seconds) {
            let started = Instant::now();
            let done = factors
                .iter()
                .zip(0..)
                .all(|([x, w, g], layer)| both_ways(engine, layer > 0, x, w, g).is_ok());
            if done && round > 0 {
                *best = best.min(started.elapsed().as_secs_f64());
            }
        }
    }
    set_torch_threads(threads as usize);
    // Forwards one product, backwards two, except one for features.
    let products =
        shapes.iter().zip([2, 3, 3]).map(|(shape, count)| count * shape.iter().product::<i64>());
    let operations = 2.0 * products.sum::<i64>() as f64;
    let gflops: Vec<(Engine, f64)> = engines
        .into_iter()
        .zip(seconds)
        .map(|(engine, seconds)| (engine, operations / seconds / 1e9))
        .collect();
    let (first, rate) = gflops[0];
    let best = gflops
        .iter()
        .filter(|(_, other)| *other > CLEARLY * rate)
        .max_by(|a, b| a.1.total_cmp(&b.1));
    Calibration {
        dtype,
        processor: processor(),
        engine: best.map_or(first, |&(engine, _)| engine),
        gflops,
    }
}

/// Computes the product of `x` and `w`, from the `gradient` of the result that of `w`, and with
/// `of_x` that of `x`.
///
/// # Errors
/// Errors of [`linear`].
pub fn both_ways(
    engine: Engine,
    of_x: bool,
    x: &Tensor,
    w: &Tensor,
    gradient: &Tensor,
) -> crate::Result<()> {
    let (x, w) = (x.detach().set_requires_grad(of_x), w.detach().set_requires_grad(true));
    let y = linear(&Place::Host(engine), &x, &w, None, Finish::default())?;
    crate::autograd::backward(&y, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_of_this_machine_is_timed() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let found =
                timed(dtype, SHAPES.map(|[rows, input, output]| [rows / 64, input, output]));
            let engines: Vec<Engine> = found.gflops.iter().map(|(engine, _)| *engine).collect();
            assert_eq!(engines, Engine::candidates(dtype));
            assert!(
                found.gflops.iter().all(|(_, rate)| rate.is_finite() && *rate > 0.0),
                "{found:?}"
            );
            assert!(engines.contains(&found.engine));
        }
    }

    #[test]
    fn the_first_choice_stays() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let [first, second] = [Engine::Gemm, Engine::Torch]
            .map(|engine| Calibration { engine, ..untimed(Dtype::F32) });
        assert_eq!(kept(&folder, Dtype::F32, || first.clone()).engine, Engine::Gemm);
        assert_eq!(kept(&folder, Dtype::F32, || second.clone()).engine, Engine::Gemm);
        // A file that another process saved meanwhile wins; one that is damaged, or for another
        // processor, is replaced.
        let path = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        fs::remove_file(&path).unwrap();
        let meanwhile = || {
            fs::write(&path, serde_json::to_vec(&first).unwrap()).unwrap();
            second.clone()
        };
        assert_eq!(kept(&folder, Dtype::F32, meanwhile).engine, Engine::Gemm);
        for damaged in ["{", r#"{"dtype":"f32","processor":"x","engine":"bf16","gflops":[]}"#] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(kept(&folder, Dtype::F32, || second.clone()).engine, Engine::Torch);
            assert_eq!(kept(&folder, Dtype::F32, || first.clone()).engine, Engine::Torch);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        // If nothing can be kept, nothing is timed.
        let blocked = folder.join("file");
        fs::write(&blocked, "").unwrap();
        assert!(kept(&blocked, Dtype::F32, || unreachable!()).gflops.is_empty());
    }
}
