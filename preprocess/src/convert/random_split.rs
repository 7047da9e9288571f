//! Splits that are drawn at random.

use std::str::FromStr;

use gsplit_kernels::{Stream, StreamKey, permute};
use serde::{Serialize, Serializer};

/// Fractions of the vertices to draw for training, validation and test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomSplit {
    fractions: [f64; 3],
    /// Whether they are drawn only of an input with labels and without splits.
    pub is_auto: bool,
}

impl FromStr for RandomSplit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self { fractions: [0.6, 0.2, 0.2], is_auto: true });
        }
        let problem = || format!("`{text}`: expected three fractions that sum to at most 1, as 0.6,0.2,0.2, or auto");
        let fractions: Vec<f64> = text
            .split(',')
            .map(|part| part.trim().parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction)))
            .collect::<Option<_>>()
            .ok_or_else(problem)?;
        let fractions: [f64; 3] = fractions.try_into().map_err(|_| problem())?;
        // 0.7 + 0.2 + 0.1 is a little more than 1 in binary.
        if fractions.iter().sum::<f64>() > 1.0 + 1e-9 { Err(problem()) } else { Ok(Self { fractions, is_auto: false }) }
    }
}

impl std::fmt::Display for RandomSplit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_auto {
            return f.write_str("auto");
        }
        let [train, valid, test] = self.fractions;
        write!(f, "{train},{valid},{test}")
    }
}

impl Serialize for RandomSplit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl RandomSplit {
    /// Draws the splits, in the order of [`gsplit_store::Split::ALL`], among the labelled vertices, or among all where there are no labels. The same for the same
    /// seed.
    pub fn draw(&self, num_vertices: usize, labels: Option<&[i32]>, seed: u64) -> [Vec<u32>; 3] {
        let labelled = |&v: &u32| labels.is_none_or(|labels| labels[v as usize] >= 0);
        let candidates: Vec<u32> = (0..num_vertices as u32).filter(labelled).collect();
        let order = permute(candidates.len() as u32, &StreamKey::new(seed, Stream::Split));
        let mut up_to = 0.0;
        let mut from = 0;
        self.fractions.map(|fraction| {
            up_to += fraction;
            let to = ((up_to * candidates.len() as f64).round() as usize).min(candidates.len());
            let chosen = &order[std::mem::replace(&mut from, to)..to];
            chosen.iter().map(|&at| candidates[at as usize]).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions() {
        assert_eq!("0.7, 0.2,0.1".parse::<RandomSplit>().unwrap().to_string(), "0.7,0.2,0.1");
        for text in ["", "0.5", "0.5,0.2,0.2,0.1", "0.9,0.2,0.1", "-0.1,0.2,0.3", "a,b,c", "nan,0,0"] {
            assert!(text.parse::<RandomSplit>().is_err(), "{text}");
        }
    }

    #[test]
    fn drawn_splits_are_disjoint_seeded_and_labelled() {
        let split: RandomSplit = "0.5,0.25,0.25".parse().unwrap();
        let labels: Vec<i32> = (0..1000).map(|v| if v % 5 == 0 { -1 } else { v % 3 }).collect();
        let splits = split.draw(1000, Some(&labels), 7);
        assert_eq!(splits.each_ref().map(Vec::len), [400, 200, 200]);
        let mut all = splits.concat();
        all.sort_unstable();
        assert!(all.iter().copied().eq((0..1000).filter(|v| v % 5 != 0)));
        assert_eq!(split.draw(1000, Some(&labels), 7), splits);
        assert_ne!(split.draw(1000, Some(&labels), 8), splits);
        assert_eq!("0.1,0,0".parse::<RandomSplit>().unwrap().draw(9, None, 0).map(|split| split.len()), [1, 0, 0]);
    }
}
