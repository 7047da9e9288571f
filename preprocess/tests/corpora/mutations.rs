//! Inputs that differ from a good one as damaged and hostile files do, the same for the same seed.

use std::fs;
use std::path::{Path, PathBuf};

use super::input::{SEPARATOR, split};

/// Numbers that claim too much, or too little.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "1",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "1152921504606846976",
    "9223372036854775808",
    "18446744073709551615",
];

/// The files of a corpus, by where they lie.
pub fn corpus(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.display().to_string(), fs::read(path).unwrap())).collect()
}

/// Whether each of `inputs` is accepted by `survives`, which also gets `by_default` mutations of
/// them, in all.
pub fn replay(
    inputs: &[(String, Vec<u8>)],
    by_default: usize,
    survives: impl Fn(&[u8], &str) -> bool,
) -> Vec<bool> {
    let accepted = inputs.iter().map(|(what, bytes)| survives(bytes, what)).collect();
    let mutations = wanted(by_default);
    for (at, (what, bytes)) in inputs.iter().enumerate() {
        for round in 0..mutations.div_ceil(inputs.len()) {
            let seed = (at * mutations + round) as u64;
            survives(&mutated(bytes, seed), &format!("mutation {seed} of {what}"));
        }
    }
    accepted
}

/// Keeps an input that has failed, so that it can go into the corpus of `name`.
pub fn keep(name: &str, bytes: &[u8]) -> PathBuf {
    let kept = std::env::temp_dir().join(format!("gsplit-corpora-{name}"));
    fs::write(&kept, bytes).unwrap();
    kept
}

/// How many mutations of a target's inputs to run, in all: `by_default`, or what the variable
/// `GSPLIT_MUTATIONS` says.
fn wanted(by_default: usize) -> usize {
    std::env::var("GSPLIT_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(by_default)
}

/// `bytes` with one to four changes.
fn mutated(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut parts: Vec<Vec<u8>> = split(bytes).map(<[u8]>::to_vec).collect();
    for _ in 0..1 + random.below(4) {
        let filled: Vec<usize> = (0..parts.len()).filter(|&at| !parts[at].is_empty()).collect();
        if filled.is_empty() {
            break;
        }
        let part = filled[random.below(filled.len())];
        match random.below(9) {
            0 => parts[part] = parts[filled[random.below(filled.len())]].clone(),
            1 => parts[part].clear(),
            _ => change(&mut parts[part], &mut random),
        }
    }
    parts.join(SEPARATOR)
}

fn change(part: &mut Vec<u8>, random: &mut Random) {
    let length = part.len();
    let at = random.below(length);
    let end = at + random.below((length - at).min(64) + 1);
    match random.below(8) {
        0 => part[at] ^= 1 << random.below(8),
        1 => part[at] = [0, 0xff, 0x7f, 0x80, b'\n', b',', b' ', b'-'][random.below(8)],
        2 => part.truncate(at),
        3 => drop(part.drain(at..end)),
        4 => {
            let chunk = part[at..end].to_vec();
            let to = random.below(length + 1);
            part.splice(to..to, chunk);
        }
        5 => number_in_text(part, random),
        6 => number_in_bytes(part, at, random),
        _ => {
            let other = random.below(length);
            part.swap(at, other);
        }
    }
}

/// One of the numbers written in digits becomes another.
fn number_in_text(part: &mut Vec<u8>, random: &mut Random) {
    let is_start =
        |at: &usize| part[*at].is_ascii_digit() && (*at == 0 || !part[at - 1].is_ascii_digit());
    let starts: Vec<usize> = (0..part.len()).filter(is_start).collect();
    if let Some(&start) = starts.get(random.below(starts.len().max(1))) {
        let digits = part[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        part.splice(start..start + digits, NUMBERS[random.below(NUMBERS.len())].bytes());
    }
}

/// Two, four or eight bytes become a number.
fn number_in_bytes(part: &mut [u8], at: usize, random: &mut Random) {
    let number = NUMBERS[random.below(NUMBERS.len())].parse().unwrap_or(u64::MAX).to_le_bytes();
    let width = [2, 4, 8][random.below(3)].min(part.len());
    let at = (at & !(width - 1)).min(part.len() - width);
    part[at..at + width].copy_from_slice(&number[..width]);
}

/// SplitMix64 (Steele, Lea & Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}
