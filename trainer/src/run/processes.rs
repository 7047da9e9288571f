//! Processes of one host: one budget, and one copy of the feature rows that stay in memory.
//!
//! Returns: the memory that a process shares with others, and the bytes that these have for feature
//! rows together; the same on each. Input: the budget of each process, and the memory that it uses
//! for other purposes. Idea: processes on one host that have opened the same file of features
//! share. The first of them makes anonymous memory, and the others open it by the number of its
//! process. If one cannot open it, e.g. in another container, each keeps rows of its own, within
//! its part of the budget. All processes exchange their needs, so all come to the same result. Then
//! the first reads the rows, while the others wait. Cost: three messages to all, and that wait, in
//! which the others would have read the same rows.

use gsplit_store::memory::shown;
use gsplit_store::{FeatureTable, HostMemory, MemoryAddress};
use serde::{Deserialize, Serialize};

use crate::job::hooks::Hooks;
use crate::ranks::hosts;
use crate::residence::cache::all_gather_json;
use crate::{Error, Result};

/// Location of a process, as sent to the others.
#[derive(Serialize, Deserialize)]
struct Residence {
    host: Vec<u8>,
    /// State of its file of features.
    file: Option<[i64; 5]>,
    memory: Result<MemoryAddress, String>,
}

/// Bytes that a process holds for other purposes than feature rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldBytes {
    /// The mapped graph.
    pub graph: u64,
    /// Mini-batches in flight.
    pub batches: u64,
    /// The program.
    pub program: u64,
}

/// Message of a process about its memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Needs {
    /// Its budget, if it has one.
    pub budget: Option<u64>,
    /// Bytes that it may take without a budget.
    pub free: u64,
    /// Bytes for other purposes than feature rows.
    pub held: HeldBytes,
    /// Bytes of the graph that have to be in memory.
    pub least_of_graph: u64,
    /// Bytes of all feature rows if they all have to fit, else 0.
    pub rows: u64,
}

/// Memory of the processes that share feature rows, or of one that shares none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SharedBudget {
    /// Bytes that they may hold.
    pub budget: u64,
    /// Bytes for other purposes than feature rows; the graph counts once, or only its share if it
    /// does not fit.
    pub held: HeldBytes,
    /// Bytes of the whole graph.
    pub graph: u64,
    /// Bytes for feature rows.
    pub left: u64,
    /// Bytes of these that the process that makes the memory can have.
    pub room: u64,
    /// Number of processes.
    pub processes: u64,
}

/// The processes of a run, grouped by the resources they share. A single one if ranks are threads.
#[derive(Debug)]
pub struct HostProcesses {
    rank: usize,
    /// For each rank the first rank of its host, the first there with its file, and the one whose
    /// memory has its rows.
    hosts: Vec<usize>,
    files: Vec<usize>,
    copies: Vec<usize>,
    memory: Option<HostMemory>,
    /// Reason for the user why processes of a host do not share.
    apart: Option<String>,
}

