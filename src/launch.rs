//! Environment variables in which a launcher gives each process its rank, the number of ranks and
//! the address of rank 0.

use std::fmt::{self, Display};

/// Names of a launcher's variables.
struct Launcher {
    name: &'static str,
    /// The rank, the number of ranks, the rank within its host, and the number of ranks there.
    variables: [&'static str; 4],
    /// Variables that name the run.
    run: &'static [&'static str],
}

/// Launchers by priority: torchrun and mpirun may run inside a Slurm job.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        variables: ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"],
        run: &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
    },
    Launcher {
        name: "mpirun",
        variables: [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ],
        run: &["PMIX_NAMESPACE"],
    },
    Launcher {
        name: "mpiexec",
        variables: ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
        run: &["PMI_JOBID"],
    },
    Launcher {
        name: "srun",
        variables: ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"],
        run: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

/// Variables with the host and port of rank 0.
const ADDRESS: [&str; 2] = ["MASTER_ADDR", "MASTER_PORT"];
/// First of the ports that are derived from the names of runs.
const PORTS: u64 = 15_000;
const NUM_PORTS: u64 = 10_000;

/// One of several processes started by a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The launcher.
    pub by: &'static str,
    /// The rank of this process, from 0.
    pub rank: usize,
    /// The number of processes.
    pub size: usize,
    /// The number of this process within its host, from 0.
    pub local: Option<usize>,
    /// The name of the run, the same for all; may be empty.
    pub run: String,
    /// Host and port of rank 0, if known.
    pub address: Option<(String, u16)>,
}

impl Launch {
    /// Reads the environment; `None` if no launcher has started this process.
    pub fn found() -> Result<Option<Self>, String> {
        Self::from(&|name| std::env::var(name).ok())
    }

    /// Whether a launcher has started several processes.
    pub fn has_several() -> bool {
        Self::found().is_ok_and(|launch| launch.is_some_and(|launch| launch.size > 1))
    }

    /// Reads variables from `variable`, which gives the value of a name.
    fn from(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        for launcher in &LAUNCHERS {
            let [of_rank, of_size, of_local, _] = launcher.variables;
            // Other programs set WORLD_SIZE too; and the batch script of a job has all variables of
            // srun but the one of its steps, and is a single process.
            let sign = match launcher.name {
                "torchrun" => of_rank,
                "srun" => "SLURM_STEP_ID",
                _ => of_size,
            };
            if [of_size, sign].iter().any(|name| variable(name).is_none()) {
                continue;
            }
            let number = |name: &str| -> Result<Option<usize>, String> {
                let Some(text) = variable(name) else { return Ok(None) };
                text.trim().parse().map(Some).map_err(|_| {
                    format!("{name}={text}: expected a number, as {} sets it", launcher.name)
                })
            };
            let needed = |name: &str| {
                number(name)?.ok_or_else(|| {
                    format!("{of_size} is set, {name} is not: {} sets both", launcher.name)
                })
            };
            let (rank, size) = (needed(of_rank)?, needed(of_size)?);
            if rank >= size {
                return Err(format!(
                    "{of_rank}={rank} but {of_size}={size}: ranks are counted from 0"
                ));
            }
            let local = number(of_local)?;
            let run: Vec<String> = launcher.run.iter().filter_map(|name| variable(name)).collect();
            let address = address(launcher, &run, variable)?;
            return Ok(Some(Self {
                by: launcher.name,
                rank,
                size,
                local,
                run: run.join("."),
                address,
            }));
        }
        Ok(None)
    }
}

impl Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}, started by {}", self.rank, self.size, self.by)?;
        self.local.map_or(Ok(()), |local| write!(f, ", process {local} of its host"))?;
        self.address.as_ref().map_or(Ok(()), |(host, port)| write!(f, ", rank 0 at {host}:{port}"))
    }
}

