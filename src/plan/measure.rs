//! Measures the profile of this machine: its CPU or its GPUs.

use anyhow::Context;
use gsplit_kernels::{CudaSurvey, processor};
use gsplit_store::memory::Memory;
use gsplit_store::{Dataset, DiskRates, Progress, Reading};
use gsplit_trainer::{Device, GpuRates, PairRate, Rates};

use super::found::Candidates;
use super::profile::{Dense, Link, Pair, Profile};
use gsplit::ui::Ui;

/// A pair of GPUs is listed if its rate is below this fraction of its share of a GPU's receive
/// rate.
const SLOWER: f64 = 0.9;

/// Measures this machine, which takes some seconds.
pub fn measure(device: Device) -> anyhow::Result<Profile> {
    match device {
        Device::Cpu => Ok(of_cpu(Rates::measure()?)),
        Device::Cuda => {
            let survey = CudaSurvey::look();
            let first = survey.gpus.as_ref().ok().and_then(|gpus| gpus.first());
            let name = first.map_or("GPU", |gpu| gpu.name.as_str()).to_string();
            let rates = GpuRates::measure()
                .context("--device cuda: `gsplit doctor` says what is missing")?;
            Ok(of_gpus(rates, &name))
        }
    }
}

/// `profile`, measured on this machine, with the disk of `dataset` added if any of `candidates`
/// reads rows from it.
pub fn with_disk(profile: Profile, candidates: &Candidates, dataset: &Dataset, ui: &Ui) -> Profile {
    if !candidates.reads_disk(&profile) {
        return profile;
    }
    let disk = DiskRates::of_folder(dataset.path(), &Reading::default());
    let disk =
        disk.inspect_err(|error| ui.note(&format!("note: the disk is not measured, {error}")));
    Profile { disk: disk.ok(), ..profile }
}

fn about(what: &str) -> String {
    format!("{what}, measured by gsplit {}", env!("CARGO_PKG_VERSION"))
}

fn of_cpu(rates: Rates) -> Profile {
    let threads = rayon::current_num_threads();
    Profile {
        about: about(&format!("{}, {threads} threads", processor())),
        ranks: threads,
        memory: Memory::of_this_machine().total() as f64,
        ..of_each(rates)
    }
}

fn of_gpus(GpuRates { each, gpus, memory, bus, pairs }: GpuRates, name: &str) -> Profile {
    let others = (gpus.max(2) - 1) as f64;
    let slow = |pair: &&PairRate| others * pair.bytes < SLOWER * each.exchange[0];
    let pair =
        |pair: &PairRate| Pair { ranks: pair.gpus, bytes: pair.bytes, latency: pair.latency };
    Profile {
        about: about(&format!("{gpus} {name}")),
        device: Device::Cuda,
        ranks: gpus,
        shared: false,
        memory,
        pairs: pairs.iter().filter(slow).map(pair).collect(),
        bus: Some(Link { bytes: bus, latency: 0.0 }),
        ..of_each(each)
    }
}

/// The part of a profile that CPUs and GPUs have in common; the rest is that of a CPU without
/// memory.
fn of_each(
    Rates { sampled_edges, rows, stream, layer, dense: [f32, bf16], exchange: [bytes, latency] }: Rates,
) -> Profile {
    Profile {
        about: String::new(),
        device: Device::Cpu,
        hosts: 1,
        ranks: 1,
        shared: true,
        memory: 0.0,
        sampled_edges,
        rows,
        stream,
        layer,
        dense: Dense { f32, bf16 },
        peer: Link { bytes, latency },
        pairs: Vec::new(),
        bus: None,
        network: None,
        disk: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_are_slower_than_their_portion_are_named() {
        let each = Rates {
            sampled_edges: 1.0,
            rows: 1.0,
            stream: 1.0,
            layer: 0.0,
            dense: [1.0; 2],
            exchange: [60.0, 0.1],
        };
        let pair = |gpus, bytes| PairRate { gpus, bytes, latency: 0.2 };
        let pairs = vec![pair([0, 1], 20.0), pair([0, 2], 17.0), pair([2, 3], 40.0)];
        let profile = of_gpus(GpuRates { each, gpus: 4, memory: 1e9, bus: 10.0, pairs }, "A100");
        assert_eq!(profile.pairs, [Pair { ranks: [0, 2], bytes: 17.0, latency: 0.2 }]);
        assert_eq!(profile.among(4), Link { bytes: 51.0, latency: 0.2 });
        assert!(profile.about.starts_with("4 A100, measured") && profile.bus.is_some());
    }
}
