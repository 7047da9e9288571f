//! Ranks as processes that `torchrun`, `srun` or `mpirun` has started.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use gsplit::launch::Launch;
use gsplit::ui::usage;
use gsplit_kernels::CudaSurvey;
use gsplit_trainer::{Device, GpuList, Meeting, Process, TrainConfig};
use serde_json::Value;

/// Options for how processes meet.
#[derive(clap::Args)]
// The group would have the same name as the surrounding one.
#[group(skip)]
pub struct Args {
    /// Seconds that a rank waits for the others, in a collective and while they start; then the run ends and names the
    /// missing ranks. Evaluation and checkpoints, for which the others wait for rank 0, do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    timeout: u64,
    /// Address where processes meet: host and port of rank 0 [default: MASTER_ADDR and the port after MASTER_PORT; under srun the
    /// first host and a port derived from the job's number; under mpirun on one host 127.0.0.1 and a port derived from the run's name]
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<Address>,
}

/// A host and a port.
#[derive(Clone, Debug)]
pub struct Address {
    host: String,
    port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        match split {
            Some((host, port)) if !host.is_empty() && port > 0 => {
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                Ok(Self { host: host.to_string(), port })
            }
            _ => Err("expected a host and a port, such as node1:29400".to_string()),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Args {
    /// Whether a launcher has started several processes.
    pub fn launched(&self) -> bool {
        Launch::has_several()
    }

    /// The timeout, as in the configuration file.
    pub fn timeout_s(&self) -> u64 {
        self.timeout
    }

    /// The address, as in the configuration file.
    pub fn rendezvous(&self) -> Option<String> {
        self.rendezvous.as_ref().map(Address::to_string)
    }

    /// How long a rank waits.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// This process and the number of processes.
pub struct Processes {
    /// This process as a rank.
    pub process: Arc<Process>,
    /// The number of processes.
    pub size: usize,
}

impl Processes {
    /// Joins the other processes, if a launcher has started several, in the groups of `config`; each computes on its
    /// own device, one of `gpus` if these are given. Collective.
    pub fn join(args: &Args, config: &TrainConfig, gpus: Option<&GpuList>) -> anyhow::Result<Option<Self>> {
        let Some(launch) = Launch::found().map_err(usage)?.filter(|launch| launch.size > 1) else {
            return match args.rendezvous {
                None => Ok(None),
                Some(_) => Err(usage(
                    "--rendezvous is for processes that a launcher has started: run this under torchrun --no-python, srun or \
                     mpirun, or leave it out",
                )),
            };
        };
        let local = (config.device == Device::Cuda).then(|| local(&launch)).transpose()?;
        let (host, port) = address(args, &launch)?;
        let gpu = local.map(|local| gpu_of(local, gpus)).transpose()?;
        Process::check_groups(config.groups, launch.size).map_err(super::as_usage)?;
        let value = |value: Value| if value.is_null() { "not given".to_string() } else { value.to_string() };
        let options = config.options().into_iter().map(|(name, option)| (name, value(option.value))).collect();
        let seat = (launch.rank, launch.size);
        let process = Meeting::at(&host, port, seat, &launch.run, &options, args.timeout())
            .and_then(|meeting| Process::joined(meeting, config.groups, gpu))
            .map_err(super::as_usage)?;
        Ok(Some(Self { process: Arc::new(process), size: launch.size }))
    }

    /// Whether this is the process that prints.
    pub fn leads(&self) -> bool {
        self.process.rank() == 0
    }

    /// Disconnects from the others. Collective.
    pub fn part(self) {
        self.process.finish();
    }
}

/// Host and port where processes meet.
fn address(args: &Args, launch: &Launch) -> anyhow::Result<(String, u16)> {
    let address = args.rendezvous.as_ref().map(|address| (address.host.clone(), address.port));
    address.or_else(|| launch.address.clone()).ok_or_else(|| {
        usage(format!(
            "--rendezvous is missing: {} does not say where rank 0 is: pass its HOST:PORT, or set MASTER_ADDR and MASTER_PORT",
            launch.by
        ))
    })
}

/// The number of this process on its host.
fn local(launch: &Launch) -> anyhow::Result<usize> {
    launch.local.ok_or_else(|| {
        usage(format!(
            "--device cuda: {} does not say which process of its host this is: set LOCAL_RANK, RANK and WORLD_SIZE",
            launch.by
        ))
    })
}

/// The number of the GPU for the process that is `local` on its host.
fn gpu_of(local: usize, gpus: Option<&GpuList>) -> anyhow::Result<usize> {
    let visible = CudaSurvey::new().gpus?.len();
    Process::gpu_of(local, gpus, visible).map_err(super::as_usage)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in ["node1:29400", "10.0.0.7:1", "[fe80::1]:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["node1", "node1:", ":80", "node1:x", "node1:65536", "node1:0", ""] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
