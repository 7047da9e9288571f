//! `gsplit report` from outside: well-formed, self-contained and escaped pages, sections that are
//! left out, bad input.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::markup::elements;
use crate::support::{community, json, ok, refused, scratch};

/// A page of `folder`, checked; and the printed lines about it.
fn page(folder: &Path, args: &str) -> (String, Value) {
    let printed = json(folder, format!("report {args} --out page.html"));
    let page = fs::read_to_string(folder.join("page.html")).unwrap();
    assert_eq!(printed["bytes"], page.len());
    check(&page);
    (page, printed)
}

/// Fails unless the page is well-formed, needs nothing else, and can be read without seeing it.
fn check(page: &str) {
    assert!(
        page.starts_with("<!doctype html><!--gsplit report-->\n<html lang=\"en\">"),
        "{}",
        &page[..80]
    );
    let found = elements(page);
    for foreign in ["://", "url(", "@import", "<script", "javascript:", "NaN", " inf "] {
        let at = page.find(foreign);
        assert!(
            at.is_none(),
            "{foreign}: {:.300}",
            &page[at.unwrap_or_default().saturating_sub(200)..]
        );
    }
    let (mut ids, mut links) = (BTreeSet::new(), BTreeSet::new());
    for element in &found {
        let (name, attributes) = (&*element.name, &element.attributes);
        assert!(
            !["script", "img", "iframe", "object", "embed", "base", "form"].contains(&name),
            "{name}"
        );
        let values: Vec<&str> = attributes.split('"').collect();
        for pair in values.chunks_exact(2) {
            let (key, value) = (pair[0].trim().trim_end_matches('='), pair[1]);
            assert!(!key.starts_with("on") && key != "src", "{name} {attributes}");
            match key {
                "id" => assert!(ids.insert(value.to_string()), "two of {value}"),
                "href" if name == "link" => assert_eq!(value, "data:,"),
                "href" => drop(links.insert(value.strip_prefix('#').unwrap().to_string())),
                _ => {}
            }
        }
        if name == "svg" {
            assert!(
                attributes.contains("role=\"img\" aria-label=\"")
                    && !attributes.contains("aria-label=\"\"")
            );
        }
    }
    assert!(links.is_subset(&ids), "{links:?} {ids:?}");
    let count = |name: &str| found.iter().filter(|element| element.name == name).count();
    assert_eq!((count("h1"), count("main"), count("style")), (1, 1, 1));
    // The charts have their numbers in one table.
    let numbers = page.matches("<summary>Loss and valid score in numbers</summary>").count();
    assert_eq!((count("svg"), numbers), (count("figure"), usize::from(count("figure") > 0)));
    assert_eq!(count("caption"), count("table"));
    check_tables(page);
}

/// Fails unless every table scrolls in a box of its own, past a first column that stays and names
/// the rows.
fn check_tables(page: &str) {
    for (at, _) in page.match_indices("<table") {
        let around = page[..at].trim_end().rsplit('<').next().unwrap();
        assert!(around.starts_with("div class=\"scroll\" tabindex=\"0\""), "{around}");
    }
    for row in page.split("<tr>").skip(1) {
        assert!(row.starts_with("<th scope="), "{row:.80}");
    }
    let rule = |selector: &str| {
        let rules = page
            .split(&format!("\n{selector} {{"))
            .nth(1)
            .unwrap_or_else(|| panic!("no rule for {selector}"));
        rules.split('}').next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(rule(".scroll").contains("overflow-x: auto"));
    let first = rule("th:first-child");
    for part in ["position: sticky", "left: 0", "background: var(--paper)"] {
        assert!(first.contains(part), "{part}: {first}");
    }
}

/// The titles in `list`, with commas between them.
fn titles(list: &Value) -> String {
    let title = |entry: &Value| entry.get("title").unwrap_or(entry).as_str().unwrap().to_string();
    list.as_array().unwrap().iter().map(title).collect::<Vec<_>>().join(", ")
}

#[test]
fn what_is_not_there_is_named_with_the_command_that_makes_it() {
    let folder = &*scratch();
    community(folder, 300);
    let (text, printed) = page(folder, "ds");
    assert_eq!(titles(&printed["sections"]), "");
    assert_eq!(titles(&printed["left_out"]), "Scores, Partitions");
    for command in ["gsplit partition ds --parts 4", "gsplit train DATASET --checkpoint"] {
        assert!(text.contains(command), "{command}");
    }
    ok(folder, "partition ds --parts 2 --partitioner hash");
    let (text, printed) = page(folder, ".");
    assert_eq!(titles(&printed["sections"]), "Partitions");
    assert!(text.contains("<h1>ds</h1>") && text.contains("<title>ds: gsplit report</title>"));
    assert!(text.contains("hash-k2</th><td>-</td>") && text.contains("<p>300 vertices, "));
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("<footer><p>gsplit {version}</p></footer>")));
}

