//! Profile of a machine, or of several: the rates by which the cost model divides.
//!
//! A profile is a TOML file. `gsplit doctor --profile FILE` measures one; the profiles in
//! `profiles/` are built in, each number with its source. A rate is the rate of one rank, except
//! where ranks share the cores of a host (`shared`): there it is the rate of all of them together.

use anyhow::{Context, anyhow, bail};
use gsplit_store::{DiskRates, read_text};
use gsplit_trainer::{Device, Dtype};
use serde::{Deserialize, Serialize};

/// Built-in profiles, by name.
pub const SHIPPED: [(&str, &str); 9] = [
    ("cpu-2", include_str!("../../profiles/cpu-2.toml")),
    ("v100-4-nvlink", include_str!("../../profiles/v100-4-nvlink.toml")),
    ("v100-4-pcie", include_str!("../../profiles/v100-4-pcie.toml")),
    ("a100-4", include_str!("../../profiles/a100-4.toml")),
    ("h100-8", include_str!("../../profiles/h100-8.toml")),
    ("rtx4090-4", include_str!("../../profiles/rtx4090-4.toml")),
    ("hosts-2-100g", include_str!("../../profiles/hosts-2-100g.toml")),
    ("hosts-8-10g", include_str!("../../profiles/hosts-8-10g.toml")),
    ("cpu-cluster-4", include_str!("../../profiles/cpu-cluster-4.toml")),
];

/// A machine, or several identical ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Description, for people.
    pub about: String,
    /// Device that ranks compute on.
    pub device: Device,
    pub hosts: usize,
    /// GPUs per host; on a CPU there may be any number of ranks.
    pub ranks: usize,
    /// Whether the ranks of a host share its cores and memory: each can use the part that others
    /// leave free.
    pub shared: bool,
    /// Bytes of memory per GPU, or per host if ranks share it.
    pub memory: f64,
    /// Sampled edges per second: drawing and relabelling.
    pub sampled_edges: f64,
    /// Bytes per second of rows read at random from the memory of the ranks' device.
    pub rows: f64,
    /// Bytes per second of sequential reads or writes there.
    pub stream: f64,
    /// Seconds per layer and direction in addition to its work: launches, or threads that start and
    /// stop.
    pub layer: f64,
    /// Operations per second of dense products.
    pub dense: Dense,
    /// Link from one rank of a host to the others.
    pub peer: Link,
    /// Pairs of ranks of a host with their own link.
    #[serde(default, rename = "pair", skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<Pair>,
    /// Link from the host's memory to a GPU.
    pub bus: Option<Link>,
    /// Link from one host to another.
    pub network: Option<Link>,
    /// Rates of a host's reads from the disk of the datasets.
    pub disk: Option<DiskRates>,
}

/// Operations per second by type of the factors; a multiplication and an addition count as two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dense {
    pub f32: f64,
    /// bf16, summed in f32.
    pub bf16: f64,
}

/// A link from one memory to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bytes per second that a rank sends, or receives, while all others do too.
    pub bytes: f64,
    /// Seconds for a short message to arrive, in a collective of all ranks.
    pub latency: f64,
}

/// The link between two ranks of a host, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The ranks, numbered within their host.
    pub ranks: [usize; 2],
    /// Bytes per second that cross it while all other links are busy.
    pub bytes: f64,
    /// Seconds for a short message to arrive.
    pub latency: f64,
}

impl Link {
    /// Seconds for `messages` messages of `bytes` in total.
    pub fn seconds(self, bytes: f64, messages: f64) -> f64 {
        bytes / self.bytes + messages * self.latency
    }
}

impl Dense {
    pub fn of(self, dtype: Dtype) -> f64 {
        if dtype == Dtype::F32 { self.f32 } else { self.bf16 }
    }
}