/// Host and port of rank 0, if the launcher gives them.
fn address(
    launcher: &Launcher,
    run: &[String],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<(String, u16)>, String> {
    if let (Some(host), Some(port)) = (variable(ADDRESS[0]), variable(ADDRESS[1])) {
        // torchrun's own store listens at the port itself.
        let next = port.trim().parse::<u16>().ok().and_then(|port| port.checked_add(1));
        return match next {
            Some(port) => Ok(Some((host, port))),
            None => Err(format!("{}={port}: expected a port below 65535", ADDRESS[1])),
        };
    }
    let hosts = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"]
        .iter()
        .find_map(|name| variable(name));
    match (launcher.name, hosts.as_deref().and_then(first_host)) {
        ("srun", Some(host)) => {
            let number = |name| variable(name).and_then(|text| text.trim().parse::<u64>().ok());
            let [job, step] =
                ["SLURM_JOB_ID", "SLURM_STEP_ID"].map(|name| number(name).unwrap_or(0));
            // Consecutive jobs get different ports, and so do their steps.
            Ok(Some((host, (PORTS + (job.wrapping_mul(7).wrapping_add(step)) % NUM_PORTS) as u16)))
        }
        // All ranks are on this host, and the run has a name.
        _ if variable(launcher.variables[1]) == variable(launcher.variables[3]) => {
            let sum = run
                .concat()
                .bytes()
                .fold(0u64, |sum, byte| (sum * 31 + u64::from(byte)) % NUM_PORTS);
            let address = ("127.0.0.1".to_string(), (PORTS + sum) as u16);
            Ok((!run.is_empty()).then_some(address))
        }
        _ => Ok(None),
    }
}

/// The first of the hosts in a Slurm list: `node03` for `node[03-05,9],login`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (prefix, rest) = list.split_at(end);
    let Some(inside) = rest.strip_prefix('[') else {
        return Some(prefix.trim().to_string()).filter(|host| !host.is_empty());
    };
    let (inside, behind) = inside.split_once(']')?;
    let first = inside.split([',', '-']).next()?;
    let suffix = behind.split([',', '[']).next().unwrap_or_default();
    Some(format!("{prefix}{first}{suffix}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn from(variables: &str) -> Result<Option<Launch>, String> {
        let pairs: Vec<(&str, &str)> =
            variables.split_whitespace().filter_map(|pair| pair.split_once('=')).collect();
        Launch::from(&|name| {
            pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_string())
        })
    }

    #[test]
    fn every_launcher_is_understood() {
        let slurm = "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=1234 \
                     SLURM_STEP_NODELIST=gpu[03-04]";
        let torchrun = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=10.0.0.7 MASTER_PORT=29500 \
                        TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0";
        let mpirun = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 PMIX_NAMESPACE=77";
        let at = |host: &str, port| Some((host.to_string(), port));
        for (variables, by, rank, size, local, run, address) in [
            (torchrun.to_string(), "torchrun", 5, 8, Some(1), "none.0", at("10.0.0.7", 29501)),
            (mpirun.to_string(), "mpirun", 0, 2, Some(0), "77", None),
            (
                format!("{mpirun} MASTER_ADDR=a MASTER_PORT=9"),
                "mpirun",
                0,
                2,
                Some(0),
                "77",
                at("a", 10),
            ),
            (
                format!("{mpirun} OMPI_COMM_WORLD_LOCAL_SIZE=2"),
                "mpirun",
                0,
                2,
                Some(0),
                "77",
                at("127.0.0.1", 16_760),
            ),
            (format!("{mpirun} OMPI_COMM_WORLD_LOCAL_SIZE=1"), "mpirun", 0, 2, Some(0), "77", None),
            (
                "PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1".to_string(),
                "mpiexec",
                1,
                3,
                Some(1),
                "",
                None,
            ),
            (slurm.to_string(), "srun", 3, 4, Some(1), "1234.0", at("gpu03", 15_000 + 8638)),
            // Inside a Slurm job the inner launcher counts.
            (
                format!("{slurm} {torchrun}"),
                "torchrun",
                5,
                8,
                Some(1),
                "none.0",
                at("10.0.0.7", 29501),
            ),
            (format!("{slurm} {mpirun}"), "mpirun", 0, 2, Some(0), "77", None),
            ("RANK=0 WORLD_SIZE=1".to_string(), "torchrun", 0, 1, None, "", None),
        ] {
            let found = from(&variables).unwrap().unwrap();
            assert_eq!(
                (found.by, found.rank, found.size, found.local),
                (by, rank, size, local),
                "{variables}"
            );
            assert_eq!((found.run.as_str(), found.address), (run, address), "{variables}");
        }
    }

    #[test]
    fn a_process_that_nobody_launched_is_alone() {
        for variables in [
            "",
            "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=3",
            "MASTER_ADDR=a MASTER_PORT=b",
            "LOCAL_RANK=1",
            "WORLD_SIZE=4",
        ] {
            assert_eq!(from(variables), Ok(None), "{variables}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_said_in_one_line() {
        for (variables, words) in [
            ("RANK=x WORLD_SIZE=2", "RANK=x: expected a number, as torchrun sets it"),
            ("RANK=1 WORLD_SIZE=-2", "WORLD_SIZE=-2: expected a number"),
            ("RANK=2 WORLD_SIZE=2", "RANK=2 but WORLD_SIZE=2: ranks are counted from 0"),
            ("RANK=0 WORLD_SIZE=0", "ranks are counted from 0"),
            ("RANK=0 WORLD_SIZE=2 LOCAL_RANK=one", "LOCAL_RANK=one: expected a number"),
            (
                "OMPI_COMM_WORLD_SIZE=2",
                "OMPI_COMM_WORLD_SIZE is set, OMPI_COMM_WORLD_RANK is not: mpirun sets both",
            ),
            ("PMI_SIZE=2", "PMI_RANK is not"),
            (
                "RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=65535",
                "MASTER_PORT=65535: expected a port below 65535",
            ),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=http", "MASTER_PORT=http"),
        ] {
            let told = from(variables).unwrap_err();
            assert!(told.contains(words) && !told.contains('\n'), "{variables}: {told}");
        }
    }

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for (list, host) in [
            ("login", Some("login")),
            ("gpu03,gpu07", Some("gpu03")),
            ("gpu[03-05,9],login", Some("gpu03")),
            ("rack[1,3]-ib,x", Some("rack1-ib")),
            ("a.b.c", Some("a.b.c")),
            ("", None),
            ("node[1-", None),
        ] {
            assert_eq!(first_host(list).as_deref(), host, "{list}");
        }
    }
}
