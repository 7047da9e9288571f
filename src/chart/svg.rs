//! Part of SVG that charts need, written as text that is well-formed XML whatever the names in it.
//!
//! A picture is a file of its own, on white paper, or a part of an HTML page, whose style sheet gives the colours:
//! `--ink`, `--grid`, `--grey`, and `--c0` to `--c6`.

use std::fmt::{Display, Write};

/// Alignment of text to its place.
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

/// Colour of a shape, named for its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Axes.
    Ink,
    /// Lines that help the eye.
    Grid,
    /// Baseline that the others are compared with.
    Grey,
    /// One of several things, by its number: [`COLOURS`], which come again, paler.
    Series(usize),
}

impl Colour {
    /// The name of a variable of the page's style sheet, and the colour on paper.
    fn names(self) -> (String, &'static str) {
        match self {
            Self::Ink => ("ink".into(), "#333333"),
            Self::Grid => ("grid".into(), "#dddddd"),
            Self::Grey => ("grey".into(), "#999999"),
            Self::Series(i) => (format!("c{}", i % COLOURS.len()), COLOURS[i % COLOURS.len()]),
        }
    }

    /// As a page's style sheets know it.
    pub fn on_page(self) -> String {
        format!("var(--{})", self.names().0)
    }

    /// From 0 to 1.
    pub fn opacity(self) -> f64 {
        if matches!(self, Self::Series(i) if i >= COLOURS.len()) { 0.5 } else { 1.0 }
    }
}

/// A picture under construction. Lengths are pixels from the upper left corner.
pub struct Svg {
    text: String,
    on_page: bool,
}

impl Svg {
    /// A file of its own, white; `maker` stands in its first line.
    pub fn file(maker: &str, width: f64, height: f64) -> Self {
        let mut svg = Self { text: String::new(), on_page: false };
        let namespace = "http://www.w3.org/2000/svg";
        let size = format!(r#"width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}""#);
        let maker = format!(r#"data-maker="{maker}""#);
        svg.add(format_args!(r#"<svg xmlns="{namespace}" {maker} {size} font-family="sans-serif" font-size="12">"#));
        svg.add(r##"<rect width="100%" height="100%" fill="#ffffff"/>"##);
        svg
    }

    /// A part of an HTML page, as wide as there is room for it, called `title`.
    pub fn on_page(title: &str, width: f64, height: f64) -> Self {
        let mut svg = Self { text: String::new(), on_page: true };
        let (title, view) = (escape(title), format!("0 0 {width:.0} {height:.0}"));
        svg.add(format_args!(
            r#"<svg viewBox="{view}" role="img" aria-label="{title}" font-size="12" fill="currentColor"><title>{title}</title>"#
        ));
        svg
    }

    /// The finished picture.
    pub fn finish(mut self) -> String {
        self.add("</svg>");
        self.text
    }

    /// A filled rectangle that shows `title` on hovering.
    pub fn rectangle(&mut self, [x, y, width, height]: [f64; 4], colour: Colour, title: &str) {
        let place = format!(r#"x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}""#);
        let fill = format!(r#"fill="{}" fill-opacity="{}""#, self.shown(colour), colour.opacity());
        self.add(format_args!("<rect {place} {fill}><title>{}</title></rect>", escape(title)));
    }

    /// A straight line.
    pub fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], colour: Colour) {
        let stroke = self.shown(colour);
        self.add(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}"/>"#));
    }

    /// Straight lines from point to point.
    pub fn polyline(&mut self, points: &[[f64; 2]], colour: Colour) {
        let places: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let (places, stroke, opacity) = (places.join(" "), self.shown(colour), colour.opacity());
        let look = format!(r#"fill="none" stroke="{stroke}" stroke-opacity="{opacity}" stroke-width="2""#);
        self.add(format_args!(r#"<polyline points="{places}" {look}/>"#));
    }

    /// A dot that shows `title` on hovering.
    pub fn dot(&mut self, [x, y]: [f64; 2], colour: Colour, title: &str) {
        let (fill, title) = (self.shown(colour), escape(title));
        self.add(format_args!(
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{fill}"><title>{title}</title></circle>"#
        ));
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

    /// Draws what each colour stands for, one below the other.
    pub fn legend(&mut self, (x, y): (f64, f64), entries: &[(Colour, String)]) {
        for (at, (colour, name)) in entries.iter().enumerate() {
            let y = y + at as f64 * LEGEND_LINE;
            self.rectangle([x, y, 12.0, 12.0], *colour, name);
            self.text((x + 18.0, y + 10.5), Anchor::Start, name);
        }
    }

    fn shown(&self, colour: Colour) -> String {
        if self.on_page { colour.on_page() } else { colour.names().1.to_string() }
    }

    fn add(&mut self, element: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{element}");
    }
}

/// Height of an entry of [`Svg::legend`].
pub const LEGEND_LINE: f64 = 20.0;

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// `text` between tags or quotes, of XML and HTML. U+FFFD replaces characters that XML 1.0 cannot hold, and those that turn the direction
/// of the text around them.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{61c}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            c if c.is_control() => escaped.push('\u{fffd}'),
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
        assert_eq!(escape("a\u{202e}cod\u{2067}.exe"), "a\u{fffd}cod\u{fffd}.exe");
        assert_eq!(escape("a<b>&\"c\u{1}\n\u{ffff}é"), "a&lt;b&gt;&amp;&quot;c\u{fffd}\u{fffd}\u{fffd}é");
    }
}
