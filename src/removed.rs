//! Subcommands and options that are gone or have another name, and what to do instead: told for this release, then forgotten.

use std::ffi::OsString;

/// An entry for what is gone, and the remedy.
struct Removed {
    subcommands: &'static [&'static str],
    /// The option or the name that is gone, or an option and its value; none for the whole subcommand.
    words: &'static [&'static str],
    remedy: &'static str,
}

const fn removed(subcommands: &'static [&str], words: &'static [&str], remedy: &'static str) -> Removed {
    Removed { subcommands, words, remedy }
}

/// Remedy for the partitioners that met each vertex once.
const STREAMED: &str = "--partitioner multilevel cuts far less, with --memory SIZE also of graphs that do not fit";

const REMOVED: [Removed; 16] = [
    removed(&["bench"], &["table3"], "`gsplit compare DATASET --rounds 3` has the same seconds by phase"),
    removed(&["bench"], &["sweep"], "`gsplit compare DATASET --over ranks=1,2,4` has a table for each value"),
    removed(&["train", "run"], &["--exchange"], "rows alone cross between ranks: leave it out"),
    removed(&["pack"], &[], "`tar -I zstd -cf ds.tar.zst ds` packs a dataset with all that is in it"),
    removed(
        &["unpack"],
        &[],
        "`tar -xf ds.tar.zst` unpacks a dataset; one that gsplit pack made is unpacked by the version that made it",
    ),
    removed(&["train"], &["--topology", "hot"], "without --topology the graph goes where it fits, else name `pinned`"),
    removed(&["train", "compare", "run"], &["--batches"], "its name is --batches-per-epoch"),
    removed(&["train"], &["--mpi"], "processes that a launcher has started meet without it: leave it out"),
    removed(&["train"], &["--rendezvous-secret"], "docs/distributed.md says how to close the network: leave it out"),
    removed(&["train"], &["--epsilon"], "its name is --adam-epsilon"),
    removed(&["place"], &["--placement"], "its name is --rule"),
    removed(&["export"], &["--memory"], "its name is --buffer"),
    removed(&["convert", "run"], &["--split"], "its name is --split-name"),
    removed(&["partition"], &["--partitioner", "ldg"], STREAMED),
    removed(&["partition"], &["--partitioner", "fennel"], STREAMED),
    removed(&["partition"], &["--order"], "it was for ldg and fennel, which are gone too: leave it out"),
];

/// One line for the user whose command line, without the program, has what is gone.
pub fn answer(line: &[OsString]) -> Option<String> {
    // An option and its value are two words or one.
    let words: Vec<&str> = line.iter().flat_map(|word| word.to_str().unwrap_or_default().splitn(2, '=')).collect();
    let subcommand = line.iter().filter_map(|word| word.to_str()).find(|word| !word.starts_with('-'))?;
    let (gone, remedy) = find(subcommand, &words)?;
    let gone = [&[subcommand], gone].concat().join(" ");
    Some(format!("gsplit {gone} is no more: {remedy}"))
}

/// The words among `words` of a command line of `subcommand` that are gone, and the remedy.
pub fn find(subcommand: &str, words: &[&str]) -> Option<(&'static [&'static str], &'static str)> {
    let has = |gone: &[&str]| gone.is_empty() || words.windows(gone.len()).any(|words| words == gone);
    let mut all = REMOVED.iter().filter(|removed| removed.subcommands.contains(&subcommand));
    all.find(|removed| has(removed.words)).map(|removed| (removed.words, removed.remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Option<String> {
        answer(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_gone_is_told_with_its_remedy_and_nothing_else_is() {
        for Removed { subcommands, words, remedy } in REMOVED {
            for name in subcommands {
                let line = told(&format!("{name} ds {}", words.join(" "))).unwrap();
                assert!(line.ends_with(remedy), "{line}");
                if let [option, value] = words {
                    assert!(told(&format!("{name} {option}={value} ds")).is_some());
                }
            }
        }
        for line in
            ["inspect pack", "train ds --hidden 3", "--quiet", "evaluate ds --batches 3", "infer ds --split test"]
        {
            assert_eq!(told(line), None, "{line}");
        }
        assert_eq!(
            told("place ds --placement=peer").unwrap(),
            "gsplit place --placement is no more: its name is --rule"
        );
    }
}
