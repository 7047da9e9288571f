//! Hosts of the ranks, and a warning if a group spans several.
//!
//! The rows of a mini-batch move between the ranks of a group, and links between hosts are slow
//! compared with links within one: a group should stay on one host (GSplit, section 6.4).

use std::fs;

use gsplit_kernels::{Communicator, Route, all_gather_v};
use gsplit_store::Progress;

use crate::{Config, Result};

/// File with a random id that a kernel draws when it starts, different on every host.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Unique id of this host; empty if unknown.
pub fn this() -> Vec<u8> {
    fs::read(BOOT).unwrap_or_default()
}

/// Routes between this rank and each, if ranks are processes. On rank 0 warns `progress` if rows
/// cross between hosts, with a remedy. Collective.
pub fn routes(
    comm: &dyn Communicator,
    config: &Config,
    progress: &dyn Progress,
) -> Result<Vec<Route>> {
    // Hosts without an id count as one.
    let hosts = all_gather_v(comm, &this())?;
    match told(&hosts, config.system.groups) {
        Some(line) if comm.rank() == 0 && config.split_layers() > 0 => progress.note(&line),
        _ => {}
    }
    let here = &hosts[comm.rank()];
    Ok(hosts.iter().map(|host| if host == here { Route::Host } else { Route::Network }).collect())
}

/// Warning about ranks on `hosts`, in `groups` equal groups, if any.
fn told<H: PartialEq>(hosts: &[H], groups: usize) -> Option<String> {
    let beyond = |group: &[H]| group.iter().any(|host| *host != group[0]);
    let group = hosts.chunks(hosts.len() / groups).position(beyond)?;
    // If each rank has a host of its own, no grouping could keep rows within one.
    let is_alone = |host: &H| hosts.iter().filter(|other| *other == host).count() == 1;
    (!hosts.iter().all(is_alone)).then(|| {
        format!(
            "note: rows that the ranks of group {group} exchange cross between hosts: give all \
             hosts equal numbers of ranks that follow \
             each other (srun --distribution=block), and pass as many --groups as there are hosts"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_beyond_a_host_are_told_of() {
        for (hosts, groups, words) in [
            ("aaaa", 1, None),
            ("aaaa", 2, None),
            ("aabb", 2, None),
            ("aabb", 4, None),
            ("ab", 1, None),
            ("aaaabbbb", 1, Some("as many --groups as there are hosts")),
            ("aabbcc", 2, Some("ranks of group 0 ")),
            ("aabbcc", 3, None),
            ("abab", 2, Some("ranks of group 0 ")),
            ("aabaab", 2, Some("--distribution=block")),
            ("aaaabb", 3, None),
            ("aaaaabbb", 2, Some("ranks of group 1 ")),
        ] {
            let line = told(hosts.as_bytes(), groups);
            match words {
                None => assert_eq!(line, None, "{hosts}"),
                Some(words) => assert!(
                    line.as_ref().is_some_and(|line| line.contains(words)),
                    "{hosts}: {line:?}"
                ),
            }
        }
    }
}
