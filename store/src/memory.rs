//! Memory that this process may use and that it uses.
//!
//! A process is confined by its machine and by each memory control group from its own
//! (`/proc/self/cgroup`) up to the root, version 1 or 2, as Slurm, systemd and containers make
//! them. In all it may take the smallest of the machine's memory and the groups' limits. Free is
//! the least of the available memory of the machine (`MemAvailable`) and of each group's limit
//! minus its usage, where cached files do not count as used. Cost: reading a few small files.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes assumed if the system gives no number.
const UNKNOWN: u64 = 8 << 30;

/// Memory of this process: in all, and still to be had.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    /// Memory that this machine, or what confines this process on it, has now.
    pub fn of_this_machine() -> Self {
        Self::below(Path::new("/"))
    }

    /// `bytes` bytes, all of them free.
    pub fn of(bytes: u64) -> Self {
        Self { total: bytes, available: bytes }
    }

    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that are free.
    pub fn available(&self) -> u64 {
        self.available
    }

    /// Reads the memory from the files below `root`.
    fn below(root: &Path) -> Self {
        let machine =
            |name| field(&root.join("proc/meminfo"), name).and_then(|kib| kib.checked_mul(1024));
        let groups = control_groups(root);
        let limits = groups.iter().filter_map(ControlGroup::limit);
        let total = limits.chain(machine("MemTotal:")).min().unwrap_or(UNKNOWN);
        let left = groups.iter().filter_map(ControlGroup::left).chain(machine("MemAvailable:"));
        Self { total, available: left.fold(total, u64::min) }
    }
}

/// Bytes that this process holds. Mapped files, libraries among them, are the page cache's and do
/// not count.
pub fn resident() -> u64 {
    field(Path::new("/proc/self/status"), "RssAnon:").map_or(0, |kib| kib.saturating_mul(1024))
}

/// Bytes of mapped files, libraries among them, that are resident for this process.
pub fn mapped() -> u64 {
    field(Path::new("/proc/self/status"), "RssFile:").map_or(0, |kib| kib.saturating_mul(1024))
}

/// A memory control group: its folder, its files of limits and of usage, and the line of
/// `memory.stat` that counts cached files.
struct ControlGroup {
    folder: PathBuf,
    limits: &'static [&'static str],
    usage: &'static str,
    cached: &'static str,
}

/// The groups of this process and those above them. Within a container their path may not exist;
/// the root is then theirs.
fn control_groups(root: &Path) -> Vec<ControlGroup> {
    let mut groups = Vec::new();
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (mount, limits, usage, cached) = match controllers {
            // Above `high` a process is slowed down rather than killed, until nothing moves.
            "" => (
                "sys/fs/cgroup",
                &["memory.max", "memory.high"][..],
                "memory.current",
                "inactive_file",
            ),
            _ if controllers.split(',').any(|name| name == "memory") => {
                let limits = &["memory.limit_in_bytes"][..];
                ("sys/fs/cgroup/memory", limits, "memory.usage_in_bytes", "total_inactive_file")
            }
            _ => continue,
        };
        let group =
            |path| ControlGroup { folder: root.join(mount).join(path), limits, usage, cached };
        groups.extend(Path::new(path.trim_start_matches('/')).ancestors().map(group));
    }
    groups
}

impl ControlGroup {
    /// Maximum bytes of its processes, `None` without a limit.
    fn limit(&self) -> Option<u64> {
        self.limits.iter().filter_map(|name| self.number(name)).min()
    }

    /// Bytes left below the limit, `None` without a limit.
    fn left(&self) -> Option<u64> {
        let (limit, usage) = (self.limit()?, self.number(self.usage)?);
        let cached = field(&self.folder.join("memory.stat"), self.cached).unwrap_or(0);
        Some(limit.saturating_sub(usage.saturating_sub(cached)))
    }

    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(name)).ok()?.trim().parse().ok()
    }
}

/// The number after `name` in a file of lines `NAME NUMBER ...`.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = text.lines().map(str::split_whitespace);
    fields.find_map(
        |mut line| if line.next() == Some(name) { line.next()?.parse().ok() } else { None },
    )
}

/// The number of bytes in `4GiB`, `1.5 gb` or `800`; `None` for other text, and below one byte or
/// beyond 64 bits.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (value, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1_048_576.0,
        "g" | "gib" => 1_073_741_824.0,
        "t" | "tib" => 1_099_511_627_776.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return None,
    };
    let bytes = parse_decimal(value)? * factor;
    (bytes >= 1.0 && bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// A plain decimal number: no sign, no exponent, no names.
pub fn parse_decimal(text: &str) -> Option<f64> {
    let text = text.trim();
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    if plain { text.parse().ok() } else { None }
}

/// Formats `bytes` for people, e.g. `1.5 GiB`.
pub fn shown(bytes: u64) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let mib = bytes as f64 / MIB;
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Total and free bytes that a system with these files reports.
    fn told(files: &[(&str, &str)]) -> (u64, u64) {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let memory = Memory::below(root.path());
        (memory.total(), memory.available())
    }

    #[test]
    fn the_tightest_bound_counts() {
        let machine = ("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
        assert_eq!(told(&[]), (UNKNOWN, UNKNOWN));
        assert_eq!(told(&[machine]), (9000 << 10, 8000 << 10));
        // Version 2: the limit is set in a group above; cached files do not count as used.
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
        assert_eq!(told(&files), (1_000_000, 500_000));
        // Nested groups, as systemd makes them: the path of the process itself counts, and `high`
        // limits like `max`.
        let unit = "sys/fs/cgroup/user.slice/user-0.slice/run-1.scope";
        let mine = ("proc/self/cgroup", "0::/user.slice/user-0.slice/run-1.scope\n");
        let [max, high, current] =
            ["max", "high", "current"].map(|name| format!("{unit}/memory.{name}"));
        let slice = ("sys/fs/cgroup/user.slice/memory.max", "3000000\n");
        let mut files = vec![
            machine,
            mine,
            slice,
            (&max, "400000\n"),
            (&high, "max\n"),
            (&current, "100000\n"),
        ];
        assert_eq!(told(&files), (400_000, 300_000));
        files.push((&high, "250000\n"));
        assert_eq!(told(&files), (250_000, 150_000));
        // A group of another process does not.
        let other = ("proc/self/cgroup", "0::/user.slice/user-0.slice\n");
        assert_eq!(told(&[machine, other, slice, (&max, "400000\n")]).0, 3_000_000);
        // Slurm's job and step, version 1, next to controllers of other kinds.
        let files = [
            machine,
            (
                "proc/self/cgroup",
                "7:cpuset:/slurm/job_7\n4:freezer,memory:/slurm/job_7/step_0\n1:name=systemd:/\n",
            ),
            (
                "sys/fs/cgroup/memory/slurm/job_7/step_0/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "2000000\n"),
            ("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "500000\n"),
            ("sys/fs/cgroup/cpuset/slurm/job_7/memory.limit_in_bytes", "1\n"),
        ];
        assert_eq!(told(&files), (2_000_000, 1_500_000));
        // Version 1, seen from within a container: the path of the group is not there, the root is
        // the group.
        let files = [
            machine,
            ("proc/self/cgroup", "5:cpu:/\n4:memory:/docker/abc\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"),
        ];
        assert_eq!(told(&files), (4096, 0));
        let memory = Memory::of_this_machine();
        assert!(memory.available() > 0 && memory.available() <= memory.total() && resident() > 0);
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(shown(300 << 20), "300 MiB");
        assert_eq!(shown(3 << 29), "1.5 GiB");
    }
}
