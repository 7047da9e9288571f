//! Options for drawing in-neighbours and weighting their rows in sums.

use std::fmt;
use std::str::FromStr;

use gsplit_store::text_in_files;
use serde::{Deserialize, Serialize};

use super::{Config, Device, ModelKind, name_of};

/// How in-neighbours are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum DrawKind {
    /// All with the same probability, or by --draw-by
    #[default]
    Uniform,
    /// Prefer in-neighbours whose rows the rank keeps (--cache), and those from which such rows are
    /// reached; sums and means are corrected for it and stay right in expectation (Song and Jiang,
    /// 2022)
    Locality,
}

/// How many times as often a preferred in-neighbour is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DrawFactor {
    /// Follows the share of loaded bytes that missed the cache in the epoch before.
    Auto,
    /// A fixed factor, at least 1.
    Fixed(f64),
}

impl FromStr for DrawFactor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(factor) if (1.0..f64::INFINITY).contains(&factor) => Ok(Self::Fixed(factor)),
            _ => Err("expected a number from 1, or auto".into()),
        }
    }
}

impl fmt::Display for DrawFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(factor) => factor.fmt(f),
        }
    }
}

text_in_files!(DrawFactor);

/// How in-neighbours are drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct DrawConfig {
    /// How in-neighbours are drawn. Locality depends on the rows that a rank keeps, so another
    /// cache gives other losses
    #[cfg_attr(
        feature = "cli",
        arg(id = "draw", long, value_name = "KIND", value_enum, default_value_t)
    )]
    pub kind: DrawKind,
    /// With --draw locality, how many times as often in-neighbours are drawn: a number from 1, or
    /// auto, which starts at 1, doubles after an epoch in which 20 % or more of the loaded bytes
    /// were not in the rank's own cache, up to 8, and halves below 15 % [default: auto]
    #[cfg_attr(feature = "cli", arg(long, value_name = "F|auto"))]
    pub draw_factor: Option<DrawFactor>,
}

impl DrawConfig {
    /// Returns these settings with the defaults filled in.
    pub(super) fn effective(&self) -> Self {
        let local = self.kind == DrawKind::Locality;
        Self {
            draw_factor: local.then(|| self.draw_factor.unwrap_or(DrawFactor::Auto)),
            ..self.clone()
        }
    }
}

impl Config {
    /// True if ranks prefer in-neighbours whose rows they keep.
    pub fn draws_locally(&self) -> bool {
        self.data.draw.kind == DrawKind::Locality
    }

    /// The option that requires drawing on the host, for GPUs too, if there is one.
    pub(crate) fn drawn_by_host(&self) -> Option<&'static str> {
        match self.data.draw.kind {
            DrawKind::Locality => Some("--draw locality"),
            DrawKind::Uniform if self.data.draw_by.is_some() => Some("--draw-by"),
            DrawKind::Uniform => self.data.edge_weights.as_ref().map(|_| "--edge-weights"),
        }
    }

    /// Returns the problem with how in-neighbours are drawn or their rows are summed, if any.
    pub(super) fn draw_problem(&self) -> Option<String> {
        let (kind, on_gpu) = (self.model.kind, self.system.device == Device::Cuda);
        if let Some(column) = self.data.edge_weights.as_ref().filter(|_| !kind.sums_sources()) {
            let problem =
                "sums no rows that weights could multiply: choose sage, gcn, resgcn, sgc or gin";
            return Some(format!("--edge-weights {column}: --model {} {problem}", name_of(&kind)));
        }
        if let Some(column) = self.data.draw_by.as_ref().filter(|_| on_gpu && kind.attends()) {
            let problem = "corrects its draws on CPUs only: choose --device cpu";
            return Some(format!("--draw-by {column}: --model {} {problem}", name_of(&kind)));
        }
        if !self.draws_locally() {
            return None;
        }
        if let Some(column) = &self.data.draw_by {
            Some(format!(
                "--draw locality: in-neighbours are drawn by --draw-by {column} already: leave one \
                 of them out"
            ))
        } else if self.split_layers() > 0 || self.system.parallelism.slices_columns() {
            let problem =
                "a rank loads other rows than it draws: choose --parallelism data, owned or single";
            Some(format!(
                "--draw locality: under --parallelism {} {problem}",
                self.system.parallelism
            ))
        } else if kind == ModelKind::SagePool {
            Some(
                "--draw locality: --model sage-pool takes maxima, which nothing corrects: choose \
                  another"
                    .into(),
            )
        } else if on_gpu && !kind.sums_sources() {
            Some(format!(
                "--draw locality: --model {} is corrected on CPUs only: choose --device cpu",
                name_of(&kind)
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_numbers_from_1() {
        for (text, factor) in [
            ("auto", DrawFactor::Auto),
            ("1", DrawFactor::Fixed(1.0)),
            ("2.5", DrawFactor::Fixed(2.5)),
        ] {
            assert_eq!(text.parse(), Ok(factor));
            assert_eq!(factor.to_string(), text);
            let stored = serde_json::to_string(&factor).unwrap();
            assert_eq!(serde_json::from_str::<DrawFactor>(&stored).unwrap(), factor);
        }
        for bad in ["0.5", "0", "-2", "NaN", "inf", "", "Auto"] {
            assert!(
                bad.parse::<DrawFactor>().unwrap_err().contains("a number from 1, or auto"),
                "{bad}"
            );
        }
    }
}
