//! Ranks that are processes, which `mpirun` or `srun` has started.

use std::sync::Arc;

use gsplit::ui::usage;
use gsplit_trainer::Process;

/// Variables by which launchers tell each process how many there are.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE"];

/// This process among the others.
pub struct Processes {
    /// As a rank.
    pub process: Arc<Process>,
    /// How many there are.
    pub size: usize,
    /// What fails leaves without a farewell, which would wait for the others: the launcher ends them.
    #[cfg(feature = "mpi")]
    world: std::mem::ManuallyDrop<gsplit_trainer::MpiWorld>,
}

impl Processes {
    /// Meets the other processes if that is `asked` for. Collective.
    pub fn join(asked: bool) -> anyhow::Result<Option<Self>> {
        if asked {
            return Self::meet().map(Some);
        }
        let size = |name: &&str| std::env::var(name).ok().and_then(|size| size.parse::<usize>().ok());
        match SIZES.iter().find_map(|name| size(name).filter(|&size| size > 1).map(|size| (name, size))) {
            Some((name, size)) => Err(usage(format!(
                "--mpi is missing: a launcher has started {size} processes ({name}); pass it, under mpirun or srun, or start \
                 one process, whose --ranks are threads"
            ))),
            None => Ok(None),
        }
    }

    #[cfg(feature = "mpi")]
    fn meet() -> anyhow::Result<Self> {
        let world = gsplit_trainer::MpiWorld::start()?;
        let (process, size) = (Arc::new(Process::of_mpi(&world)), world.size());
        Ok(Self { process, size, world: std::mem::ManuallyDrop::new(world) })
    }

    #[cfg(not(feature = "mpi"))]
    fn meet() -> anyhow::Result<Self> {
        Err(usage(
            "--mpi: this gsplit was built without MPI: install one (Debian: libopenmpi-dev, libclang-dev), then `cargo build --release --features mpi`",
        ))
    }

    /// Whether this is the process that says what there is to say.
    pub fn leads(&self) -> bool {
        self.process.rank() == 0
    }

    /// Takes leave of the others. Collective.
    pub fn part(self) {
        #[cfg(feature = "mpi")]
        drop(std::mem::ManuallyDrop::into_inner(self.world));
    }
}