#[test]
fn names_are_escaped() {
    let folder = &*scratch();
    let name = "a<b>&\"c'\u{7}<script>";
    ok(folder, "generate community --vertices 300 --edges 900 --out dataset");
    fs::create_dir(folder.join(name)).unwrap();
    fs::rename(folder.join("dataset"), folder.join(name).join("dataset")).unwrap();
    let (text, printed) = page(folder, name);
    assert!(text.contains("<h1>a&lt;b&gt;&amp;&quot;c"), "{}", printed["left_out"]);
}

#[test]
fn bad_input_is_one_line() {
    let folder = &*scratch();
    refused(folder, "report nowhere", 1, "nowhere");
    fs::create_dir(folder.join("empty")).unwrap();
    refused(folder, "report empty", 1, "nothing to report on: expected a dataset directory");
    community(folder, 300);
    refused(folder, "report ds --out ds/page.html", 2, "lies in");
    fs::write(folder.join("thesis.html"), "<p>three years of work</p>").unwrap();
    refused(
        folder,
        "report ds --out thesis.html",
        1,
        "and gsplit did not write it: name another path, or remove it",
    );
    ok(folder, "generate community --vertices 300 --edges 900 --out other");
    refused(folder, "report .", 1, "has several datasets");
    fs::create_dir_all(folder.join("runs/run/epoch-00001")).unwrap();
    fs::write(folder.join("runs/run/epoch-00001/checkpoint.json"), "{}").unwrap();
    refused(folder, "report runs", 1, "checkpoint.json");
}

#[cfg(feature = "train")]
#[test]
fn partitions_that_runs_used_come_first() {
    let folder = &*scratch();
    community(folder, 600);
    for partitioner in ["hash", "random"] {
        ok(folder, format!("partition ds --parts 2 --partitioner {partitioner}"));
    }
    let train = "train ds --ranks 2 --partition random-k2 --layers 1 --fanouts 3 --hidden 8 --epochs 1 --checkpoint runs/a";
    ok(folder, train);
    let (text, _) = page(folder, ".");
    let rows =
        ["random-k2</th><td>runs/a</td>", "hash-k2</th><td>-</td>"].map(|row| text.find(row));
    assert!(rows[0].is_some() && rows[0] < rows[1], "{rows:?}");
    // One that was made again since is another.
    ok(folder, "partition ds --parts 2 --partitioner random --seed 7 --key random-k2 --force");
    let (text, _) = page(folder, ".");
    let rows = ["hash-k2</th><td>-</td>", "random-k2</th><td>-</td>"].map(|row| text.find(row));
    assert!(rows[0].is_some() && rows[0] < rows[1], "{rows:?}");
}

#[cfg(feature = "train")]
#[test]
fn a_page_shows_scores_and_curves_of_every_run() {
    let folder = &*scratch();
    community(folder, 600);
    let train = "train ds --parallelism single --layers 2 --fanouts 3,3 --hidden 8 --batch-size 64";
    ok(folder, format!("{train} --epochs 3 --checkpoint runs/a"));
    ok(folder, format!("{train} --epochs 70 --eval-every 0 --checkpoint runs/x&y"));
    let (text, printed) = page(folder, ".");
    assert_eq!(printed["runs"], serde_json::json!(["runs/a", "runs/x&y"]));
    assert_eq!(titles(&printed["sections"]), "Scores, Training");
    assert_eq!(titles(&printed["left_out"]), "", "one rank needs no partition");
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}"));
    // The metric is named, with a baseline in numbers and in the chart; classes without names are
    // shown by number.
    assert!(text.contains("<td>accuracy</td>") && text.contains("majority: "), "{printed}");
    assert!(text.contains("Valid score by epoch") || text.contains("Valid accuracy by epoch"));
    assert!(
        text.contains("</i>majority (baseline)</li>") && text.contains("<th scope=\"row\">15</th>")
    );
    assert!(text.contains("<th scope=\"col\">loss of runs/x&amp;y</th>"));
    // The split that counts is open; the other, and which class was taken for which, are folded.
    assert!(at("a: the classes in the test split") < at("<details><summary>runs/a: which class"));
    assert!(at("<details><summary>runs/a: which class") < at("a: the classes in the valid split"));
    assert!(text.contains("the classes most confused in the valid split"));
    let (_, printed) = page(folder, "runs --dataset ds");
    assert_eq!(printed["runs"], serde_json::json!(["a", "x&y"]));
    assert!(text == page(folder, ". --threads 1").0, "the page depends on the threads");
}
