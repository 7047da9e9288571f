//! Ranks that are processes, which `torchrun`, `srun` or `mpirun` has started.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use gsplit::launch::Launch;
use gsplit::ui::usage;
use gsplit_kernels::CudaSurvey;
use gsplit_trainer::{Device, GpuList, Meeting, Process, Rendezvous, TrainConfig};

/// The variable that may hold a run's secret.
const SECRET: &str = "GSPLIT_RENDEZVOUS_SECRET";

/// How processes meet.
#[derive(clap::Args)]
// Its group would have the name of the one around it.
#[group(skip)]
pub struct Args {
    /// Processes that a launcher has started go over its MPI: `mpirun -n 4 gsplit train DATASET --mpi`, or srun. Without it torch
    /// joins those on CPUs (c10d, Gloo), and NCCL those on GPUs; with it rows of --device cuda go by way of the host
    #[arg(long)]
    mpi: bool,
    /// Seconds that a rank waits for the others, in a collective and while they start; then the run ends and says for whom.
    /// Evaluation and checkpoints, for which the others wait for rank 0, do not count
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    timeout: u64,
    /// Address where processes meet: host and port of rank 0 [default: MASTER_ADDR and the port after MASTER_PORT; under srun
    /// the first host and a port made of the job's number; under mpirun on one host 127.0.0.1 and a port made of the run's name]
    #[arg(long, value_name = "HOST:PORT")]
    rendezvous: Option<Address>,
    /// With --device cuda, only who knows what this file holds can join the run; the variable GSPLIT_RENDEZVOUS_SECRET does the same
    #[arg(long, value_name = "FILE")]
    rendezvous_secret: Option<PathBuf>,
}

/// A host and a port there.
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
    /// Whether MPI is asked for.
    pub fn mpi(&self) -> bool {
        self.mpi
    }

    /// Whether a launcher has started several processes.
    pub fn launched(&self) -> bool {
        self.mpi || Launch::found().is_ok_and(|launch| launch.is_some_and(|launch| launch.size > 1))
    }

    /// As the configuration file has it.
    pub fn timeout_s(&self) -> u64 {
        self.timeout
    }

    /// As the configuration file has it.
    pub fn rendezvous(&self) -> Option<String> {
        self.rendezvous.as_ref().map(Address::to_string)
    }

    /// As the configuration file has it.
    pub fn secret_file(&self) -> Option<&Path> {
        self.rendezvous_secret.as_deref()
    }

    /// How long a rank waits.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// This process among the others.
pub struct Processes {
    /// As a rank.
    pub process: Arc<Process>,
    /// How many there are.
    pub size: usize,
    /// MPI, dropped by [`part`](Self::part) alone: a farewell of a process that failed would wait for the others. The launcher ends them.
    #[cfg(feature = "mpi")]
    world: Option<std::mem::ManuallyDrop<gsplit_trainer::MpiWorld>>,
}

impl Processes {
    /// Meets the other processes if a launcher has started several, in the groups that `config` says; each computes on its device,
    /// one of `gpus` if these are named. Collective.
    pub fn join(args: &Args, config: &TrainConfig, gpus: Option<&GpuList>) -> anyhow::Result<Option<Self>> {
        let launch = Launch::found().map_err(usage)?;
        if args.mpi {
            return Self::over_mpi(args, launch.as_ref(), config, gpus).map(Some);
        }
        let Some(launch) = launch.filter(|launch| launch.size > 1) else {
            let option = match (&args.rendezvous, &args.rendezvous_secret) {
                (None, None) => return Ok(None),
                (Some(_), _) => "--rendezvous",
                (None, Some(_)) => "--rendezvous-secret",
            };
            return Err(usage(format!(
                "{option} is for processes that a launcher has started: run this under torchrun --no-python, srun or mpirun, or \
                 leave it out"
            )));
        };
        match config.device {
            Device::Cuda => Self::over_nccl(args, &launch, config, gpus).map(Some),
            Device::Cpu => Self::over_c10d(args, &launch, config).map(Some),
        }
    }

