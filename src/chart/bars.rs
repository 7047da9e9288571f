//! Bars: groups along the axis, in each a bar of every series, side by side or one on the other.

use super::axis::{ticks, trimmed};
use super::{Anchor, Area, Chart, Colour, Svg, draw_ticks};

/// Widest bar of those side by side, and of those one on the other.
const WIDEST: [f64; 2] = [19.0, 46.0];
/// Width of a letter, about.
const LETTER: f64 = 6.5;
/// Groups whose names are all shown.
const NAMED: usize = 12;

/// Bars in groups.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Quantity that the height shows.
    pub label: String,
    /// Value at the foot of the bars.
    pub floor: f64,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Series with a bar in each group, from left to right or from the bottom up.
    pub series: Vec<Series>,
    /// Whether the bars of a group are stacked.
    pub stacked: bool,
}

/// A bar for each group.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// One for each group.
    pub bars: Vec<f64>,
}

impl Series {
    /// A series of plain values, the `i`-th of its chart.
    pub fn new(name: &str, i: usize, values: impl IntoIterator<Item = f64>) -> Self {
        Self { name: name.into(), colour: Colour::Series(i), bars: values.into_iter().collect() }
    }
}

impl Bars {
    /// Room for the longest name of a group.
    fn name_width(&self) -> f64 {
        let longest = self.groups.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        (longest as f64 + 1.0) * LETTER
    }

    fn highest(&self) -> f64 {
        let bars = |group: usize| self.series.iter().filter_map(move |series| series.bars.get(group));
        let of_group = |group| match self.stacked {
            true => bars(group).sum::<f64>(),
            false => bars(group).copied().fold(self.floor, f64::max),
        };
        (0..self.groups.len()).map(of_group).filter(|height| height.is_finite()).fold(self.floor, f64::max)
    }
}

impl Chart for Bars {
    fn draw(&self, svg: &mut Svg, area: Area) {
        let ticks = ticks(self.floor, self.highest());
        let range = ticks.last().map_or(1.0, |last| last - self.floor);
        let y = |value: f64| area.bottom() - (value - self.floor) / range * area.height;
        draw_ticks(svg, area, &self.label, ticks.iter().map(|&tick| (tick, (tick - self.floor) / range)));
        let slot = area.width / self.groups.len().max(1) as f64;
        let beside = if self.stacked { 1 } else { self.series.len().max(1) };
        let step = (0.85 * slot / beside as f64).min(WIDEST[usize::from(self.stacked)] + 3.0);
        // Where names have no room, some are left out.
        let every = if self.groups.len() <= NAMED { 1 } else { (self.name_width() / slot).ceil().max(1.0) as usize };
        for (group, name) in self.groups.iter().enumerate() {
            let centre = area.left + (group as f64 + 0.5) * slot;
            if group.is_multiple_of(every) {
                svg.text((centre, area.bottom() + 20.0), Anchor::Middle, name);
            }
            let mut foot = self.floor;
            for (i, series) in self.series.iter().enumerate() {
                let Some(&bar) = series.bars.get(group).filter(|bar| bar.is_finite()) else { continue };
                let at = if self.stacked { 0.5 } else { i as f64 + 0.5 };
                let x = centre + (at - beside as f64 / 2.0) * step;
                let (width, top) = (step * 19.0 / 22.0, foot + bar - self.floor);
                let place = [x - width / 2.0, y(top), width, (y(foot) - y(top)).max(0.0)];
                svg.rectangle(place, series.colour, &format!("{}, {name}: {}", series.name, trimmed(bar, 3)));
                foot = if self.stacked { top } else { self.floor };
            }
        }
        svg.line([area.left, area.bottom(), area.right(), area.bottom()], Colour::Ink);
    }

    fn width(&self) -> f64 {
        let beside = if self.stacked { 0 } else { self.series.len() };
        let name = if self.groups.len() <= NAMED { self.name_width() } else { 0.0 };
        self.groups.len() as f64 * name.max(beside as f64 * 9.0)
    }

    fn legend(&self) -> Vec<(Colour, String)> {
        self.series.iter().map(|series| (series.colour, series.name.clone())).collect()
    }

    fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let head = [self.label.clone()].into_iter().chain(self.series.iter().map(|series| series.name.clone()));
        let cell = |series: &Series, group: usize| series.bars.get(group).map(|&bar| trimmed(bar, 3));
        let row = |(group, name): (usize, &String)| {
            let cells = self.series.iter().map(|series| cell(series, group).unwrap_or_default());
            [name.clone()].into_iter().chain(cells).collect()
        };
        (head.collect(), self.groups.iter().enumerate().map(row).collect())
    }
}