impl HostProcesses {
    /// Meets the processes of a run; this one reads `features`. Collective.
    pub fn meet(hooks: &Hooks, features: &FeatureTable) -> Result<Self> {
        let Some(process) = &hooks.process else {
            return Ok(Self::of(0, [vec![0], vec![0]], &[None]));
        };
        let (comm, own) = (process.comms().all(), HostMemory::new());
        let memory = own.as_ref().map_err(ToString::to_string);
        let memory = memory.and_then(|own| own.address().map_err(|error| error.to_string()));
        let all = all_gather_json(
            comm,
            &Residence { host: hosts::this(), file: features.file_state(), memory },
        )?;
        let first = |is_same: fn(&Residence, &Residence) -> bool| -> Vec<usize> {
            all.iter()
                .map(|one| all.iter().position(|other| is_same(one, other)).unwrap_or(0))
                .collect()
        };
        let hosts = first(|one, other| one.host == other.host);
        let files = first(|one, other| one.host == other.host && one.file == other.file);
        let (rank, owner) = (comm.rank(), files[comm.rank()]);
        let memory = match &all[owner].memory {
            _ if owner == rank => own.map_err(|error| error.to_string()),
            Ok(address) => HostMemory::open(address).map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        let problems = all_gather_json(comm, &memory.as_ref().err().cloned())?;
        let this = Self::of(rank, [hosts, files], &problems);
        let is_shared = this.ranks(&this.copies, rank).count() > 1;
        Ok(Self { memory: memory.ok().filter(|_| is_shared), ..this })
    }

    /// Groups processes by the first rank of each host and file; `problems` are the errors of
    /// opening shared memory.
    fn of(rank: usize, [hosts, files]: [Vec<usize>; 2], problems: &[Option<String>]) -> Self {
        let all = 0..files.len();
        let is_apart =
            |first| all.clone().any(|rank| files[rank] == first && problems[rank].is_some());
        let copies: Vec<usize> = files
            .iter()
            .enumerate()
            .map(|(rank, &first)| if is_apart(first) { rank } else { first })
            .collect();
        let refused = all.clone().find(|&rank| copies[rank] != files[rank]);
        let apart = refused.map(|refused| {
            let at = all
                .clone()
                .find(|&rank| files[rank] == files[refused] && problems[rank].is_some())
                .unwrap_or(refused);
            let (first, why) = (files[at], problems[at].as_deref().unwrap_or_default());
            format!(
                "each process of a host keeps feature rows of its own: rank {at} cannot open \
                     the memory of rank {first}: {why}"
            )
        });
        Self { rank, hosts, files, copies, memory: None, apart }
    }

    /// The ranks with the same value in `firsts` as `rank`.
    fn ranks<'a>(
        &self,
        firsts: &'a [usize],
        rank: usize,
    ) -> impl Iterator<Item = usize> + Clone + 'a {
        let first = firsts[rank];
        (0..firsts.len()).filter(move |&other| firsts[other] == first)
    }

    /// Memory that this process shares, if it does.
    pub fn memory(&self) -> Option<&HostMemory> {
        self.memory.as_ref()
    }

    /// Number of copies of the feature rows on this host if each process that does not share makes
    /// one.
    pub fn copies(&self) -> u64 {
        self.ranks(&self.hosts, self.rank).filter(|&rank| self.copies[rank] == rank).count() as u64
    }

    /// Line for the user if processes of a host have rows of their own.
    pub fn apart(&self) -> Option<&str> {
        self.apart.as_deref()
    }

    /// Budget of this process with its `needs`, together with the processes that share its rows.
    /// Collective.
    ///
    /// # Errors
    /// [`Error::Option`], the same in each process, if a budget is too small; errors of the
    /// communicator.
    pub fn budget(&self, hooks: &Hooks, needs: Needs) -> Result<SharedBudget> {
        let needs = match &hooks.process {
            Some(process) => all_gather_json(process.comms().all(), &needs)?,
            None => vec![needs],
        };
        self.divide(&needs)
    }

    fn divide(&self, needs: &[Needs]) -> Result<SharedBudget> {
        let count = |firsts: &[usize], rank: usize| self.ranks(firsts, rank).count() as u64;
        let each = |rank: usize| {
            let free =
                self.ranks(&self.hosts, rank).map(|other| needs[other].free).min().unwrap_or(0);
            let Needs { budget, held, least_of_graph, rows, .. } = needs[rank];
            let budget = budget.unwrap_or(held.program + free / count(&self.hosts, rank));
            let [graph, least] =
                [held.graph, least_of_graph].map(|bytes| bytes.div_ceil(count(&self.files, rank)));
            let rows = rows.div_ceil(count(&self.copies, rank));
            let left = budget.saturating_sub(held.batches + held.program).saturating_sub(rows);
            let graph = if graph <= left { graph } else { least.max(left / 2) };
            (budget, HeldBytes { graph, ..held })
        };
        let together = |rank: usize| {
            let ranks = self.ranks(&self.copies, rank);
            let sum =
                |of: &dyn Fn(HeldBytes) -> u64| ranks.clone().map(|rank| of(each(rank).1)).sum();
            let [graph, batches, program] =
                [sum(&|held| held.graph), sum(&|held| held.batches), sum(&|held| held.program)];
            let held = HeldBytes { graph, batches, program };
            let budget = ranks.clone().map(|rank| each(rank).0).fold(0, u64::saturating_add);
            let (left, processes) = (budget.saturating_sub(held.all()), count(&self.copies, rank));
            let room = if processes > 1 { left.min(needs[self.copies[rank]].free) } else { left };
            let graph =
                ranks.map(|rank| needs[rank].held.graph.div_ceil(count(&self.files, rank))).sum();
            SharedBudget { budget, held, graph, left, room, processes }
        };
        let given = || (0..needs.len()).filter(|&rank| needs[rank].budget.is_some());
        let lacking = given().map(each).filter(|(budget, held)| *budget < held.all());
        if let Some((budget, held)) = lacking.max_by_key(|(_, held)| held.all()) {
            return Err(held.refusal(budget, 0));
        }
        let crowded = given()
            .map(|rank| (together(rank), needs[rank].rows))
            .filter(|(all, rows)| *rows > all.left);
        if let Some((SharedBudget { budget, held, processes, .. }, rows)) =
            crowded.max_by_key(|(all, rows)| (all.held.all() + rows) / all.processes)
        {
            let [graph, batches, program, rows] = [held.graph, held.batches, held.program, rows]
                .map(|bytes| bytes.div_ceil(processes));
            return Err(HeldBytes { graph, batches, program }.refusal(budget / processes, rows));
        }
        Ok(together(self.rank))
    }

    /// Result of `make`, which fills the memory in the process that owns it before the others read
    /// it. Collective.
    pub fn in_turn<T>(&self, hooks: &Hooks, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(process) = &hooks.process else { return make() };
        let comm = process.comms().all();
        // Reading may take any time.
        comm.suspend_timeout(true);
        let made = match self.memory().is_none_or(HostMemory::is_own) {
            true => {
                let made = make()?;
                comm.barrier()?;
                made
            }
            false => {
                comm.barrier()?;
                make()?
            }
        };
        comm.suspend_timeout(false);
        Ok(made)
    }
}

