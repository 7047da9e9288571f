//! How much memory is left for this process.
//!
//! Returns the least of what the machine can give (`MemAvailable`) and what is left in each memory control group that
//! confines this process (version 1 or 2): limit less usage, where cached files do not count as used.
//! Where the system tells nothing, everything is assumed to be there. Cost: a few small files read.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory that is still to be had.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    available: u64,
}

impl Memory {
    /// What this machine, or what confines this process on it, has left now.
    pub fn of_this_machine() -> Self {
        Self::below(Path::new("/"))
    }

    /// So many bytes.
    pub fn of(available: u64) -> Self {
        Self { available }
    }

    /// Bytes.
    pub fn available(&self) -> u64 {
        self.available
    }

    /// As the files below `root` tell.
    fn below(root: &Path) -> Self {
        let machine = field(&root.join("proc/meminfo"), "MemAvailable:").and_then(|kib| kib.checked_mul(1024));
        let groups = control_groups(root).into_iter().filter_map(|group| group.left());
        Self { available: groups.chain(machine).min().unwrap_or(u64::MAX) }
    }
}

/// A memory control group: its folder, and what the version calls things.
struct ControlGroup {
    folder: PathBuf,
    names: [&'static str; 3],
}

const VERSION_1: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
const VERSION_2: [&str; 3] = ["memory.max", "memory.current", "inactive_file"];

/// The groups of this process and those above them. Within a container their path may not exist; the root is then theirs.
fn control_groups(root: &Path) -> Vec<ControlGroup> {
    let mut groups = Vec::new();
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (mount, names) = match controllers {
            "" => ("sys/fs/cgroup", VERSION_2),
            _ if controllers.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", VERSION_1),
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        groups.extend(path.ancestors().map(|path| ControlGroup { folder: root.join(mount).join(path), names }));
    }
    groups
}

impl ControlGroup {
    /// Bytes left below the limit, `None` where there is no limit.
    fn left(&self) -> Option<u64> {
        let number = |name| fs::read_to_string(self.folder.join(name)).ok()?.trim().parse::<u64>().ok();
        let [limit, usage, cached] = self.names;
        let (limit, usage) = (number(limit)?, number(usage)?);
        let cached = field(&self.folder.join("memory.stat"), cached).unwrap_or(0);
        Some(limit.saturating_sub(usage.saturating_sub(cached)))
    }
}

/// The number after `name` in a file of lines `NAME NUMBER ...`.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = text.lines().map(str::split_whitespace);
    fields.find_map(|mut line| if line.next() == Some(name) { line.next()?.parse().ok() } else { None })
}

/// `bytes` for people, as `1.5 GiB`.
pub fn shown(bytes: u64) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let mib = bytes as f64 / MIB;
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn available(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Memory::below(root.path()).available()
    }

    #[test]
    fn the_tightest_bound_counts() {
        let machine = ("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
        assert_eq!(available(&[]), u64::MAX);
        assert_eq!(available(&[machine]), 8000 << 10);
        // Version 2: the limit stands in a group above; cached files are not in use.
        let mine = ("proc/self/cgroup", "0::/jobs/one\n");
        let files = [
            machine,
            mine,
            ("sys/fs/cgroup/jobs/one/memory.max", "max\n"),
            ("sys/fs/cgroup/jobs/one/memory.current", "700000\n"),
            ("sys/fs/cgroup/jobs/memory.max", "1000000\n"),
            ("sys/fs/cgroup/jobs/memory.current", "800000\n"),
            ("sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 300000\n"),
        ];
        assert_eq!(available(&files), 500_000);
        // Version 1, seen from within a container: the path of the group is not there, the root is the group.
        let files = [
            machine,
            ("proc/self/cgroup", "5:cpu:/\n4:memory:/docker/abc\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"),
        ];
        assert_eq!(available(&files), 0);
        assert!(Memory::of_this_machine().available() > 0);
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(shown(300 << 20), "300 MiB");
        assert_eq!(shown(3 << 29), "1.5 GiB");
    }
}
