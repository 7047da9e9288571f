//! Subcommands and options that are gone, and what to do instead: told for this release, then forgotten.

use std::ffi::OsString;

/// A subcommand with the words that are gone, none for the whole of it; and the remedy.
const REMOVED: &[(&str, &[&str], &str)] = &[
    ("bench", &["table3"], "`gsplit compare DATASET --rounds 3` has the same seconds by phase"),
    ("bench", &["sweep"], "`gsplit compare DATASET --over ranks=1,2,4` has a table for each value"),
    ("train", &["--exchange"], "rows alone cross between ranks: leave it out"),
    ("run", &["--exchange"], "rows alone cross between ranks: leave it out"),
    ("pack", &[], "`tar -I zstd -cf ds.tar.zst ds` packs a dataset with all that is in it"),
    (
        "unpack",
        &[],
        "`tar -xf ds.tar.zst` unpacks a dataset; one that gsplit pack made is unpacked by the version that made it",
    ),
    ("train", &["--topology", "hot"], "without --topology the graph goes where it fits, else name `pinned`"),
];

/// One line for the user whose command line, without the program, has what is gone.
pub fn answer(line: &[OsString]) -> Option<String> {
    // An option and its value are two words or one.
    let words: Vec<&str> = line.iter().flat_map(|word| word.to_str().unwrap_or_default().splitn(2, '=')).collect();
    let has = |gone: &[&str]| gone.is_empty() || words.windows(gone.len()).any(|words| words == gone);
    let subcommand = line.iter().find(|word| !word.as_encoded_bytes().starts_with(b"-"))?;
    let (name, gone, remedy) = REMOVED.iter().find(|(name, gone, _)| *subcommand == **name && has(gone))?;
    let gone = [&[*name], *gone].concat().join(" ");
    Some(format!("gsplit {gone} is no more: {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Option<String> {
        answer(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_gone_is_told_with_its_remedy_and_nothing_else_is() {
        for (name, gone, remedy) in REMOVED {
            let line = told(&format!("{name} ds {}", gone.join(" "))).unwrap();
            assert!(line.ends_with(remedy), "{line}");
            if let [option, value] = gone {
                assert!(told(&format!("{name} {option}={value} ds")).is_some());
            }
        }
        for line in ["inspect pack", "train ds --hidden 3", "--quiet"] {
            assert_eq!(told(line), None, "{line}");
        }
    }
}