    fn over_c10d(args: &Args, launch: &Launch, config: &TrainConfig) -> anyhow::Result<Self> {
        if args.rendezvous_secret.is_some() {
            return Err(usage(
                "--rendezvous-secret is for --device cuda: processes on CPUs trust their network, as PyTorch's do",
            ));
        }
        let (host, port) = address(args, launch)?;
        let seat = (launch.rank, launch.size);
        let meeting = Meeting::at(&host, port, seat, config.groups, &launch.run, args.timeout());
        let process = meeting.and_then(|meeting| Process::of_c10d(meeting, config.groups)).map_err(super::as_usage)?;
        Ok(Self {
            process: Arc::new(process),
            size: launch.size,
            #[cfg(feature = "mpi")]
            world: None,
        })
    }

    #[cfg(feature = "mpi")]
    fn over_mpi(
        args: &Args,
        launch: Option<&Launch>,
        config: &TrainConfig,
        gpus: Option<&GpuList>,
    ) -> anyhow::Result<Self> {
        let local = launch.and_then(|launch| launch.local);
        let gpu = local.filter(|_| config.device == Device::Cuda).map(|local| gpu_of(local, gpus)).transpose()?;
        let world = gsplit_trainer::MpiWorld::start()?;
        let process = Process::of_mpi(&world, config.groups, Some(args.timeout()), gpu).map_err(super::as_usage)?;
        let (process, size) = (Arc::new(process), world.size());
        Ok(Self { process, size, world: Some(std::mem::ManuallyDrop::new(world)) })
    }

    #[cfg(not(feature = "mpi"))]
    fn over_mpi(_: &Args, _: Option<&Launch>, _: &TrainConfig, _: Option<&GpuList>) -> anyhow::Result<Self> {
        Err(usage(
            "--mpi: this gsplit was built without MPI: install one (Debian: libopenmpi-dev, libclang-dev), then `cargo build --release --features mpi`",
        ))
    }

    fn over_nccl(args: &Args, launch: &Launch, config: &TrainConfig, gpus: Option<&GpuList>) -> anyhow::Result<Self> {
        let Launch { by, rank, size, .. } = *launch;
        let local = launch.local.ok_or_else(|| {
            usage(format!("--device cuda: {by} does not say which process of its host this is: set LOCAL_RANK, RANK and WORLD_SIZE"))
        })?;
        let (host, port) = address(args, launch)?;
        let secret = secret(args.rendezvous_secret.as_deref())?;
        let rendezvous = Rendezvous { host, port, secret, run: launch.run.clone(), timeout: args.timeout() };
        let process = Process::of_nccl(&rendezvous, (rank, size), config.groups, gpu_of(local, gpus)?);
        let process = process.map_err(super::as_usage)?;
        Ok(Self {
            process: Arc::new(process),
            size,
            #[cfg(feature = "mpi")]
            world: None,
        })
    }

    /// Whether this is the process that says what there is to say.
    pub fn leads(&self) -> bool {
        self.process.rank() == 0
    }

    /// Takes leave of the others. Collective.
    pub fn part(self) {
        self.process.finish();
        #[cfg(feature = "mpi")]
        drop(self.world.map(std::mem::ManuallyDrop::into_inner));
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

/// The number of the GPU for the process that is `local` on its host.
fn gpu_of(local: usize, gpus: Option<&GpuList>) -> anyhow::Result<usize> {
    let visible = CudaSurvey::new().gpus?.len();
    Process::gpu_of(local, gpus, visible).map_err(super::as_usage)
}

/// The run's secret, from `file` or else from the environment; empty for none.
fn secret(file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let Some(path) = file else {
        return Ok(std::env::var(SECRET).map(String::into_bytes).unwrap_or_default());
    };
    let text = gsplit_store::read_file(path).map_err(gsplit_store::Error::io(path))?;
    let secret = text.trim_ascii().to_vec();
    match secret.is_empty() {
        true => {
            Err(usage(format!("--rendezvous-secret {}: the file is empty: write the secret there", path.display())))
        }
        false => Ok(secret),
    }
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

    #[test]
    fn a_secret_comes_from_a_file_without_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "open sesame\n").unwrap();
        assert_eq!(secret(Some(&path)).unwrap(), b"open sesame");
        std::fs::write(&path, " \n").unwrap();
        assert!(secret(Some(&path)).unwrap_err().to_string().contains("is empty"));
        assert!(secret(Some(&folder.path().join("none"))).unwrap_err().to_string().contains("none"));
    }
}
