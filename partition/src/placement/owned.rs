//! Choice of the rows to cache when only its owner loads a row (split parallelism).
//!
//! Returns how many of each part's hottest rows are on their own device, and how many of the next
//! ones on other devices. Input: each part's rows by falling loads, devices with room for C rows
//! each, alpha.
//!
//! Idea: a row on its own device saves its loads, on another device (1 − alpha) times that, and
//! nothing with alpha ≥ 1. Of each part the hottest C rows are candidates for their own device,
//! those behind for the room that other parts leave. The k · C rows that save most are taken. No
//! placement costs less in expectation, summed over the devices: whatever set of rows is cached, it
//! is best to have each part's hottest C of them at home, and a part with more rows than that
//! leaves its own device full, so that the others find room elsewhere. Why not Song & Jiang's
//! Algorithm 1: it supposes that all devices load a row equally often; here a second copy is never
//! read.
//!
//! Cost: O(k log n) a step of a binary search over the counters, which are integers.

use super::Ranking;

/// How many of each part's rows are cached, hottest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// On the part's own device.
    pub home: Vec<usize>,
    /// Behind those, on other devices. 0 unless the own device is full.
    pub away: Vec<usize>,
}

/// The part's candidates: how many are taken that save more than `least`, or at least that.
struct Candidates<'a> {
    parts: &'a [Ranking],
    capacity: usize,
    /// Portion of its loads that a row saves away from home.
    discount: f64,
}

impl Candidates<'_> {
    /// How many candidates of `part` satisfy `pays` at home, and away.
    fn counted(&self, part: &Ranking, pays: impl Fn(f64) -> bool) -> (usize, usize) {
        let home = part.count_while(&pays).min(self.capacity);
        let away = match self.discount > 0.0 {
            true => {
                part.count_while(|loads| pays(self.discount * loads)).saturating_sub(self.capacity)
            }
            false => 0,
        };
        (home, away)
    }

    /// Whether at least `slots` candidates save `least` or more.
    fn fill(&self, slots: usize, least: f64) -> bool {
        let counts = self.parts.iter().map(|part| self.counted(part, |saved| saved >= least));
        counts.map(|(home, away)| home + away).sum::<usize>() >= slots
    }

    /// The largest saving that `slots` candidates reach, which must be there.
    fn threshold(&self, slots: usize) -> f64 {
        let largest = |saved: &dyn Fn(u32) -> f64| {
            let (mut low, mut high) = (0, u32::MAX);
            while low < high {
                let middle = high - (high - low) / 2;
                if self.fill(slots, saved(middle)) { low = middle } else { high = middle - 1 }
            }
            saved(low)
        };
        // A candidate saves its counter at home, or its discounted counter elsewhere.
        largest(&|count| f64::from(count)).max(largest(&|count| self.discount * f64::from(count)))
    }
}

/// The rows that save most on devices with room for `capacity` rows each.
pub(crate) fn choose(parts: &[Ranking], capacity: usize, alpha: f64) -> Taken {
    let candidates = Candidates { parts, capacity, discount: (1.0 - alpha).max(0.0) };
    let slots = capacity.saturating_mul(parts.len());
    let unzip = |pays: &dyn Fn(f64) -> bool| -> (Vec<usize>, Vec<usize>) {
        parts.iter().map(|part| candidates.counted(part, pays)).unzip()
    };
    let (home, away) = unzip(&|_| true);
    if home.iter().chain(&away).sum::<usize>() <= slots {
        return Taken { home, away };
    }
    let threshold = candidates.threshold(slots);
    let (mut home, mut away) = unzip(&|saved| saved > threshold);
    let (most_home, most_away) = unzip(&|saved| saved >= threshold);
    // Among rows that save exactly the threshold, rows at home come first: they cost the peers
    // nothing.
    let mut left = slots - home.iter().chain(&away).sum::<usize>();
    for (taken, most) in home.iter_mut().zip(most_home).chain(away.iter_mut().zip(most_away)) {
        let more = (most - *taken).min(left);
        *taken += more;
        left -= more;
    }
    Taken { home, away }
}

impl Taken {
    /// Expected loads from the reader's own cache, and from any device's.
    pub(crate) fn served(&self, parts: &[Ranking]) -> (f64, f64) {
        let counts = self.home.iter().zip(&self.away);
        counts.zip(parts).fold((0.0, 0.0), |(local, held), ((&home, &away), part)| {
            (local + part.sum(home), held + part.sum(home + away))
        })
    }
}
