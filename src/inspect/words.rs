//! The figures of a graph as text, for `inspect` and `report`.

use crate::figures::{CHEAP_EDGES, ClassCount, Degrees, Figures, NumberFigures};

/// Number of classes shown, the most frequent ones.
const CLASSES_SHOWN: usize = 10;

/// Header of [`degree_rows`].
pub const DEGREE_HEAD: [&str; 7] = ["degrees", "min", "p50", "p90", "p99", "max", "mean"];

/// A row of cells for the in-degrees, and one for the out-degrees if they are known.
pub fn degree_rows(figures: &Figures) -> Vec<[String; 7]> {
    let row = |name: &str, d: &Degrees| {
        let [min, p50, p90, p99, max] = [d.min, d.p50, d.p90, d.p99, d.max].map(|degree| degree.to_string());
        [name.to_string(), min, p50, p90, p99, max, format!("{:.2}", d.mean)]
    };
    let out = figures.edges.as_ref().and_then(|edges| edges.out_degree.as_ref());
    let known = [("in", figures.in_degree.as_ref()), ("out", out)];
    known.into_iter().filter_map(|(name, degrees)| Some(row(name, degrees?))).collect()
}

/// The other known figures, each with its name.
pub fn facts(figures: &Figures) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    match &figures.edges {
        Some(edges) => {
            let (components, pairs) = (edges.components, &edges.pairs);
            facts.push(("isolated", format!("{} (vertices without any edge)", edges.isolated)));
            facts.push((
                "components",
                format!("{} (weak), the largest of {} vertices", components.number, components.largest),
            ));
            facts.push(("self-loops", pairs.self_loops.to_string()));
            if let Some(share) = pairs.reciprocal_share {
                facts.push(("reciprocal", format!("{} of the edges have their reverse", percent(share))));
            }
            if let Some(homophily) = pairs.homophily {
                let (share, of) = (homophily.share, homophily.labelled_edges);
                facts.push(("homophily", format!("{share:.4} of {of} edges between labelled vertices join one class")));
            }
        }
        None => facts.push(("left out", left_out())),
    }
    if let Some(numbers) = &figures.numbers {
        let NumberFigures { vertices, mean, deviation, min, max } = numbers;
        let figures = format!("mean {mean:.5}, deviation {deviation:.5}, from {min} to {max}");
        facts.push(("numbers", format!("of {vertices} vertices to learn: {figures}")));
    }
    if let Some(classes) = &figures.classes {
        facts.push(("classes", classes_shown(classes)));
    }
    facts
}

/// The figures that are left out for a large graph, and how to get them.
pub fn left_out() -> String {
    let millions = CHEAP_EDGES / 1_000_000;
    format!(
        "out-degrees, components, reciprocity and homophily, which read all edges; of more than {millions} million edges pass --full"
    )
}

/// The most frequent classes, the most frequent first.
fn top_classes(classes: &[ClassCount]) -> Vec<ClassCount> {
    let mut top = classes.to_vec();
    top.sort_by_key(|count| (std::cmp::Reverse(count.vertices), count.class));
    top.truncate(CLASSES_SHOWN);
    top
}

fn classes_shown(classes: &[ClassCount]) -> String {
    let all: u64 = classes.iter().map(|count| count.vertices).sum();
    let shown = |count: &ClassCount| {
        let share = percent(count.vertices as f64 / all.max(1) as f64);
        format!("{}: {} ({share})", count.shown(), count.vertices)
    };
    let shown: Vec<String> = top_classes(classes).iter().map(shown).collect();
    match classes.len().saturating_sub(CLASSES_SHOWN) {
        0 => shown.join(", "),
        more => format!("{}, and {more} more", shown.join(", ")),
    }
}

/// Formats a share, e.g. `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_classes_stand_first_and_what_is_left_out_is_said() {
        let name = |class| (class == 5).then(|| "maths".to_string());
        let classes = (0..12).map(|class| ClassCount { class, name: name(class), vertices: u64::from(class % 3) + 1 });
        let classes = classes.collect();
        let figures =
            Figures { in_degree: Degrees::of(vec![1, 1, 4]), classes: Some(classes), numbers: None, edges: None };
        let facts = facts(&figures);
        assert!(facts[0].1.ends_with("of more than 200 million edges pass --full"), "{facts:?}");
        assert!(facts[1].1.starts_with("2: 3 (12.5 %), maths: 3") && facts[1].1.ends_with(", and 2 more"), "{facts:?}");
        assert_eq!(degree_rows(&figures), [["in", "1", "1", "4", "4", "4", "2.00"].map(String::from)]);
    }
}
