//! The figures of a graph as text.

use crate::figures::{CHEAP_EDGES, ClassCount, Figures};

/// Number of classes shown, the most frequent ones.
const CLASSES_SHOWN: usize = 10;

/// The known figures, each with its name.
pub fn facts(figures: &Figures) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(d) = &figures.in_degree {
        let quantiles =
            format!("min {}, p50 {}, p90 {}, p99 {}, max {}", d.min, d.p50, d.p90, d.p99, d.max);
        facts.push(("in-degrees", format!("{quantiles}, mean {:.2}", d.mean)));
    }
    match &figures.edges {
        Some(edges) => {
            facts.push(("self-loops", edges.self_loops.to_string()));
            if let Some(share) = edges.reciprocal_share {
                facts.push((
                    "reciprocal",
                    format!("{} of the edges have their reverse", percent(share)),
                ));
            }
            if let Some(homophily) = edges.homophily {
                let (share, of) = (homophily.share, homophily.labelled_edges);
                facts.push((
                    "homophily",
                    format!("{share:.4} of {of} edges between labelled vertices join one class"),
                ));
            }
        }
        None => {
            let millions = CHEAP_EDGES / 1_000_000;
            facts.push((
                "left out",
                format!(
                    "self-loops, reciprocity, homophily: of up to {millions} million edges only"
                ),
            ));
        }
    }
    facts.extend(figures.classes.as_ref().map(|classes| ("classes", classes_shown(classes))));
    facts
}

/// The most frequent classes, the most frequent first.
fn classes_shown(classes: &[ClassCount]) -> String {
    let all: u64 = classes.iter().map(|count| count.vertices).sum();
    let mut top: Vec<&ClassCount> = classes.iter().collect();
    top.sort_by_key(|count| (std::cmp::Reverse(count.vertices), count.class));
    let shown = |count: &&ClassCount| {
        let name = count.name.clone().unwrap_or_else(|| count.class.to_string());
        format!(
            "{name}: {} ({})",
            count.vertices,
            percent(count.vertices as f64 / all.max(1) as f64)
        )
    };
    let shown: Vec<String> = top.iter().take(CLASSES_SHOWN).map(shown).collect();
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
        let classes = (0..12).map(|class| ClassCount {
            class,
            name: name(class),
            vertices: u64::from(class % 3) + 1,
        });
        let facts =
            facts(&Figures { in_degree: None, classes: Some(classes.collect()), edges: None });
        assert!(facts[0].1.ends_with("of up to 200 million edges only"), "{facts:?}");
        assert!(
            facts[1].1.starts_with("2: 3 (12.5 %), maths: 3")
                && facts[1].1.ends_with(", and 2 more"),
            "{facts:?}"
        );
    }
}
