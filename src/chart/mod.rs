//! Charts as SVG: bars and lines, for files of their own (`evaluate --svg`, `plan --svg`) and for the pages of `report`.
//!
//! ```text
//! numbers ─▶ Bars or Lines ─▶ draw in an Area of an Svg ─▶ file, or a figure on a page
//! ```
//!
//! A chart has its numbers as a table too, for readers who cannot see it.

mod axis;
mod bars;
mod lines;
mod svg;

pub use axis::{Axis, Scale, number, trimmed};
pub use bars::{Bars, Series};
pub use lines::{Line, Lines};
pub use svg::{Anchor, COLOURS, Colour, LEGEND_LINE, Svg, escape};

/// Rectangle within the axes of a chart: beside them some 60 pixels to the left and 40 below are needed.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Left end.
    pub left: f64,
    /// Upper end.
    pub top: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Area {
    fn right(self) -> f64 {
        self.left + self.width
    }

    fn bottom(self) -> f64 {
        self.top + self.height
    }
}

/// Anything that can be drawn.
pub trait Chart {
    /// Draws it.
    fn draw(&self, svg: &mut Svg, area: Area);
    /// Width that it needs.
    fn width(&self) -> f64;
    /// Colours and their meanings.
    fn legend(&self) -> Vec<(Colour, String)>;
    /// Its numbers: the names of the columns, and the rows.
    fn table(&self) -> (Vec<String>, Vec<Vec<String>>);
}

/// Width and height of a chart on a page: text of 12 pixels stays readable on a telephone.
pub const NARROW: [f64; 2] = [400.0, 250.0];
/// The same of a chart that has the whole width of a desktop to itself.
pub const WIDE: [f64; 2] = [820.0, 260.0];

/// `chart` as a part of an HTML page, of this width and height, and the width that it needs where that is more.
pub fn on_page(chart: &dyn Chart, title: &str, [usual, height]: [f64; 2]) -> (String, Option<f64>) {
    let (left, right, top, below) = (58.0, 20.0, 12.0, 46.0);
    let width = usual.max(chart.width() + left + right);
    let mut svg = Svg::on_page(title, width, height);
    chart.draw(&mut svg, Area { left, top, width: width - left - right, height: height - top - below });
    (svg.finish(), (width > usual).then_some(width))
}

/// Lines across `area` at the ticks of a vertical axis, with their numbers, and its name.
fn draw_ticks(svg: &mut Svg, area: Area, label: &str, ticks: impl Iterator<Item = (f64, f64)>) {
    for (tick, place) in ticks {
        let y = area.bottom() - place * area.height;
        svg.line([area.left, y, area.right(), y], Colour::Grid);
        svg.text((area.left - 6.0, y + 4.0), Anchor::End, &number(tick));
    }
    svg.upward_text((area.left - 46.0, area.top + area.height / 2.0), label);
}
