//! Cases of a test with several factors: a covering array, in which every pair of values of two
//! factors occurs in some case.
//!
//! Input: the number of values of each factor, and a rule that says which combinations exist. Idea:
//! nearly all faults depend on one factor or on two. (Kuhn, Wallace and Gallo, "Software fault
//! interactions and implications for software testing", 2004.) A greedy array of all pairs has few
//! more cases than the product of its two largest factors. The full product has thousands. The rest
//! of each case is random. Cost: cases × tries × pairs of a case.
//!
//! `GSPLIT_SEED=n` makes other cases, `GSPLIT_CASES=n` adds n random ones, and `GSPLIT_CASES=all`
//! is the full product.

use std::collections::BTreeSet;

use gsplit_kernels::{Draws, Stream, StreamKey};

/// Random completions per pair, of which the one with most new pairs becomes a case.
const TRIES: usize = 30;
/// Random completions after which a pair counts as impossible.
const HOPELESS: usize = 2000;

/// A value of each factor, as its index.
pub type Case = Vec<usize>;

/// Returns the cases of factors with these numbers of values, out of the combinations that are
/// `allowed`.
pub fn cases(levels: &[usize], allowed: impl Fn(&[usize]) -> bool) -> Vec<Case> {
    let seed = std::env::var("GSPLIT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let more = std::env::var("GSPLIT_CASES").unwrap_or_default();
    let cases = match &more[..] {
        "all" => product(levels).filter(|case| allowed(case)).collect(),
        more => {
            let mut draws = Random::new(seed);
            let mut cases = covering(levels, &allowed, &mut draws);
            let random = std::iter::repeat_with(|| draws.case(levels)).filter(|case| allowed(case));
            cases.extend(random.take(more.parse().unwrap_or(0)));
            cases
        }
    };
    eprintln!("{} cases, GSPLIT_SEED={seed} GSPLIT_CASES={more}", cases.len());
    cases
}

/// Every combination.
fn product(levels: &[usize]) -> impl Iterator<Item = Case> {
    let count: usize = levels.iter().product();
    (0..count).map(move |mut number| {
        let digit = |&base: &usize| {
            let digit = number % base;
            number /= base;
            digit
        };
        levels.iter().map(digit).collect()
    })
}

/// Pairs of values that a case covers: two factors and the value of each.
fn pairs(case: &[usize]) -> impl Iterator<Item = [(usize, usize); 2]> {
    let factors = 0..case.len();
    factors.flat_map(move |a| (a + 1..case.len()).map(move |b| [(a, case[a]), (b, case[b])]))
}

fn covering(
    levels: &[usize],
    allowed: &impl Fn(&[usize]) -> bool,
    draws: &mut Random,
) -> Vec<Case> {
    let mut uncovered: BTreeSet<_> = product_of_pairs(levels).collect();
    let mut cases = Vec::new();
    while let Some(&wanted) = uncovered.first() {
        let candidates = std::iter::repeat_with(|| {
            let mut case = draws.case(levels);
            wanted.into_iter().for_each(|(factor, value)| case[factor] = value);
            case
        });
        let candidates = candidates.take(HOPELESS).filter(|case| allowed(case)).take(TRIES);
        let new = |case: &Case| pairs(case).filter(|pair| uncovered.contains(pair)).count();
        match candidates.max_by_key(new) {
            None => {
                uncovered.remove(&wanted);
            }
            Some(case) => {
                pairs(&case).for_each(|pair| {
                    uncovered.remove(&pair);
                });
                cases.push(case);
            }
        }
    }
    cases
}

/// Every pair of values of two factors.
fn product_of_pairs(levels: &[usize]) -> impl Iterator<Item = [(usize, usize); 2]> {
    let factors = (0..levels.len()).flat_map(move |a| (a + 1..levels.len()).map(move |b| (a, b)));
    factors.flat_map(move |(a, b)| {
        (0..levels[a]).flat_map(move |x| (0..levels[b]).map(move |y| [(a, x), (b, y)]))
    })
}

/// Random cases of one seed.
struct Random {
    key: StreamKey,
    made: u32,
}

impl Random {
    fn new(seed: u64) -> Self {
        Self { key: StreamKey::new(seed, Stream::Generate), made: 0 }
    }

    fn case(&mut self, levels: &[usize]) -> Case {
        let mut draws = Draws::new(&self.key, self.made);
        self.made += 1;
        levels.iter().map(|&values| draws.below(values as u32) as usize).collect()
    }
}

#[test]
fn every_pair_that_is_possible_occurs_in_few_cases() {
    let levels = [19, 4, 5, 5, 3, 4, 2, 2];
    // The first value of factor 2 goes only with the first of factor 3.
    let allowed = |case: &[usize]| case[2] != 0 || case[3] == 0;
    let cases = covering(&levels, &allowed, &mut Random::new(7));
    let shown: BTreeSet<_> = cases.iter().flat_map(|case| pairs(case)).collect();
    let impossible = 4;
    assert_eq!(shown.len(), product_of_pairs(&levels).count() - impossible);
    assert!(cases.iter().all(|case| allowed(case)));
    assert!(cases.len() < 2 * 19 * 5, "{}", cases.len());
    assert_eq!(product(&[2, 3]).collect::<BTreeSet<_>>().len(), 6);
}
