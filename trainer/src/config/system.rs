//! Ranks, their devices, and the memory that the graph and feature rows are read from.

use std::str::FromStr;

use gsplit_store::memory::Memory;
use gsplit_store::{Size, text_in_files};
use serde::{Deserialize, Serialize};

use super::{CooperativeConfig, FeatureStorage, Parallelism, RowPlacement, TopologyStorage};

/// Mini-batches prepared ahead are all in memory: more than this is a mistake.
const MAX_PREFETCH: usize = 1024;
/// More threads than this are a mistake.
const MAX_THREADS: usize = 1024;

/// Device that ranks compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// Threads of this process
    #[default]
    Cpu,
    /// NVIDIA GPUs, one per rank
    #[cfg_attr(feature = "cli", value(alias = "gpu"))]
    #[serde(alias = "gpu")]
    Cuda,
}

/// Library that computes dense products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Products {
    /// The gemm crate, in tiles
    Gemm,
    /// torch (MKL), with whole matrices
    Torch,
    /// gsplit's own, for --dtype bf16: uses the processor's bf16 instructions
    Own,
    /// torch on tensor cores, for --device cuda with --dtype f32: keeps 11 of the 24 bits of each
    /// factor
    Tf32,
}

/// GPUs by their numbers, e.g. `0,1,2,3` on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuList(pub Vec<usize>);

impl FromStr for GpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split(',').map(|number| number.trim().parse());
        numbers
            .collect::<Result<_, _>>()
            .map(Self)
            .map_err(|_| "expected numbers such as 0,1,2,3".into())
    }
}

impl std::fmt::Display for GpuList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.iter().map(usize::to_string).collect::<Vec<_>>().join(","))
    }
}

text_in_files!(GpuList);

