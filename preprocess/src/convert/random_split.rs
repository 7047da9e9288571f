//! Splits drawn at random.

use std::cmp::Reverse;
use std::str::FromStr;

use gsplit_kernels::{Stream, StreamKey, permute};
use serde::{Serialize, Serializer};

/// Fractions of the vertices to draw for training, validation and test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomSplit {
    fractions: [f64; 3],
    /// Whether to draw only if the input has labels and no splits.
    pub is_auto: bool,
}

impl FromStr for RandomSplit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self { fractions: [0.6, 0.2, 0.2], is_auto: true });
        }
        let problem = || {
            format!(
                "`{text}`: expected three fractions that sum to at most 1, e.g. 0.6,0.2,0.2, or \
                 auto"
            )
        };
        let fractions: Vec<f64> = text
            .split(',')
            .map(|part| part.trim().parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction)))
            .collect::<Option<_>>()
            .ok_or_else(problem)?;
        let fractions: [f64; 3] = fractions.try_into().map_err(|_| problem())?;
        // 0.7 + 0.2 + 0.1 is a little more than 1 in binary.
        if fractions.iter().sum::<f64>() > 1.0 + 1e-9 {
            Err(problem())
        } else {
            Ok(Self { fractions, is_auto: false })
        }
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

/// The three splits, and the vertices in none of them.
const PILES: usize = 4;

impl RandomSplit {
    /// Draws the splits, in the order of [`gsplit_store::Split::ALL`], among the vertices whose
    /// label is not negative, or among all vertices if there are no labels. Each class is divided
    /// in the given shares; vertices with one label in common are one class. The same seed draws
    /// the same splits.
    pub fn draw(&self, num_vertices: usize, labels: Option<&[i32]>, seed: u64) -> [Vec<u32>; 3] {
        let class = |v: u32| labels.map_or(0, |labels| labels[v as usize]);
        let candidates: Vec<u32> = (0..num_vertices as u32).filter(|&v| class(v) >= 0).collect();
        let mut sizes = Vec::new();
        for class in candidates.iter().map(|&v| class(v) as usize) {
            sizes.resize(sizes.len().max(class + 1), 0);
            sizes[class] += 1;
        }
        let mut left = divide(&sizes, self.totals(candidates.len()));
        let mut splits = [const { Vec::new() }; 3];
        for at in permute(candidates.len() as u32, &StreamKey::new(seed, Stream::Split)) {
            let v = candidates[at as usize];
            let left = &mut left[class(v) as usize];
            let pile = left.iter().position(|&count| count > 0).unwrap_or_default();
            left[pile] -= 1;
            splits.get_mut(pile).into_iter().for_each(|split| split.push(v));
        }
        splits
    }

    /// Sizes of the splits of `vertices` vertices, and of the rest.
    fn totals(&self, vertices: usize) -> [usize; PILES] {
        let (mut up_to, mut from) = (0.0, 0);
        let [train, valid, test] = self.fractions.map(|fraction| {
            up_to += fraction;
            let to = ((up_to * vertices as f64).round() as usize).min(vertices);
            to - std::mem::replace(&mut from, to)
        });
        [train, valid, test, vertices - from]
    }
}