impl Profile {
    /// The built-in profile with this name, or the profile in the file `name`.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        if let Some((_, text)) = SHIPPED.iter().find(|(known, _)| *known == name) {
            return Self::parse(text).with_context(|| format!("profile {name}"));
        }
        let known = SHIPPED.map(|(name, _)| name).join(", ");
        let text = read_text(name).map_err(|cause| {
            anyhow!(
                "--profile {name}: {cause}; give a file that `gsplit doctor --profile FILE` wrote, \
                 or one of {known}"
            )
        })?;
        Self::parse(&text).with_context(|| name.to_string())
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let (profile, numbers): (Self, toml::Table) =
            match toml::from_str(text).and_then(|profile| Ok((profile, text.parse()?))) {
                Ok(both) => both,
                Err(error) => {
                    let line = error.span().map_or(1, |span| {
                        1 + text[..span.start.min(text.len())].matches('\n').count()
                    });
                    bail!("line {line}: {}", error.message().trim().replace('\n', " "))
                }
            };
        numbers.iter().try_for_each(|(name, value)| check(name, value))?;
        for Pair { ranks: [a, b], .. } in &profile.pairs {
            let sound = a != b && a.max(b) < &profile.ranks;
            anyhow::ensure!(
                sound,
                "pair ranks = [{a}, {b}]: expected two ranks below {}",
                profile.ranks
            );
        }
        anyhow::ensure!(
            profile.hosts == 1 || profile.network.is_some(),
            "{} hosts need a [network]",
            profile.hosts
        );
        anyhow::ensure!(
            profile.device == Device::Cpu || profile.bus.is_some(),
            "GPUs need a [bus] from the host's memory"
        );
        Ok(profile)
    }

    /// The link by which each of `ranks` ranks of a host sends equally to all others: limited by
    /// its ports and by the slowest pair.
    pub fn among(&self, ranks: usize) -> Link {
        let within = self.pairs.iter().filter(|pair| pair.ranks.iter().all(|&rank| rank < ranks));
        within.fold(self.peer, |link, pair| Link {
            bytes: link.bytes.min((ranks - 1) as f64 * pair.bytes),
            latency: link.latency.max(pair.latency),
        })
    }

    /// Makes the links between the ranks of a host `times` as fast.
    pub fn scale_peers(&mut self, times: f64) {
        self.peer.bytes *= times;
        self.pairs.iter_mut().for_each(|pair| pair.bytes *= times);
    }

    /// The profile as the text of a file.
    pub fn text(&self) -> anyhow::Result<String> {
        Ok(toml::to_string(self)?)
    }
}

/// Fails unless all numbers in `value`, which is called `name`, are above 0; seconds and the ranks
/// of a pair may be 0.
fn check(name: &str, value: &toml::Value) -> anyhow::Result<()> {
    let number = match value {
        toml::Value::Integer(number) => *number as f64,
        toml::Value::Float(number) => *number,
        toml::Value::Array(items) => return items.iter().try_for_each(|item| check(name, item)),
        toml::Value::Table(fields) => {
            return fields
                .iter()
                .try_for_each(|(field, value)| check(&format!("{name}.{field}"), value));
        }
        _ => return Ok(()),
    };
    let may_be_0 = name == "layer" || name == "pair.ranks" || name.ends_with(".latency");
    let expected = if may_be_0 { "from 0" } else { "above 0" };
    let fits = number.is_finite() && (number > 0.0 || may_be_0 && number == 0.0);
    anyhow::ensure!(fits, "{name} = {number}: expected a number {expected}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_that_are_built_in_are_sound_and_say_where_their_numbers_are_from() {
        for (name, text) in SHIPPED {
            let profile = Profile::named(name).unwrap();
            assert_eq!(Profile::parse(&profile.text().unwrap()).unwrap(), profile, "{name}");
            for line in text.lines().filter(|line| line.contains(" = ")) {
                let is_number = line
                    .split_once(" = ")
                    .is_some_and(|(_, value)| value.starts_with(|c: char| c.is_ascii_digit()));
                assert!(
                    !is_number || line.contains('#'),
                    "{name}: a number without its source: {line}"
                );
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_profile_is_said_with_its_line() {
        let (_, good) = SHIPPED[0];
        for (from, to, told) in [
            ("shared = true", "shared = 7", "line "),
            ("\nlayer", "\nlayers", "unknown field `layers`"),
            ("hosts = 1", "hosts = 0", "hosts = 0: expected a number above 0"),
            ("hosts = 1", "hosts = 2", "2 hosts need a [network]"),
            (
                "\n[dense]",
                "\n[[pair]]\nranks = [1, 1]\nbytes = 1e9\nlatency = 0\n\n[dense]",
                "pair ranks = [1, 1]",
            ),
            (
                "\n[dense]",
                "\n[[pair]]\nranks = [0, 2]\nbytes = 1e9\nlatency = 0\n\n[dense]",
                "two ranks below 2",
            ),
            ("device = \"cpu\"", "device = \"cuda\"", "GPUs need a [bus]"),
            (
                "\n[dense]",
                "\n[disk]\nby = \"x\"\nrandom = [1, 2, 0, 4]\nstream = 1e9\n\n[dense]",
                "disk.random = 0: expected a number above 0",
            ),
            ("\n[dense]", "\n[disk]\nrandom = [1, 2]\nstream = 1e9\n\n[dense]", "line "),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Profile::parse(&good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(told) && !error.contains('\n'), "{told}: {error}");
        }
        let error = Profile::named("none-such").unwrap_err().to_string();
        assert!(error.contains("doctor --profile FILE") && error.contains("a100-4"), "{error}");
    }
}
