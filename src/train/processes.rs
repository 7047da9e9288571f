//! Ranks as processes that `torchrun`, `srun` or `mpirun` has started.

use std::sync::Arc;

use gsplit::launch::Launch;
use gsplit::ui::usage;
use gsplit_kernels::CudaSurvey;
use gsplit_trainer::{Config, Device, GpuList, Meeting, Process};
use serde_json::Value;

/// This process and the number of processes.
pub struct Processes {
    pub process: Arc<Process>,
    pub size: usize,
}

impl Processes {
    /// Joins the other processes, if a launcher has started several, in the groups of `config`;
    /// each computes on its own device, one of `gpus` if these are given. Collective.
    pub fn join(config: &Config) -> anyhow::Result<Option<Self>> {
        let Some(launch) = Launch::found().map_err(usage)?.filter(|launch| launch.size > 1) else {
            return match config.run.rendezvous {
                None => Ok(None),
                Some(_) => Err(usage(
                    "--rendezvous is for processes that a launcher has started: run this under \
                     torchrun --no-python, srun or \
                     mpirun, or leave it out",
                )),
            };
        };
        let local = (config.system.device == Device::Cuda).then(|| local(&launch)).transpose()?;
        let (host, port) = address(config, &launch)?;
        let gpu = local.map(|local| gpu_of(local, config.system.gpus.as_ref())).transpose()?;
        Process::check_groups(config.system.groups, launch.size).map_err(super::as_usage)?;
        let value = |value: Value| {
            if value.is_null() { "not given".to_string() } else { value.to_string() }
        };
        let options = config
            .of_model()
            .options()
            .into_iter()
            .map(|(name, option)| (name, value(option.value)))
            .collect();
        let process = Meeting::at(
            &host,
            port,
            launch.rank,
            launch.size,
            &launch.run,
            &options,
            config.run.timeout(),
        )
        .and_then(|meeting| Process::joined(meeting, config.system.groups, gpu))
        .map_err(super::as_usage)?;
        Ok(Some(Self { process: Arc::new(process), size: launch.size }))
    }

    /// Whether this is the process that prints.
    pub fn leads(&self) -> bool {
        self.process.rank() == 0
    }
}

/// Host and port where processes meet.
fn address(config: &Config, launch: &Launch) -> anyhow::Result<(String, u16)> {
    match &config.run.rendezvous {
        Some(text) => host_and_port(text).ok_or_else(|| {
            usage(format!("--rendezvous {text}: expected a host and a port, such as node1:29400"))
        }),
        None => launch.address.clone().ok_or_else(|| {
            usage(format!(
                "--rendezvous is missing: {} does not say where rank 0 is: pass its HOST:PORT, or \
                 set MASTER_ADDR and MASTER_PORT",
                launch.by
            ))
        }),
    }
}

/// The host and the port that `text` names.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|&port| port > 0)?;
    (!host.is_empty()).then(|| (host.to_string(), port))
}

/// The number of this process on its host.
fn local(launch: &Launch) -> anyhow::Result<usize> {
    launch.local.ok_or_else(|| {
        usage(format!(
            "--device cuda: {} does not say which process of its host this is: set LOCAL_RANK, \
             RANK and WORLD_SIZE",
            launch.by
        ))
    })
}

/// The number of the GPU for the process that is `local` on its host.
fn gpu_of(local: usize, gpus: Option<&GpuList>) -> anyhow::Result<usize> {
    let visible = CudaSurvey::look().gpus?.len();
    Process::gpu_of(local, gpus, visible).map_err(super::as_usage)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in ["node1:29400", "10.0.0.7:1", "[fe80::1]:65535"] {
            let (host, port) = host_and_port(text).unwrap();
            assert!(!host.starts_with('[') && text.ends_with(&format!(":{port}")), "{text}");
        }
        for text in ["node1", "node1:", ":80", "node1:x", "node1:65536", "node1:0", ""] {
            assert!(host_and_port(text).is_none(), "{text}");
        }
    }
}