/// Ranks, their devices, and the memory that the graph and feature rows are read from. Only
/// `parallelism`, `split_layers`, `ranks`, `groups`, `device`, `partition` and `cooperative` can
/// change losses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct SystemConfig {
    /// Division of the work between ranks [default: single; split where several ranks are asked
    /// for, e.g. by --ranks, --partition or several GPUs]
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t = Self::default().parallelism, hide_default_value = true))]
    pub parallelism: Parallelism,
    /// With split, the number of layers that are split, from the lowest: their rows come from the
    /// ranks that own them. Above them, each rank computes everything that its own seeds need, and
    /// no rows move. With 1 only feature rows move; losses are the same for any number [default:
    /// all layers]
    #[cfg_attr(feature = "cli", arg(long, value_name = "N"))]
    pub split_layers: Option<usize>,
    /// Train like another system: sets parallelism, split layers, the partition map's usual name
    /// and, with --device cuda, the placement of rows; for song-jiang also cache and draws. Other
    /// options win (--print-config shows the result)
    #[cfg_attr(feature = "cli", arg(long, value_name = "SYSTEM"))]
    pub preset: Option<String>,
    /// Number of ranks [default: one per GPU; on the CPU 1 for single, else 4]
    #[cfg_attr(feature = "cli", arg(long))]
    pub ranks: Option<usize>,
    /// With split, the number of groups of ranks: each group takes an equal share of every
    /// mini-batch and splits it over its own ranks, by a partition map with one part per rank of a
    /// group. On several hosts, give the number of hosts: rows then stay within a host, and only
    /// gradients cross. Losses are the same for any number. With cooperative, the number of
    /// servers: the map has a part for every rank (gsplit partition --servers)
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().groups))]
    pub groups: usize,
    /// Device that ranks compute on
    #[cfg_attr(feature = "cli", arg(long, value_enum, default_value_t))]
    pub device: Device,
    /// Key of the partition map for split and --placement partitioned [default: the only one with
    /// as many parts as ranks, or as ranks of a group]
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY", value_parser = gsplit_store::stored_key))]
    pub partition: Option<String>,
    /// Options of mini-batches that are made once
    #[cfg_attr(feature = "cli", command(flatten))]
    pub cooperative: CooperativeConfig,
    /// With --device cuda, the GPU of each rank, e.g. 0,1,2,3; one named more than once is shared
    /// [default: 0,1,...]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LIST"))]
    pub gpus: Option<GpuList>,
    /// The feature rows that GPUs keep in their memory: none (host), the hottest on every GPU
    /// (replicated), the hottest of its own part on each (partitioned), the hottest once over all
    /// GPUs of a host that read each other's memory (peer), or a placement stored by `gsplit place`
    /// (KEY). Rows are hot if a presample loads them often, or, without one, if many edges lead
    /// from them. With --device cpu nothing is kept: hits are only counted, which needs --cache
    /// SIZE [default with --device cuda or --cache: partitioned for split, else replicated]
    #[cfg_attr(feature = "cli", arg(long, value_name = "host|replicated|partitioned|peer|KEY"))]
    pub placement: Option<RowPlacement>,
    /// GPU memory of each rank for feature rows, e.g. 4GiB, or 20% of all rows. With --device cpu
    /// it is only used for counting [default: the memory that the graph and a few trial
    /// mini-batches leave, divided between the ranks of a GPU]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE"))]
    pub cache: Option<Size>,
    /// Presample that ranks feature rows by loads, for caches and for rows that stay in memory if
    /// not all fit [default: the one whose options are most like this run's]
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY", value_parser = gsplit_store::stored_key))]
    pub presample: Option<String>,
    /// With --device cuda, the place of the graph and the device that samples mini-batches; the
    /// samples are the same. A few trial mini-batches show how much of it fits on GPUs
    #[cfg_attr(feature = "cli", arg(long, value_enum, value_name = "PLACE", default_value_t))]
    pub topology: TopologyStorage,
    /// Storage that feature rows are read from
    #[cfg_attr(feature = "cli", arg(long, value_enum, value_name = "PLACE", default_value_t))]
    pub load_features: FeatureStorage,
    /// Memory limit of each process, the mapped graph included, e.g. 4GiB, or 50% of the machine's.
    /// Feature rows that do not fit are read from disk; the hottest (by a presample) stay in the
    /// memory that the graph, mini-batches and the program leave, once for all processes of a host
    /// [default: the free memory of the host less a fifth, for all its processes]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE"))]
    pub memory: Option<Size>,
    /// Mini-batches that are sampled and loaded while another is computed; any number gives the
    /// same losses. With 0, GPUs finish one phase before the next, and the seconds of each phase do
    /// not overlap
    #[cfg_attr(feature = "cli", arg(long, value_name = "N", default_value_t = Self::default().prefetch))]
    pub prefetch: usize,
    /// Engine for dense products; losses are the same up to rounding [default: with --device cpu
    /// the fastest on this machine, timed once: gsplit doctor; with --device cuda torch's in f32]
    #[cfg_attr(feature = "cli", arg(long, value_enum, value_name = "ENGINE"))]
    pub products: Option<Products>,
    /// Threads of all ranks together; the number of cores when `None`. torch's number of threads is
    /// set from it, rayon's global pool is configured by the caller.
    #[cfg_attr(feature = "cli", arg(skip))]
    pub threads: Option<usize>,
}

impl Default for SystemConfig {
    fn default() -> Self {
        Self {
            parallelism: Parallelism::Single,
            split_layers: None,
            preset: None,
            ranks: None,
            groups: 1,
            device: Device::Cpu,
            partition: None,
            cooperative: CooperativeConfig::default(),
            gpus: None,
            placement: None,
            cache: None,
            presample: None,
            topology: TopologyStorage::Auto,
            load_features: FeatureStorage::Auto,
            memory: None,
            prefetch: 1,
            products: None,
            threads: None,
        }
    }
}

impl SystemConfig {
    /// Memory limit of each process, in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.memory.map(|size| size.bytes(Memory::of_this_machine().total()))
    }

    /// Returns the problem with the names, sizes and numbers of these options, if any.
    pub(super) fn problem(&self) -> Option<String> {
        if self.prefetch > MAX_PREFETCH {
            Some(format!("--prefetch {}: expected at most {MAX_PREFETCH}", self.prefetch))
        } else if let Some(threads) =
            self.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads))
        {
            Some(format!("--threads {threads}: expected 1 to {MAX_THREADS}"))
        } else {
            let keys = [("partition", &self.partition), ("presample", &self.presample)];
            let problem = |(option, key): (&str, &Option<String>)| {
                gsplit_store::stored_key(key.as_deref()?)
                    .err()
                    .map(|error| format!("--{option}: {error}"))
            };
            keys.into_iter().find_map(problem)
        }
    }
}
