//! Named parameters, initialised by counter-based draws so that every rank, and every run, starts
//! from the same bits.

use std::cell::RefCell;
use std::sync::Arc;

use gsplit_kernels::{Draws, Stream, StreamKey};
use tch::Tensor;

use super::{Embeddings, LookedUp};
use crate::Result;
use crate::operator::Place;

/// The parameters of a model, in the order in which its layers created them.
#[derive(Debug)]
pub struct Parameters {
    seed: u64,
    place: Place,
    tensors: Vec<(String, Tensor)>,
    buffers: Vec<(String, Tensor)>,
    embeddings: Option<Arc<Embeddings>>,
    looked_up: RefCell<Vec<LookedUp>>,
}

/// A view of [`Parameters`] that puts a layer's prefix before every name.
#[derive(Debug)]
pub struct Named<'a> {
    parameters: &'a mut Parameters,
    prefix: String,
    /// Whether batch norm follows, which cancels a bias.
    centred: bool,
}

impl Parameters {
    pub(super) fn new(seed: u64, place: &Place) -> Self {
        let (tensors, buffers, embeddings, looked_up) = Default::default();
        Self { seed, place: place.clone(), tensors, buffers, embeddings, looked_up }
    }

    pub(super) fn below(&mut self, prefix: String) -> Named<'_> {
        Named { parameters: self, prefix, centred: false }
    }

    /// Place of the tensors.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Names and tensors; all are f32 leaves that require gradients.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Names and tensors of everything that a checkpoint keeps: the parameters, then values learnt
    /// without gradients (running statistics). All are f32.
    pub fn state(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.iter().chain(self.buffers.iter().map(|(name, tensor)| (name.as_str(), tensor)))
    }

    /// Copies the values of `other`, which has the parameters of the same model, perhaps at another
    /// place.
    ///
    /// # Errors
    /// [`Error::Torch`](crate::Error::Torch) if the models differ.
    pub fn copy_from(&self, other: &Self) -> Result<()> {
        tch::no_grad(|| {
            self.state()
                .zip(other.state())
                .try_for_each(|((_, to), (_, from))| Ok(to.shallow_clone().f_copy_(from)?))
        })
    }

    /// Total number of trained values, without learnt rows.
    pub fn num_values(&self) -> usize {
        self.tensors.iter().map(|(_, tensor)| tensor.numel()).sum()
    }

    /// Total number of trained values.
    pub fn num_learnt(&self) -> usize {
        self.num_values() + self.embeddings().map_or(0, Embeddings::num_values)
    }

    /// Makes `embeddings` a part of these parameters, which all models of a process share.
    pub(super) fn learn_rows(&mut self, embeddings: Arc<Embeddings>) {
        self.embeddings = Some(embeddings);
    }

    /// Learnt rows of vertices without features, if there are any.
    pub fn embeddings(&self) -> Option<&Embeddings> {
        self.embeddings.as_deref()
    }

    /// Records rows of [`Parameters::embeddings`] that are about to get gradients.
    pub(crate) fn look_up(&self, rows: Vec<LookedUp>) {
        self.looked_up.borrow_mut().extend(rows);
    }

    /// The recorded rows, which are then forgotten.
    pub(crate) fn take_looked_up(&self) -> Vec<LookedUp> {
        self.looked_up.take()
    }
}

impl Named<'_> {
    /// Glorot and Bengio's uniform initialisation: `[rows, columns]` in ±sqrt(6 / (rows +
    /// columns)).
    pub fn glorot(&mut self, name: &str, shape: [usize; 2]) -> Tensor {
        let [rows, columns] = shape;
        let bound = (6.0 / (rows + columns) as f64).sqrt() as f32;
        let index = self.parameters.tensors.len() as u32;
        let key = StreamKey { step: index, ..StreamKey::new(self.parameters.seed, Stream::Init) };
        let values: Vec<f32> = (0..rows)
            .flat_map(|row| {
                let mut draws = Draws::new(&key, row as u32);
                (0..columns).map(move |_| (2.0 * draws.unit_f32() - 1.0) * bound)
            })
            .collect();
        self.add(name, Tensor::from_slice(&values).view([rows as i64, columns as i64]))
    }

    /// Bias of a layer, added to all of its rows: zeros, trained unless batch norm follows. Batch
    /// norm cancels a bias, whose gradient would then be the rounding errors of zero, which Adam
    /// makes as large as any other.
    pub fn bias(&mut self, name: &str, length: usize) -> Tensor {
        match self.centred {
            true => {
                Tensor::from_slice(&vec![0f32; length]).to_device(self.parameters.place.device())
            }
            false => self.zeros(name, length),
        }
    }

    /// Declares that batch norm follows, for [`Named::bias`].
    pub(super) fn centre(&mut self) {
        self.centred = true;
    }

    /// Adds a parameter of `length` zeros.
    pub fn zeros(&mut self, name: &str, length: usize) -> Tensor {
        self.add(name, Tensor::from_slice(&vec![0f32; length]))
    }

    /// Adds a parameter of `length` ones.
    pub fn ones(&mut self, name: &str, length: usize) -> Tensor {
        self.add(name, Tensor::from_slice(&vec![1f32; length]))
    }

    /// Adds `length` values `value` that are saved with the parameters but have no gradient.
    pub(super) fn buffer(&mut self, name: &str, value: f32, length: usize) -> Tensor {
        let tensor =
            Tensor::from_slice(&vec![value; length]).to_device(self.parameters.place.device());
        self.parameters.buffers.push((format!("{}.{name}", self.prefix), tensor.shallow_clone()));
        tensor
    }

    fn add(&mut self, name: &str, tensor: Tensor) -> Tensor {
        let tensor = tensor.to_device(self.parameters.place.device()).set_requires_grad(true);
        self.parameters.tensors.push((format!("{}.{name}", self.prefix), tensor.shallow_clone()));
        tensor
    }
}
