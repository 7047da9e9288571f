//! From values to places along an axis, and the numbers beside it.

/// How values are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Evenly, and only whole numbers stand beside.
    Whole,
    /// Logarithmically; what is not positive is left out.
    Log,
}

/// A name and a scale.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// How it is laid out.
    pub scale: Scale,
}

/// An axis that is long enough for its values.
pub(super) struct Range {
    scale: Scale,
    pub ticks: Vec<f64>,
}

impl Axis {
    /// A named axis.
    pub fn new(label: &str, scale: Scale) -> Self {
        Self { label: label.into(), scale }
    }

    /// Whether the axis has a place for `value`.
    pub(super) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (self.scale != Scale::Log || value > 0.0)
    }

    /// Room for the least and the most of `values`.
    pub(super) fn range(&self, values: impl Iterator<Item = f64>) -> Range {
        let taken = values.filter(|&value| self.takes(value));
        let (low, high) = taken.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        let ticks = match self.scale {
            Scale::Log => decades(low, high),
            Scale::Linear | Scale::Whole => {
                let step = step(high - low);
                let step = if self.scale == Scale::Whole { step.ceil() } else { step };
                let low = (low / step).floor();
                let steps = (high / step - low - 1e-9).ceil().max(1.0) as usize;
                (0..=steps).map(|i| (low + i as f64) * step).collect()
            }
        };
        Range { scale: self.scale, ticks }
    }
}

impl Range {
    /// Position of `value`, from 0 at the first tick to 1 at the last.
    pub(super) fn place(&self, value: f64) -> f64 {
        let along = |value: f64| if self.scale == Scale::Log { value.log10() } else { value };
        let [first, last] = [self.ticks.first(), self.ticks.last()].map(|tick| along(tick.copied().unwrap_or(1.0)));
        (along(value) - first) / (last - first).max(f64::MIN_POSITIVE)
    }
}

/// Powers of ten from below `low` to above `high`, seven at most.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = ((low.log10() + 1e-9).floor() as i32, (high.log10() - 1e-9).ceil() as i32);
    let decades = (last - first).max(1);
    let step = (decades + 5) / 6;
    (0..=(decades + step - 1) / step).map(|i| 10f64.powi(first + i * step)).collect()
}

/// A round number that fits into `range` at most five times.
fn step(range: f64) -> f64 {
    let range = if range > 1e-6 { range } else { 0.1 };
    let magnitude = 10f64.powf((range / 5.0).log10().floor());
    let rounds = [1.0, 2.0, 2.5, 5.0, 10.0].map(|round| round * magnitude);
    rounds.into_iter().find(|step| range / step <= 5.0).unwrap_or(range)
}

/// Round numbers from `low` to at least `high`, at most five steps of equal size.
pub fn ticks(low: f64, high: f64) -> Vec<f64> {
    let step = step(high - low);
    // A value that is a tick but for rounding needs no further one.
    let steps = ((high - low).max(0.0) / step - 1e-9).ceil().max(1.0) as usize;
    (0..=steps).map(|i| low + i as f64 * step).collect()
}

/// A tick's label, with no more digits than it needs; 20k for 20,000.
pub fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        1e12.. => (value / 1e12, "T"),
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{unit}", trimmed(value, 6))
}

/// `value` with at most so many digits after the point; a dash for what is no number.
pub fn trimmed(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        assert_eq!(ticks(0.0, 75.0), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        for high in [1.0, 1.003, 1.1, 1.26, 2.0, 4.0, 1000.0] {
            let ticks = ticks(1.0, high);
            assert!((2..=6).contains(&ticks.len()), "{high}: {ticks:?}");
            assert!(ticks[0] == 1.0 && *ticks.last().unwrap() >= high - 1e-6, "{high}: {ticks:?}");
        }
    }

    #[test]
    fn axes_have_room_for_their_values_and_few_numbers() {
        for (scale, values) in [
            (Scale::Linear, [0.31, 0.87]),
            (Scale::Linear, [-2.0, -2.0]),
            (Scale::Whole, [1.0, 3.0]),
            (Scale::Whole, [1.0, 1.0]),
            (Scale::Whole, [1.0, 500.0]),
            (Scale::Log, [1.0, 1000.0]),
            (Scale::Log, [0.003, 3e9]),
            (Scale::Log, [7.0, 7.0]),
            (Scale::Log, [f64::NAN, 0.0]),
        ] {
            let axis = Axis::new("", scale);
            let range = axis.range(values.into_iter());
            assert!((2..=7).contains(&range.ticks.len()), "{values:?}: {:?}", range.ticks);
            for value in values.into_iter().filter(|&value| axis.takes(value)) {
                assert!((-1e-6..=1.0 + 1e-6).contains(&range.place(value)), "{values:?}: {:?}", range.ticks);
            }
            let whole = range.ticks.iter().all(|tick| tick.fract() == 0.0);
            assert!(whole || scale != Scale::Whole, "{:?}", range.ticks);
        }
    }

    #[test]
    fn tick_labels_are_short() {
        assert_eq!([0.0, 20.0, 2.5, 1.0 + 0.02, 0.001].map(number), ["0", "20", "2.5", "1.02", "0.001"]);
        assert_eq!([1000.0, 20_000.0, 2.5e6, -3e9, 1e13].map(number), ["1000", "20k", "2.5M", "-3G", "10T"]);
    }
}
