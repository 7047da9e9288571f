//! Draws of in-neighbours, and the weights of their rows in sums.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Device, ModelKind, TrainConfig};

/// How in-neighbours are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DrawKind {
    /// All alike, or by --draw-by
    #[default]
    Uniform,
    /// More often those whose rows the rank keeps (--cache), and those from which these are reached; sums and means are corrected for it,
    /// and stay right in expectation (Song and Jiang, 2022)
    Locality,
}

/// How many times more often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DrawFactor {
    /// The factor that the bytes moved in the epoch before ask for.
    Auto,
    /// So many times, from 1.
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

impl Serialize for DrawFactor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DrawFactor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// How in-neighbours are drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct DrawConfig {
    /// How in-neighbours are drawn. What locality draws depends on the rows that a rank keeps, so with other caches losses are others
    #[arg(id = "draw", long, value_name = "KIND", value_enum, default_value = "uniform")]
    pub kind: DrawKind,
    /// With --draw locality, how many times more often: a number from 1, or auto: 1 in the first epoch, doubled after each in which 20 % of
    /// the bytes loaded or more were not in the rank's own cache, up to 8, halved after each in which less than 15 % were [default: auto]
    #[arg(long, value_name = "F|auto")]
    pub draw_factor: Option<DrawFactor>,
}

impl DrawConfig {
    /// This with what is left open filled in.
    pub(super) fn effective(&self) -> Self {
        let local = self.kind == DrawKind::Locality;
        Self { draw_factor: local.then(|| self.draw_factor.unwrap_or(DrawFactor::Auto)), ..self.clone() }
    }
}

impl TrainConfig {
    /// Whether ranks draw more often what they keep.
    pub fn draws_locally(&self) -> bool {
        self.draw.kind == DrawKind::Locality
    }

    /// The option for which the host has to draw, for GPUs too, if there is one.
    pub(crate) fn drawn_by_host(&self) -> Option<&'static str> {
        match self.draw.kind {
            DrawKind::Locality => Some("--draw locality"),
            DrawKind::Uniform if self.draw_by.is_some() => Some("--draw-by"),
            DrawKind::Uniform => self.edge_weights.as_ref().map(|_| "--edge-weights"),
        }
    }

    /// The problem with what is drawn, and how it is summed, if any.
    pub(super) fn draw_problem(&self) -> Option<String> {
        let (kind, on_gpu) = (self.model.kind, self.device == Device::Cuda);
        if let Some(column) = self.edge_weights.as_ref().filter(|_| !kind.sums_sources()) {
            let problem = "sums no rows that weights could multiply: choose sage, gcn, resgcn, sgc or gin";
            return Some(format!("--edge-weights {column}: --model {} {problem}", kind.name()));
        }
        if let Some(column) = self.draw_by.as_ref().filter(|_| on_gpu && kind.attends()) {
            let problem = "corrects its draws on a CPU alone: choose --device cpu";
            return Some(format!("--draw-by {column}: --model {} {problem}", kind.name()));
        }
        if !self.draws_locally() {
            let factor = self.draw.draw_factor.as_ref()?;
            return Some(format!("--draw-factor {factor} is for --draw locality: leave it out, or give both"));
        }
        if let Some(column) = &self.draw_by {
            Some(format!(
                "--draw locality: in-neighbours are drawn by --draw-by {column} already: leave one of them out"
            ))
        } else if self.split_layers() > 0 || self.parallelism.slices_columns() {
            let problem =
                "a rank loads other rows than those that it draws: choose --parallelism data, owned or single";
            Some(format!("--draw locality: under --parallelism {} {problem}", self.parallelism))
        } else if kind == ModelKind::SagePool {
            Some("--draw locality: --model sage-pool takes maxima, which nothing corrects: choose another".into())
        } else if on_gpu && !kind.sums_sources() {
            Some(format!("--draw locality: --model {} is corrected on a CPU alone: choose --device cpu", kind.name()))
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
        for (text, factor) in
            [("auto", DrawFactor::Auto), ("1", DrawFactor::Fixed(1.0)), ("2.5", DrawFactor::Fixed(2.5))]
        {
            assert_eq!(text.parse(), Ok(factor));
            assert_eq!(factor.to_string(), text);
            let stored = serde_json::to_string(&factor).unwrap();
            assert_eq!(serde_json::from_str::<DrawFactor>(&stored).unwrap(), factor);
        }
        for bad in ["0.5", "0", "-2", "NaN", "inf", "", "Auto"] {
            assert!(bad.parse::<DrawFactor>().unwrap_err().contains("a number from 1, or auto"), "{bad}");
        }
    }
}
