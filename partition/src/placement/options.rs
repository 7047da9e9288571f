//! Options of a placement.

use gsplit_store::{PlacementConfig, Readers};
use serde::Serialize;

use gsplit_store::Size;

use super::Bandwidth;
use crate::options::value_name;
use crate::{Error, Result};

/// Cost of a peer access over a host access unless the user says: the value of Song & Jiang's
/// example.
const DEFAULT_ALPHA: f64 = 0.3;

/// Rule by which rows are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum PlacementRule {
    /// The cheapest by the cost model, for the parallelism
    #[default]
    Optimised,
    /// Each part's hottest rows on its own device, by the partition's cache order (GSplit)
    Partitioned,
    /// The hottest rows on every device (PaGraph)
    Replicated,
    /// The hottest rows dealt in turn to the devices, one copy each (Quiver)
    Peer,
    /// Song & Jiang's Algorithm 1 as published, for data parallelism
    SongJiang,
}

impl PlacementRule {
    /// The rules that make sense with `parallelism`.
    pub fn of(parallelism: Readers) -> &'static [Self] {
        let all =
            &[Self::Partitioned, Self::Replicated, Self::Peer, Self::Optimised, Self::SongJiang];
        match parallelism {
            Readers::Data => all,
            Readers::Split => &all[..4],
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        value_name(self)
    }
}

/// Costs of reading a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// From a peer, over that from the host. Finite, not negative.
    pub alpha: f64,
    /// Bytes a second from the host and from peers, where they are known.
    pub bandwidths: Option<(u64, u64)>,
}

/// Options of a placement.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct PlaceOptions {
    /// Cache of one device: a size such as 4GiB, or a share of all feature rows such as 20%
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE"))]
    pub cache: Size,
    /// Ranks that load a row
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub parallelism: Readers,
    /// Placement to store
    #[cfg_attr(
        feature = "cli",
        arg(long = "rule", value_enum, value_name = "RULE", default_value_t)
    )]
    pub placement: PlacementRule,
    /// Cost of reading a row from a peer, where reading it from the host costs 1 [default: 0.3]
    #[cfg_attr(feature = "cli", arg(long, value_name = "A", conflicts_with_all = ["host_bandwidth", "peer_bandwidth"]))]
    pub alpha: Option<f64>,
    /// Bytes per second that a device reads from host memory, e.g. 25GB; with --peer-bandwidth,
    /// replaces --alpha
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES", requires = "peer_bandwidth"))]
    pub host_bandwidth: Option<Bandwidth>,
    /// Bytes per second that a device reads from its peers, e.g. 300GB
    #[cfg_attr(feature = "cli", arg(long, value_name = "BYTES", requires = "host_bandwidth"))]
    pub peer_bandwidth: Option<Bandwidth>,
}

impl PlaceOptions {
    /// Fails on values that make no sense whatever the dataset.
    pub fn check(&self) -> Result<()> {
        let alpha = self.costs().alpha;
        if !(alpha.is_finite() && alpha >= 0.0) {
            let expected = "expected 0 (peers cost nothing) or more; from 1 on no peer is read";
            return Err(Error::Option(format!("--alpha {alpha}: {expected}")));
        }
        if !PlacementRule::of(self.parallelism).contains(&self.placement) {
            let name = self.placement.name();
            let problem = "Algorithm 1 supposes that every device loads a row equally often";
            let remedy = "use --parallelism data, or --rule optimised";
            return Err(Error::Option(format!("--rule {name}: {problem}; {remedy}")));
        }
        Ok(())
    }

    /// The costs that were given, or the default.
    pub fn costs(&self) -> Costs {
        let bandwidths = self.host_bandwidth.zip(self.peer_bandwidth);
        match bandwidths {
            Some((Bandwidth(host), Bandwidth(peer))) => {
                Costs { alpha: host as f64 / peer as f64, bandwidths: Some((host, peer)) }
            }
            None => Costs { alpha: self.alpha.unwrap_or(DEFAULT_ALPHA), bandwidths: None },
        }
    }

    /// The key under which the result is stored unless the user names one, e.g.
    /// `optimised-split-4GiB-metis-presampled-k4`.
    pub fn default_key(&self, partition: &str) -> String {
        let cache = self.cache.to_string().replace('%', "pct");
        let key = format!("{}-{}-{cache}", self.placement.name(), self.parallelism);
        let alpha = self.costs().alpha;
        match alpha == DEFAULT_ALPHA {
            true => format!("{key}-{partition}"),
            false => format!("{key}-a{alpha}-{partition}"),
        }
    }

    /// The form that is stored with the result.
    pub fn config(&self, devices: usize, cache_bytes: u64, row_bytes: u64) -> PlacementConfig {
        let Costs { alpha, bandwidths } = self.costs();
        PlacementConfig {
            placement: self.placement.name(),
            parallelism: self.parallelism,
            devices: devices as u32,
            cache_bytes,
            row_bytes,
            alpha,
            host_bandwidth: bandwidths.map(|(host, _)| host),
            peer_bandwidth: bandwidths.map(|(_, peer)| peer),
        }
    }
}
