//! The words of the command line, with negative numbers attached to the options whose values they
//! are.
//!
//! A value that starts like a negative number, e.g. `-0.1`, `-1GiB` or `-5,5`, is left to the check
//! of its option, whose message says which values are accepted. clap would refuse it as an unknown
//! option `-0`. No option of gsplit is a digit or a point, so a word that starts like this is
//! always a value. Why not clap's `allow_negative_numbers`: `-1GiB` and `-5,5` are not numbers. Why
//! not `allow_hyphen_values`: `--lr --epochs 3` would take `--epochs` for a rate.

use std::ffi::OsString;

/// The command line of this process, for clap.
pub fn given() -> Vec<OsString> {
    joined(std::env::args_os())
}

/// Index of the subcommand in a command line.
pub fn subcommand_at(line: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(option) = line.get(at).filter(|word| word.as_encoded_bytes().starts_with(b"-")) {
        at += if option == "--threads" { 2 } else { 1 };
    }
    at
}

/// Turns `--option -1` into `--option=-1` in `words`, up to the first `--`.
fn joined(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut joined, mut escaped) = (Vec::<OsString>::new(), false);
    for word in words {
        match joined.last_mut() {
            Some(option) if !escaped && is_negative(&word) && is_bare_option(option) => {
                option.push("=");
                option.push(word);
            }
            _ => {
                escaped |= word == "--";
                joined.push(word);
            }
        }
    }
    joined
}

/// Whether a word is a negative number or starts like one.
fn is_negative(word: &OsString) -> bool {
    matches!(word.as_encoded_bytes(), [b'-', b'0'..=b'9' | b'.', ..])
}

/// Whether a word is an option by its long name, without a value.
fn is_bare_option(word: &OsString) -> bool {
    let word = word.as_encoded_bytes();
    word.starts_with(b"--") && word.len() > 2 && !word.contains(&b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_below_0_are_joined_to_their_options_and_nothing_else() {
        let join = |line: &str| {
            let words = joined(line.split_whitespace().map(OsString::from));
            words.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        for (line, expected) in [
            ("gsplit --threads -1 train ds --lr -0.1", "gsplit --threads=-1 train ds --lr=-0.1"),
            ("place ds --cache -1GiB --alpha -.5 -q", "place ds --cache=-1GiB --alpha=-.5 -q"),
            ("presample ds --fanouts -5,5 --key -1", "presample ds --fanouts=-5,5 --key=-1"),
            ("x --lr=1 -2 -q -3 --lr -4 -5", "x --lr=1 -2 -q -3 --lr=-4 -5"),
            ("x --lr --epochs -- --lr -1", "x --lr --epochs -- --lr -1"),
            ("x -1 --lr -inf --lr - --lr", "x -1 --lr -inf --lr - --lr"),
        ] {
            assert_eq!(join(line), expected);
        }
    }
}
