//! `gsplit report` from outside: well-formed, self-contained and escaped pages, sections that are left out, bad input.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::markup::elements;
#[cfg(feature = "train")]
use crate::support::root;
use crate::support::{community, fails, json, ok, refused, scratch};

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
    assert!(page.starts_with("<!doctype html><!--gsplit report-->\n<html lang=\"en\">"), "{}", &page[..80]);
    let found = elements(page);
    for foreign in ["://", "url(", "@import", "<script", "javascript:", "NaN", " inf "] {
        let at = page.find(foreign);
        assert!(at.is_none(), "{foreign}: {:.300}", &page[at.unwrap_or_default().saturating_sub(200)..]);
    }
    let (mut ids, mut links) = (BTreeSet::new(), BTreeSet::new());
    for element in &found {
        let (name, attributes) = (&*element.name, &element.attributes);
        assert!(!["script", "img", "iframe", "object", "embed", "base", "form"].contains(&name), "{name}");
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
            assert!(attributes.contains("role=\"img\" aria-label=\"") && !attributes.contains("aria-label=\"\""));
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

/// Fails unless every table scrolls in a box of its own, past a first column that stays and names the rows.
fn check_tables(page: &str) {
    for (at, _) in page.match_indices("<table") {
        let around = page[..at].trim_end().rsplit('<').next().unwrap();
        assert!(around.starts_with("div class=\"scroll\" tabindex=\"0\""), "{around}");
    }
    for row in page.split("<tr>").skip(1) {
        assert!(row.starts_with("<th scope="), "{row:.80}");
    }
    let rule = |selector: &str| {
        let rules = page.split(&format!("\n{selector} {{")).nth(1).unwrap_or_else(|| panic!("no rule for {selector}"));
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

/// The line that `train` logs after an epoch.
fn logged(epoch: u32, valid: Option<f64>) -> Value {
    json!({
        "epoch": epoch, "loss": 2.0 / f64::from(epoch), "gradient_norm": 1.0, "learning_rate": 0.01, "train": 0.5, "valid": valid,
        "test": valid, "sample_s": 0.1, "load_s": 0.2, "compute_s": 0.3, "exchange_s": 0.2, "wait_s": 0.1, "seconds": 0.9,
        "evaluate_s": 0.1, "edges": 1000, "rows_loaded": 500, "rows_cached": 100, "rows_from_peers": 50, "rows_exchanged": 20, "skipped": 0,
        "rows_from_disk": 0, "bytes_from_disk": 0, "rows_kept": 0,
        "exchanged": [], "bytes_sent": 4096,
        "sent": [{"phase": "load", "route": "memory", "bytes": 4096, "messages": 2}],
    })
}

fn log(epochs: u32) -> String {
    (1..=epochs).map(|epoch| logged(epoch, Some(0.5)).to_string() + "\n").collect()
}

#[test]
fn a_page_shows_all_that_there_is() {
    let folder = &*scratch();
    community(folder, 1500);
    ok(folder, "presample ds --fanouts 5,3 --batch-size 64 --epochs 2");
    ok(folder, "partition ds --parts 4");
    ok(folder, "partition ds --parts 2 --partitioner hash");
    fs::create_dir_all(folder.join("runs/old")).unwrap();
    fs::write(folder.join("runs/split.jsonl"), log(3)).unwrap();
    fs::write(folder.join("runs/old/long.jsonl"), log(200)).unwrap();
    fs::write(folder.join("runs/other.jsonl"), "{\"name\": \"of someone else\"}\n").unwrap();
    let (text, printed) = page(folder, ".");
    assert_eq!(titles(&printed["sections"]), "Training, Graph, Partitions, Cross edges and balance by layer");
    assert_eq!(titles(&printed["left_out"]), "Scores, Configuration");
    assert_eq!(printed["runs"], json!(["runs/old/long", "runs/split"]));
    for words in [
        "multilevel-presampled-k4",
        "hash-k2",
        "f5-3_b64_e2_s0",
        "gsplit generate community",
        "layer 2 (input)",
        "loss of runs/old/long",
        "<td>0.200</td><td>0.100</td><td>0.900</td><td>1000</td><td>500</td><td>20</td>",
    ] {
        assert!(text.contains(words), "{words}");
    }
    assert!(text.contains("<h1>ds</h1>") && text.contains("<title>ds: gsplit report</title>"));
    let version = env!("CARGO_PKG_VERSION");
    let made = format!("<footer><p>gsplit {version} made dataset ds, presample f5-3_b64_e2_s0, partition hash-k2, ");
    assert!(text.contains(&made) && text.contains("this page.</p>"), "{made}");
    // A log has neither metric nor baseline. Points of a long line are not marked.
    assert!(text.contains("Valid score by epoch") && !text.contains("baseline)"));
    assert!(text.contains("runs/split, epoch 2: 1</title>") && !text.contains("runs/old/long, epoch 2:"));
    // As evaluate measures.
    let evaluation = json(folder, "evaluate ds --batches 50");
    let share = 100.0 * evaluation["maps"][0]["all"]["cross_share"].as_f64().unwrap();
    assert!(text.contains(&format!("{share:.1} %")), "{share}");
    assert_eq!(printed["figures"], json(folder, "inspect ds")["figures"]);
    assert!(text == page(folder, ". --threads 1").0, "the page depends on the threads");
}

#[test]
fn what_is_not_there_is_named_with_the_command_that_makes_it() {
    let folder = &*scratch();
    community(folder, 300);
    let (text, printed) = page(folder, "ds");
    assert_eq!(titles(&printed["sections"]), "Graph");
    assert_eq!(titles(&printed["left_out"]), "Scores, Training, Partitions, Configuration");
    for command in ["gsplit partition ds --parts 4", "gsplit train ds --log"] {
        assert!(text.contains(command), "{command}");
    }
    // Nothing but a log, and nothing but an edge list.
    fs::write(folder.join("alone.jsonl"), log(1)).unwrap();
    fs::rename(folder.join("ds"), folder.join(".hidden")).unwrap();
    let (_, printed) = page(folder, ".");
    assert_eq!(titles(&printed["sections"]), "Training");
    fs::write(folder.join("edges.txt"), "0 1\n1 2\n").unwrap();
    fs::remove_file(folder.join("alone.jsonl")).unwrap();
    ok(folder, "convert edges.txt --out bare");
    ok(folder, "partition bare --parts 2 --partitioner hash");
    let (text, printed) = page(folder, "bare");
    assert_eq!(titles(&printed["sections"]), "Graph, Partitions");
    assert!(text.contains("gsplit presample bare --fanouts 15,10,5"), "{}", printed["left_out"]);
}

#[test]
fn names_are_escaped() {
    let folder = &*scratch();
    let name = "a<b>&\"c'\u{7}<script>";
    community(folder, 300);
    ok(folder, "partition ds --parts 2 --partitioner hash");
    fs::create_dir(folder.join(name)).unwrap();
    fs::rename(folder.join("ds"), folder.join(name).join("ds")).unwrap();
    fs::write(folder.join(name).join("x<y>.jsonl"), log(2)).unwrap();
    let (text, printed) = page(folder, name);
    assert!(text.contains("x&lt;y&gt;") && text.contains("a&lt;b&gt;&amp;&quot;c"), "{}", printed["left_out"]);
}

#[test]
fn bad_input_is_one_line() {
    let folder = &*scratch();
    refused(folder, "report nowhere", 1, "nowhere");
    fs::create_dir(folder.join("empty")).unwrap();
    refused(folder, "report empty", 1, "nothing to report on: expected a dataset directory");
    community(folder, 300);
    refused(folder, "report ds --out ds/page.html", 2, "lies in");
    fails(folder, "report ds --batches 0", 2);
    fs::write(folder.join("thesis.html"), "<p>three years of work</p>").unwrap();
    refused(folder, "report ds --out thesis.html", 1, "--force");
    ok(folder, "report ds --out thesis.html --force");
    ok(folder, "report ds --out thesis.html");
    ok(folder, "generate community --vertices 300 --edges 900 --out other");
    refused(folder, "report .", 1, "has several datasets");
    fs::create_dir(folder.join("runs")).unwrap();
    for (bad, line) in [("{\"epoch\": 1", 2), ("{\"epoch\": 1, \"loss\": null}", 2)] {
        fs::write(folder.join("runs/torn.jsonl"), log(1) + bad).unwrap();
        refused(folder, "report runs", 1, &format!("torn.jsonl, line {line}: expected a line of `gsplit train --log`"));
    }
    fs::remove_file(folder.join("runs/torn.jsonl")).unwrap();
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
    let train =
        "train ds --ranks 2 --partition random-k2 --layers 1 --fanouts 3 --hidden 8 --epochs 1 --checkpoint runs/a";
    ok(folder, train);
    let (text, _) = page(folder, ".");
    let rows = ["random-k2</th><td>runs/a</td>", "hash-k2</th><td>-</td>"].map(|row| text.find(row));
    assert!(rows[0].is_some() && rows[0] < rows[1], "{rows:?}");
    // One that was made again since is another.
    ok(folder, "partition ds --parts 2 --partitioner random --seed 7 --key random-k2 --force");
    let (text, _) = page(folder, ".");
    let rows = ["hash-k2</th><td>-</td>", "random-k2</th><td>-</td>"].map(|row| text.find(row));
    assert!(rows[0].is_some() && rows[0] < rows[1], "{rows:?}");
}

#[cfg(feature = "train")]
#[test]
fn a_run_on_tables_shows_its_columns_and_what_it_predicts() {
    let folder = &*scratch();
    let [edges, nodes] = ["edges", "nodes"].map(|name| root().join(format!("examples/customers/{name}.csv")));
    let run = format!("run {} --nodes {} --label-column segment --out people", edges.display(), nodes.display());
    ok(folder, format!("{run} -- --layers 1 --fanouts 3 --hidden 8 --epochs 2"));
    // A table of something else, and one that is damaged.
    ok(folder, "export people/dataset --format parquet --out people/tables");
    fs::write(folder.join("people/torn.parquet"), "PAR1 and no more").unwrap();
    let (text, printed) = page(folder, "people");
    assert!(text.contains("<h1>people</h1>"), "the name of the folder of the run");
    let column = "account_no</th><td>left out</td><td>its name looks like an identifier";
    assert!(text.contains(column) && text.contains("age</th><td>feature</td>"), "{printed}");
    assert!(text.contains("predictions.parquet: classes predicted for 400 vertices"), "{printed}");
    assert_eq!(text.matches("classes predicted for").count(), 2, "a box and its caption, of no other file");
    let section = text.split("<h2 id=\"predictions\"").nth(1).unwrap().split("</section>").next().unwrap();
    let counts = section.split("<tr><th scope=\"row\">").skip(1).map(|row| {
        let cells: Vec<&str> = row.split(['<', '>']).collect();
        assert!(["at risk", "loyal", "regular"].contains(&cells[0]), "{row}");
        cells[4].parse::<u32>().unwrap()
    });
    assert_eq!(counts.sum::<u32>(), 400);
    assert!(titles(&printed["left_out"]).contains("Predictions torn.parquet"), "{printed}");
}

#[cfg(feature = "train")]
#[test]
fn a_run_is_known_by_its_log_and_its_checkpoints() {
    let folder = &*scratch();
    community(folder, 600);
    let train = "train ds --parallelism single --layers 2 --fanouts 3,3 --hidden 8 --batch-size 64 --epochs 3 --log runs/a.jsonl \
                 --log-every 2 --checkpoint runs/a";
    ok(folder, train);
    assert!(titles(&page(folder, ".").1["left_out"]).contains("Predictions"));
    ok(folder, "infer ds --checkpoint runs/a --out runs/p.parquet");
    let (text, printed) = page(folder, ".");
    // Classes without names are shown by number.
    let predicted = "runs/p.parquet: classes predicted for 600 vertices";
    assert!(text.contains(predicted) && text.contains("<th scope=\"row\">15</th>"));
    assert_eq!(printed["runs"], json!(["runs/a"]), "the log and the checkpoints are of one run");
    assert!(titles(&printed["sections"]).contains("Configuration"), "{printed}");
    assert!(text.contains("confusion in the valid split") && text.contains("majority: "), "{printed}");
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}"));
    // The metric is named, with a baseline in numbers and in the chart.
    assert!(text.contains("Valid accuracy by epoch") && text.contains("</i>majority (baseline)</li>"));
    assert!(text.contains("<td>accuracy</td>") && text.contains("64 a vertex, f32, generated by community:64"));
    assert!(text.contains("run runs/a, this page."));
    // The split that counts is open; the other, and which class was taken for which, are folded.
    assert!(at("a: the classes in the test split") < at("<details><summary>runs/a: which class"));
    assert!(at("<details><summary>runs/a: which class") < at("a: the classes in the valid split"));
    // Options at their defaults are not shown.
    assert!(text.contains("model.hidden</th><td>8") && text.contains("fanouts</th><td>3,3"), "{printed}");
    for default in ["seed</th>", "device</th>", "optimizer.kind</th>"] {
        assert!(!text.contains(default), "{default}");
    }
    fs::remove_file(folder.join("runs/a.jsonl")).unwrap();
    let (_, printed) = page(folder, "runs");
    assert_eq!(printed["runs"], json!(["a"]));
}
