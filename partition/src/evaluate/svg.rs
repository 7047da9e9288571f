//! What a bar chart needs: the few elements of SVG, written as text that is well-formed XML whatever the names in it, colours, and
//! round numbers for the axis.

use std::fmt::{Display, Write};

/// Where text stands relative to its place.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// It starts there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// Colours that the colour-blind tell apart (Okabe and Ito).
pub const COLOURS: [&str; 7] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442"];

/// A document under construction. Lengths are pixels from the upper left corner.
pub struct Svg(String);

impl Svg {
    /// A white page; `maker` stands in its first line.
    pub fn page(maker: &str, width: f64, height: f64) -> Self {
        let mut svg = Self(String::new());
        let namespace = "http://www.w3.org/2000/svg";
        let size = format!(r#"width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}""#);
        let maker = format!(r#"data-maker="{maker}""#);
        svg.add(format_args!(r#"<svg xmlns="{namespace}" {maker} {size} font-family="sans-serif" font-size="12">"#));
        svg.add(r##"<rect width="100%" height="100%" fill="#ffffff"/>"##);
        svg
    }

    /// The finished document.
    pub fn finish(mut self) -> String {
        self.add("</svg>");
        self.0
    }

    /// A filled rectangle that shows `title` on hovering.
    pub fn rectangle(&mut self, [x, y, width, height]: [f64; 4], (colour, opacity): (&str, f64), title: &str) {
        let place = format!(r#"x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}""#);
        let fill = format!(r#"fill="{colour}" fill-opacity="{opacity}""#);
        self.add(format_args!("<rect {place} {fill}><title>{}</title></rect>", escape(title)));
    }

    /// A straight line.
    pub fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], colour: &str) {
        self.add(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}"/>"#));
    }

    /// One line of text on the base line `y`.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, content: &str) {
        let place = format!(r#"x="{x:.1}" y="{y:.1}" text-anchor="{}""#, anchor.name());
        self.add(format_args!("<text {place}>{}</text>", escape(content)));
    }

    /// Text that reads upwards, its middle at the place.
    pub fn upward_text(&mut self, (x, y): (f64, f64), content: &str) {
        let place = format!(r#"x="{x:.1}" y="{y:.1}" text-anchor="middle" transform="rotate(-90 {x:.1} {y:.1})""#);
        self.add(format_args!("<text {place}>{}</text>", escape(content)));
    }

    fn add(&mut self, element: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{element}");
    }
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Round numbers from `low` to at least `high`, at most five steps of equal size.
pub fn ticks(low: f64, high: f64) -> Vec<f64> {
    let range = if high - low > 1e-6 { high - low } else { 0.1 };
    let magnitude = 10f64.powf((range / 5.0).log10().floor());
    let rounds = [1.0, 2.0, 2.5, 5.0, 10.0].map(|round| round * magnitude);
    let step = rounds.into_iter().find(|step| range / step <= 5.0).unwrap_or(range);
    // A value that is a tick but for rounding needs no further one.
    let steps = (range / step - 1e-9).ceil().max(1.0) as usize;
    (0..=steps).map(|i| low + i as f64 * step).collect()
}

/// A tick's label, with no more digits than it needs.
pub fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// `text` between tags; characters that XML 1.0 has no way to hold become U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_document() {
        assert_eq!(escape("a<b>&\"c\u{1}\n\u{ffff}é"), "a&lt;b&gt;&amp;\"c\u{fffd}\u{fffd}\u{fffd}é");
    }

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
    fn tick_labels_are_short() {
        assert_eq!([0.0, 20.0, 2.5, 1.0 + 0.02, 0.001].map(number), ["0", "20", "2.5", "1.02", "0.001"]);
    }
}
