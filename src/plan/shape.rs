//! Shape of a model: widths, weights and parameters of its layers.

use gsplit_trainer::{Dtype, ModelConfig, ModelKind};

/// Shape of a model.
#[derive(Clone, Debug)]
pub struct Shape {
    pub kind: ModelKind,
    /// Widths of the rows that each layer reads and makes, from the seeds' layer down.
    pub widths: Vec<[f64; 2]>,
    /// Type that products round to.
    pub dtype: Dtype,
    /// Bytes of a stored feature value.
    pub stored: f64,
    pub parameters: f64,
    /// Attention heads of hidden layers.
    pub heads: f64,
}

impl Shape {
    /// The shape of `model`, from `features` inputs of `stored` bytes to `outputs` outputs.
    pub fn new(model: &ModelConfig, [features, outputs]: [usize; 2], stored: usize) -> Self {
        let &ModelConfig { kind, layers, hidden, dtype, heads, .. } = model;
        // The only product is at the end where it makes rows narrower: the bottom or the top.
        let hidden = if kind == ModelKind::Sgc { features.min(outputs) } else { hidden };
        let width = |layer: usize| match layer {
            0 => outputs as f64,
            _ => hidden as f64,
        };
        let widths: Vec<[f64; 2]> = (0..layers)
            .map(|layer| {
                [if layer + 1 == layers { features as f64 } else { width(layer + 1) }, width(layer)]
            })
            .collect();
        let of_layer = |[read, made]: &[f64; 2]| read * made * products_of(kind) + 2.0 * made;
        let parameters = match kind {
            ModelKind::Sgc => (features * outputs + outputs) as f64,
            _ => widths.iter().map(of_layer).sum(),
        };
        Self { kind, widths, dtype, stored: stored as f64, parameters, heads: heads as f64 }
    }
}

/// Number of weight matrices per layer.
pub fn products_of(kind: ModelKind) -> f64 {
    match kind {
        ModelKind::Sage | ModelKind::SagePool | ModelKind::Gin | ModelKind::Gatv2 => 2.0,
        ModelKind::Gcn | ModelKind::Sgc | ModelKind::Gat | ModelKind::Resgcn => 1.0,
    }
}
