//! The few elements of SVG that a bar chart needs, written as text that is well-formed XML whatever the names in it.

use std::fmt::{Display, Write};

/// Where text stands relative to its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A document under construction. Lengths are pixels from the upper left corner.
pub(super) struct Svg(String);

/// Stands in the first line of every picture.
pub const MAKER: &str = "gsplit evaluate";

impl Svg {
    /// A white page.
    pub fn page(width: f64, height: f64) -> Self {
        let mut svg = Self(String::new());
        let namespace = "http://www.w3.org/2000/svg";
        let size = format!(r#"width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}""#);
        let maker = format!(r#"data-maker="{MAKER}""#);
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
}
