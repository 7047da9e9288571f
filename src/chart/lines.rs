//! Lines: one value as it goes with another.

use super::axis::{Axis, number, trimmed};
use super::{Anchor, Area, Chart, Colour, Svg, draw_ticks};

/// Points of a line that are marked; of a longer one none.
const MARKED: usize = 60;

/// Lines over one axis.
#[derive(Clone, Debug)]
pub struct Lines {
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// From left to right.
    pub points: Vec<[f64; 2]>,
}

impl Line {
    /// The `i`-th line of its chart.
    pub fn new(name: &str, i: usize, points: impl IntoIterator<Item = [f64; 2]>) -> Self {
        Self { name: name.into(), colour: Colour::Series(i), points: points.into_iter().collect() }
    }
}

impl Lines {
    /// The points of `line` that have a place on both axes.
    fn placed<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = [f64; 2]> + 'a {
        line.points.iter().copied().filter(move |&[x, y]| self.x.takes(x) && self.y.takes(y))
    }
}

impl Chart for Lines {
    fn draw(&self, svg: &mut Svg, area: Area) {
        let all = || self.lines.iter().flat_map(move |line| self.placed(line));
        let (across, up) = (self.x.range(all().map(|[x, _]| x)), self.y.range(all().map(|[_, y]| y)));
        draw_ticks(svg, area, &self.y.label, up.ticks.iter().map(|&tick| (tick, up.place(tick))));
        for &tick in &across.ticks {
            let x = area.left + across.place(tick) * area.width;
            svg.line([x, area.bottom(), x, area.bottom() + 4.0], Colour::Ink);
            svg.text((x, area.bottom() + 20.0), Anchor::Middle, &number(tick));
        }
        svg.line([area.left, area.bottom(), area.right(), area.bottom()], Colour::Ink);
        svg.text((area.left + area.width / 2.0, area.bottom() + 39.0), Anchor::Middle, &self.x.label);
        for line in &self.lines {
            let place = |[x, y]: [f64; 2]| {
                [area.left + across.place(x) * area.width, area.bottom() - up.place(y) * area.height]
            };
            let points: Vec<[f64; 2]> = self.placed(line).map(place).collect();
            svg.polyline(&points, line.colour);
            for ([x, y], point) in self.placed(line).zip(&points).filter(|_| points.len() <= MARKED) {
                let hint = format!("{}, {} {}: {}", line.name, self.x.label, trimmed(x, 4), trimmed(y, 4));
                svg.dot(*point, line.colour, &hint);
            }
        }
    }

    fn width(&self) -> f64 {
        0.0
    }

    fn legend(&self) -> Vec<(Colour, String)> {
        self.lines.iter().map(|line| (line.colour, line.name.clone())).collect()
    }

    fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let head = [self.x.label.clone()].into_iter().chain(self.lines.iter().map(|line| line.name.clone()));
        let mut places: Vec<f64> = self.lines.iter().flat_map(|line| &line.points).map(|[x, _]| *x).collect();
        places.sort_unstable_by(f64::total_cmp);
        places.dedup();
        let at = |line: &Line, place: f64| line.points.iter().find(|[x, _]| *x == place).map(|[_, y]| trimmed(*y, 4));
        let row = |&place: &f64| {
            let cells = self.lines.iter().map(|line| at(line, place).unwrap_or_default());
            [trimmed(place, 4)].into_iter().chain(cells).collect()
        };
        (head.collect(), places.iter().map(row).collect())
    }
}
