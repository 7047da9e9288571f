//! The page's chart: values by epoch as lines, in SVG. Its colours are variables of the style
//! sheet.

use std::fmt::Write;

use super::page::escape;
use crate::describe::digits;

const LEFT: f64 = 58.0;
const TOP: f64 = 12.0;
const WIDTH: f64 = 322.0;
const HEIGHT: f64 = 192.0;
const BOTTOM: f64 = TOP + HEIGHT;
/// Colours of the style sheet; further lines have them again, paler.
const COLOURS: usize = 7;

/// One line of a chart.
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Number of its colour; `None` for a baseline, which is grey.
    pub colour: Option<usize>,
    /// Epochs and values, from left to right.
    pub points: Vec<(u32, f64)>,
}

impl Line {
    /// Returns the colour and the opacity.
    fn look(&self) -> (String, f64) {
        match self.colour {
            Some(i) => (format!("var(--c{})", i % COLOURS), if i < COLOURS { 1.0 } else { 0.5 }),
            None => ("var(--grey)".into(), 1.0),
        }
    }
}

/// Returns a figure of `lines`, of which at least one has a point; `label` names the vertical axis.
pub fn chart(title: &str, label: &str, lines: &[Line]) -> String {
    let [title, label] = [title, label].map(escape);
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = ticks(points().map(|&(epoch, _)| f64::from(epoch)), true);
    let up = ticks(points().map(|&(_, value)| value), false);
    let x = |epoch: f64| LEFT + WIDTH * place(&across, epoch);
    let y = |value: f64| BOTTOM - HEIGHT * place(&up, value);
    let (right, middle) = (LEFT + WIDTH, [LEFT + WIDTH / 2.0, TOP + HEIGHT / 2.0]);

    let mut svg = format!(
        r#"<svg viewBox="0 0 400 250" role="img" aria-label="{title}" font-size="12" fill="currentColor"><title>{title}</title>"#
    );
    let mut text = |x: f64, y: f64, more: &str, text: &str| {
        // Writing to a string does not fail.
        let _ = write!(svg, r#"<text x="{x:.1}" y="{y:.1}" {more}>{text}</text>"#);
    };
    up.iter().for_each(|&tick| {
        text(LEFT - 6.0, y(tick) + 4.0, r#"text-anchor="end""#, &digits(tick, 4))
    });
    across.iter().for_each(|&tick| {
        text(x(tick), BOTTOM + 20.0, r#"text-anchor="middle""#, &digits(tick, 4))
    });
    text(middle[0], BOTTOM + 39.0, r#"text-anchor="middle""#, "epoch");
    let turned = format!(r#"text-anchor="middle" transform="rotate(-90 12 {:.1})""#, middle[1]);
    text(12.0, middle[1], &turned, &label);
    for tick in &up {
        let _ = write!(svg, r#"<path d="M{LEFT} {0:.1}H{right}" stroke="var(--grid)"/>"#, y(*tick));
    }
    let mut legend = String::new();
    for line in lines {
        let ((colour, opacity), name) = (line.look(), escape(&line.name));
        let points = line.points.iter().map(|&(epoch, value)| (x(epoch.into()), y(value)));
        let corners: String = points.map(|(x, y)| format!("{x:.1},{y:.1} ")).collect();
        let _ = write!(
            svg,
            r#"<polyline points="{corners}" fill="none" stroke="{colour}" stroke-opacity="{opacity}" stroke-width="2"/>"#
        );
        let _ = write!(
            legend,
            r#"<li><i style="background:{colour};opacity:{opacity}"></i>{name}</li>"#
        );
    }
    format!(
        "<figure><figcaption>{title}</figcaption>{svg}</svg><ul \
         class=\"legend\">{legend}</ul></figure>"
    )
}

/// Returns two to seven round numbers at equal distances, which have all of `values` between them.
fn ticks(values: impl Iterator<Item = f64>, whole: bool) -> Vec<f64> {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let range = if high - low > 1e-6 { high - low } else { 0.1 };
    let magnitude = 10f64.powf((range / 5.0).log10().floor());
    let round = [1.0, 2.0, 2.5, 5.0, 10.0].map(|round| round * magnitude);
    let step = round.into_iter().find(|step| range / step <= 5.0).unwrap_or(range);
    let step = if whole { step.ceil() } else { step };
    let first = (low / step).floor();
    // A value that differs from a tick only by rounding needs no further tick.
    let steps = (high / step - first - 1e-9).ceil().clamp(1.0, 6.0) as usize;
    (0..=steps).map(|i| (first + i as f64) * step).collect()
}

/// Returns the position of `value`, from 0 at the first tick to 1 at the last.
fn place(ticks: &[f64], value: f64) -> f64 {
    let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
    (value - first) / (last - first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_room_for_their_values_and_few_numbers() {
        assert_eq!(ticks([12.0, 75.0].into_iter(), false), [0.0, 20.0, 40.0, 60.0, 80.0]);
        for (values, whole) in [
            ([0.31, 0.87], false),
            ([-2.0, -2.0], false),
            ([0.7, 3e11], false),
            ([1.0, 3.0], true),
            ([1.0, 1.0], true),
            ([1.0, 500.0], true),
        ] {
            let ticks = ticks(values.into_iter(), whole);
            assert!((2..=7).contains(&ticks.len()), "{values:?}: {ticks:?}");
            assert!(
                values.iter().all(|&value| (-1e-6..=1.0 + 1e-6).contains(&place(&ticks, value))),
                "{values:?}: {ticks:?}"
            );
            assert!(!whole || ticks.iter().all(|tick| tick.fract() == 0.0), "{ticks:?}");
        }
    }
}
