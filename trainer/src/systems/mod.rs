//! The published systems that gsplit can act as. A system is four choices, and has a file of its
//! own:
//!
//! | question | field |
//! | --- | --- |
//! | Which rank computes a vertex? | [`System::parallelism`] |
//! | Which rank loads its feature row? | [`System::split_layers`]: the owner if the lowest layer is split, else the rank that computes |
//! | Which rows are in the memory of GPUs? | [`System::placement`] |
//! | By which map are vertices owned? | [`System::map`] |
//!
//! `gsplit train --preset` fills in a system's choices and its paper's settings, `gsplit compare`
//! and `gsplit plan` loop over [`ALL`]. DGL and Quiver are not run themselves: the same loop and
//! kernels do what they do, so that the rows of a table differ only in these choices. Micro-batches
//! are shares of the same global mini-batches, and a vertex draws the same neighbours in each of
//! them; DGL and Quiver let each draw its own, and load and compute somewhat more.

mod dgl;
mod granndis;
mod gsplit;
mod intel;
mod p3;
mod quiver;
mod song_jiang;

pub use dgl::DGL;
pub use granndis::GRANNDIS;
pub use gsplit::{EDGE, GSPLIT, NODE, OWNED, RANDOM};
pub use intel::INTEL;
pub use p3::P3;
pub use quiver::QUIVER;
pub use song_jiang::SONG_JIANG;

use serde::Serialize;

use crate::config::{Config, Device, Parallelism, RowPlacement};

/// Every system, in the order of tables. A further one is a file next to these, and a line here.
pub const ALL: [System; 11] =
    [DGL, QUIVER, P3, SONG_JIANG, INTEL, GRANNDIS, OWNED, RANDOM, EDGE, NODE, GSPLIT];

/// A system: four choices, and its paper's settings.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Name on the command line.
    pub key: &'static str,
    /// Name in tables.
    pub name: &'static str,
    /// Publication.
    pub paper: &'static str,
    /// A line about it.
    pub about: &'static str,
    /// Division of the work between ranks: which rank computes a vertex.
    pub parallelism: Parallelism,
    /// Number of layers, from the lowest, whose rows come from the ranks that own them; all or
    /// none, by the parallelism, when `None`.
    pub split_layers: Option<usize>,
    /// Placement of feature rows on GPUs, by its name on the command line.
    pub placement: &'static str,
    /// Partition map, if it needs one.
    pub map: Option<Map>,
    /// Sets the paper's settings where they differ from gsplit's defaults, which are GSplit's.
    pub settings: fn(&mut Config),
    /// True if it draws other samples than the others.
    pub own_draws: bool,
    /// The reason why it cannot be compared with the others on a device, if any.
    pub problem: fn(Device) -> Option<&'static str>,
}

/// A partition map of a system: each vertex in a random part, or parts that balance work and cut few
/// edges, by these weights of `gsplit partition`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Map {
    /// A random part for each vertex.
    Random,
    /// In-edges and targets.
    Degree,
    /// Pre-sampled work of vertices.
    Vertex,
    /// Pre-sampled work of vertices, and of edges.
    Presampled,
}

impl PartialEq for System {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl System {
    /// The system called `key` on the command line.
    ///
    /// # Errors
    /// The names that there are.
    pub fn find(key: &str) -> Result<Self, String> {
        let found = ALL.into_iter().find(|system| system.key == key);
        found.ok_or_else(|| format!("expected one of {}", ALL.map(|system| system.key).join(", ")))
    }

    /// Placement of feature rows on GPUs.
    pub fn rows(&self) -> RowPlacement {
        self.placement.parse().unwrap_or(RowPlacement::Host)
    }

    /// Placement of feature rows on `device`; `None` without GPUs, unless draws depend on it.
    pub fn rows_on(&self, device: Device) -> Option<RowPlacement> {
        (device != Device::Cpu || self.own_draws).then(|| self.rows())
    }

    /// True if it trains on its own samples or mini-batches, so that its seconds cannot be compared
    /// with the others.
    pub fn stands_apart(&self) -> bool {
        self.own_draws || !self.draws()
    }

    /// True if it draws mini-batches anew in every epoch.
    pub fn draws(&self) -> bool {
        !self.parallelism.cooperates()
    }

    /// Sets the choices and settings of this system, except the partition map, for the device of
    /// `config`.
    pub fn apply(&self, config: &mut Config) {
        (config.system.parallelism, config.system.split_layers) =
            (self.parallelism, self.split_layers);
        config.system.placement = self.rows_on(config.system.device);
        (self.settings)(config);
    }
}

#[cfg(feature = "cli")]
impl clap::ValueEnum for System {
    fn value_variants<'a>() -> &'a [Self] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.key).help(self.about))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_whole() {
        for system in ALL {
            assert_eq!(System::find(system.key), Ok(system));
            assert_eq!(system.map.is_some(), system.parallelism.needs_map(), "{}", system.name);
            assert!(system.placement.parse::<RowPlacement>().is_ok(), "{}", system.name);
            let mut config = Config::default();
            system.apply(&mut config);
            config.check().unwrap_or_else(|problem| panic!("{}: {problem}", system.name));
        }
        assert!(System::find("dgll").unwrap_err().contains("dgl, quiver, p3"));
    }
}