/// Divides classes of these `sizes` among piles of these `totals`, which add up to all vertices.
/// All piles except the last are splits.
///
/// Rounds cumulative shares, starting with the last pile; each pile takes its share of the vertices
/// that the previous step left. So the totals are exact, and no class is far from its shares. Then
/// each class gets a vertex in each split, train first, if it has enough vertices and the split has
/// room for all such classes; the largest other classes give one vertex each in exchange.
fn divide(sizes: &[usize], totals: [usize; PILES]) -> Vec<[usize; PILES]> {
    let mut divided = vec![[0; PILES]; sizes.len()];
    let mut left = sizes.to_vec();
    for pile in (0..PILES).rev() {
        let all: usize = left.iter().sum();
        let (mut seen, mut given) = (0, 0);
        for (left, piles) in left.iter_mut().zip(&mut divided) {
            seen += *left;
            // Rounded to the nearest integer in 128 bits: twice the square of a 32-bit count
            // exceeds 64 bits.
            let [all, seen, total] = [all, seen, totals[pile]].map(|count| count as u128);
            let up_to = (2 * seen * total + all).checked_div(2 * all).unwrap_or(0) as usize;
            piles[pile] = up_to - std::mem::replace(&mut given, up_to);
            *left -= piles[pile];
        }
    }
    let is_split = |pile: usize| pile < PILES - 1 && totals[pile] > 0;
    // Vertices that each class wants in each pile, 0 or 1.
    let mut wanted: Vec<[usize; PILES]> = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let mut left = size;
        wanted.push(std::array::from_fn(|pile| {
            let wants = usize::from(is_split(pile) && left > 0);
            left -= wants;
            wants
        }));
    }
    for (pile, &total) in totals.iter().enumerate() {
        if wanted.iter().map(|wants| wants[pile]).sum::<usize>() > total {
            wanted.iter_mut().for_each(|wants| wants[pile] = 0);
        }
    }
    let mut by_size: Vec<usize> = (0..sizes.len()).collect();
    by_size.sort_by_key(|&class| Reverse(sizes[class]));
    let mut givers = by_size.iter().copied().cycle();
    for class in 0..sizes.len() {
        for to in (0..PILES).filter(|&pile| wanted[class][pile] > 0) {
            if divided[class][to] > 0 {
                continue;
            }
            let spare = |class: usize, pile: usize, divided: &[[usize; PILES]]| {
                divided[class][pile] > wanted[class][pile]
            };
            let from = (0..PILES)
                .filter(|&pile| spare(class, pile, &divided))
                .max_by_key(|&pile| divided[class][pile]);
            let Some(from) = from else { continue };
            divided[class][from] -= 1;
            divided[class][to] += 1;
            let giver = givers
                .by_ref()
                .take(sizes.len())
                .find(|&giver| giver != class && spare(giver, to, &divided));
            if let Some(giver) = giver {
                divided[giver][to] -= 1;
                divided[giver][from] += 1;
            }
        }
    }
    divided
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions() {
        assert_eq!("0.7, 0.2,0.1".parse::<RandomSplit>().unwrap().to_string(), "0.7,0.2,0.1");
        for text in
            ["", "0.5", "0.5,0.2,0.2,0.1", "0.9,0.2,0.1", "-0.1,0.2,0.3", "a,b,c", "nan,0,0"]
        {
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
        assert_eq!(
            "0.1,0,0".parse::<RandomSplit>().unwrap().draw(9, None, 0).map(|split| split.len()),
            [1, 0, 0]
        );
    }

    #[test]
    fn each_class_is_divided_in_the_shares_and_the_totals_are_exact() {
        let split: RandomSplit = "0.6,0.2,0.2".parse().unwrap();
        let counts = |labels: &[i32], split: &RandomSplit, seed| {
            let classes = labels.iter().max().map_or(0, |&last| last + 1);
            let splits = split.draw(labels.len(), Some(labels), seed);
            let of = |class| {
                splits
                    .each_ref()
                    .map(|vs| vs.iter().filter(|&&v| labels[v as usize] == class).count())
            };
            let all: Vec<[usize; 3]> = (0..classes).map(of).collect();
            (all, splits.map(|split| split.len()))
        };
        let labels = |sizes: &[usize]| -> Vec<i32> {
            // Interleaved, some unlabelled.
            let mut all: Vec<i32> =
                sizes.iter().zip(0..).flat_map(|(&size, class)| vec![class; size]).collect();
            all.extend([-1; 7]);
            let order = permute(all.len() as u32, &StreamKey::new(1, Stream::Generate));
            order.into_iter().map(|at| all[at as usize]).collect()
        };
        for seed in 0..5 {
            // Three of 400 vertices.
            let found = counts(&labels(&[397, 3]), &split, seed);
            assert_eq!(found, (vec![[239, 79, 79], [1, 1, 1]], [240, 80, 80]), "seed {seed}");
        }
        for sizes in [
            &[100, 50, 10][..],
            &[33; 3],
            &[4, 4, 4, 4, 4],
            &[1, 2, 3, 500],
            &[7, 0, 19, 3],
            &[1000, 1, 1, 1],
        ] {
            for text in
                ["0.6,0.2,0.2", "0.5,0.25,0.25", "0.1,0.1,0.1", "0.8,0,0.2", "0.07,0.2,0.33"]
            {
                let split: RandomSplit = text.parse().unwrap();
                let (all, totals) = counts(&labels(sizes), &split, 3);
                let expected = split.totals(sizes.iter().sum());
                assert_eq!(totals, expected[..3], "{sizes:?} {text}");
                let splits = (0..3).filter(|&s| totals[s] > 0).count();
                let has_room = totals.iter().all(|&total| total == 0 || total >= sizes.len());
                for (class, &size) in all.iter().zip(sizes) {
                    for (s, fraction) in split.fractions.into_iter().enumerate() {
                        let off = class[s] as f64 - fraction * size as f64;
                        // One for rounding, and one for each class that got a vertex in exchange.
                        assert!(off.abs() < (2 + sizes.len()) as f64, "{sizes:?} {text}: {all:?}");
                        let lacks = totals[s] > 0 && class[s] == 0;
                        assert!(
                            !(has_room && lacks && size >= splits),
                            "{sizes:?} {text}: {all:?}"
                        );
                    }
                    assert!(!has_room || size == 0 || class[0] > 0, "{sizes:?} {text}: {all:?}");
                }
            }
        }
        // A split smaller than the number of classes keeps its size.
        assert_eq!(
            counts(&labels(&[50; 20]), &"0.1,0.005,0.005".parse().unwrap(), 0).1,
            [100, 5, 5]
        );
        assert!(split.draw(0, None, 0).concat().is_empty());
    }
}