impl HeldBytes {
    fn all(&self) -> u64 {
        self.graph + self.batches + self.program
    }

    /// Error for a `budget` that is too small for this and `rows` bytes of feature rows.
    fn refusal(&self, budget: u64, rows: u64) -> Error {
        let least = (self.all() + rows).div_ceil(1 << 20);
        let of_rows =
            if rows > 0 { format!("{} feature rows, ", shown(rows)) } else { String::new() };
        Error::Option(format!(
            "--memory: {} are too few, {of_rows}{self}: pass --memory {least}MiB or more, or a \
             smaller --batch-size or --fanouts",
            shown(budget)
        ))
    }
}

impl std::fmt::Display for HeldBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [graph, batches, program] = [self.graph, self.batches, self.program].map(shown);
        write!(
            f,
            "the graph takes {graph}, mini-batches in flight {batches}, the program {program}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn needs(budget: Option<u64>, held: [u64; 3], free: u64) -> Needs {
        let [graph, batches, program] = held.map(|mib| mib * MIB);
        let held = HeldBytes { graph, batches, program };
        Needs {
            budget: budget.map(|mib| mib * MIB),
            free: free * MIB,
            held,
            least_of_graph: held.graph,
            rows: 0,
        }
    }

    /// Four processes, two on each of two hosts; the two on the second have no file in common.
    fn two_hosts(rank: usize, problems: &[Option<String>]) -> HostProcesses {
        HostProcesses::of(rank, [vec![0, 0, 2, 2], vec![0, 0, 2, 3]], problems)
    }

    #[test]
    fn processes_of_a_host_divide_what_is_free_and_the_graph_counts_once() {
        let all = [
            needs(None, [100, 20, 30], 1000),
            needs(None, [100, 40, 50], 900),
            needs(None, [100, 20, 30], 500),
            needs(None, [100, 20, 30], 600),
        ];
        let of = |rank, problems: &[Option<String>]| {
            let SharedBudget { budget, held, left, room, processes, .. } =
                two_hosts(rank, problems).divide(&all).unwrap();
            assert_eq!((left, room), (budget - held.all(), left));
            ([budget, held.graph, left].map(|bytes| bytes / MIB), processes)
        };
        // The least free memory of any of them, and the programs, which are already loaded.
        let both = ([900 + 80, 100, 980 - 100 - 60 - 80], 2);
        assert_eq!([of(0, &[const { None }; 4]), of(1, &[const { None }; 4])], [both, both]);
        let alone = ([250 + 30, 100, 280 - 150], 1);
        assert_eq!([of(2, &[const { None }; 4]), of(3, &[const { None }; 4])], [alone, alone]);
        // One process cannot open the other's memory, so each has its part.
        let refused = [None, Some("it is in another container".to_string()), None, None];
        let parts = [([450 + 30, 50, 480 - 100], 1), ([450 + 50, 50, 500 - 140], 1)];
        assert_eq!([of(0, &refused), of(1, &refused)], parts);
        assert_eq!([0, 1, 2, 3].map(|rank| two_hosts(rank, &refused).copies()), [2; 4]);
        assert_eq!(
            [0, 1, 2, 3].map(|rank| two_hosts(rank, &[const { None }; 4]).copies()),
            [1, 1, 2, 2]
        );
        let told = two_hosts(3, &refused).apart.unwrap();
        assert!(
            told.contains("rank 1 cannot open the memory of rank 0: it is in another container"),
            "{told}"
        );
        assert!(two_hosts(0, &[const { None }; 4]).apart.is_none());
        // Rows are in the memory of the first process, whatever the budgets of the others.
        let given = [needs(Some(1000), [100, 20, 30], 300), needs(Some(1000), [100, 20, 30], 900)];
        let shared =
            HostProcesses::of(1, [vec![0, 0], vec![0, 0]], &[None, None]).divide(&given).unwrap();
        assert_eq!((shared.left, shared.room), (1800 * MIB, 300 * MIB));
    }

    #[test]
    fn a_budget_that_is_too_small_for_any_is_refused_alike_with_one_that_does() {
        let problem = |all: &[Needs]| {
            let told = |rank| match two_hosts(rank, &[const { None }; 4]).divide(all) {
                Ok(budget) => format!("{} MiB left", budget.left / MIB),
                Err(error) => error.to_string(),
            };
            assert_eq!([1, 2, 3].map(told), [(); 3].map(|()| told(0)));
            told(0)
        };
        let of =
            |budget| [20, 40, 20, 10].map(|batches| needs(Some(budget), [100, batches, 30], 1000));
        let line = problem(&of(149));
        assert!(
            line.starts_with("--memory: 149 MiB are too few, the graph takes 100 MiB"),
            "{line}"
        );
        assert!(
            line.contains("mini-batches in flight 20 MiB")
                && line.contains("pass --memory 150MiB or more"),
            "{line}"
        );
        // If all rows have to fit, they have to fit the memory of both.
        let with_rows = |budget| of(budget).map(|needs| Needs { rows: 101 * MIB, ..needs });
        let line = problem(&with_rows(200));
        assert!(
            line.contains("101 MiB feature rows, ")
                && line.contains("pass --memory 251MiB or more"),
            "{line}"
        );
        for (rank, left) in [(0, 2 * 251 - 220), (2, 101), (3, 111)] {
            assert_eq!(
                two_hosts(rank, &[const { None }; 4]).divide(&with_rows(251)).unwrap().left,
                left * MIB
            );
        }
        let of_one_host = &with_rows(160)[..2];
        let line = HostProcesses::of(0, [vec![0, 0], vec![0, 0]], &[None, None])
            .divide(of_one_host)
            .unwrap_err();
        assert!(line.to_string().contains(
            "50 MiB feature rows, the graph takes 50 MiB, mini-batches in flight 30 MiB"
        ));
        assert!(line.to_string().contains("pass --memory 161MiB or more"), "{line}");
    }

    #[test]
    fn a_graph_that_does_not_fit_has_half_of_what_is_left_or_the_least_of_it() {
        let of = |budget, rows| {
            let needs = Needs {
                least_of_graph: 40 * MIB,
                rows: rows * MIB,
                ..needs(Some(budget), [400, 20, 30], 1000)
            };
            let shared = HostProcesses::of(0, [vec![0], vec![0]], &[None]).divide(&[needs]);
            shared.map(|shared| {
                [shared.graph, shared.held.graph, shared.left].map(|bytes| bytes / MIB)
            })
        };
        assert_eq!(of(450, 0).unwrap(), [400, 400, 0]);
        assert_eq!(of(449, 0).unwrap(), [400, 199, 199]);
        assert_eq!((of(120, 0).unwrap(), of(90, 0).unwrap()), ([400, 40, 30], [400, 40, 0]));
        assert!(of(89, 0).unwrap_err().to_string().contains("--memory 90MiB or more"));
        // Rows that all have to fit come before edges.
        assert_eq!(
            (of(300, 150).unwrap(), of(240, 150).unwrap()),
            ([400, 50, 200], [400, 40, 150])
        );
        assert!(of(239, 150).unwrap_err().to_string().contains("--memory 240MiB or more"));
    }
}
