//! Commands of README and of the pages of `docs/`: `sh` fences run as printed in a clone, their
//! output is compared with the output that is shown, and every option exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::{markdown, section, subcommands};
use crate::support::{community, json, ok, refused, root, scratch};

/// Options of `train --help` at most.
const OPTIONS_OF_HELP: usize = 45;

#[test]
fn short_help_has_the_common_options_and_long_help_has_headings() {
    let folder = &*scratch();
    for (name, common, other, heading) in [
        ("convert", "--symmetrise", "--target-column", "\nReading:\n"),
        ("partition", "--parts", "--contiguous", "\nPartitioner:\n"),
        ("train", "--epochs", "--heads", "\nModel ([model]):\n"),
        ("infer", "--embeddings", "--metric", "\nScores:\n"),
        ("presample", "--fanouts", "--negatives", "\nWhat is drawn:\n"),
        ("evaluate", "--partition", "--draw-by", "\nMini-batches:\n"),
        ("export", "--format", "--original-ids", "\nOf one format:\n"),
        ("place", "--cache", "--presample", "\nAssumptions of the prediction:\n"),
        ("compare", "--systems", "--jumping-knowledge", "\nModel:\n"),
    ] {
        let [short, long] = ["-h", "--help"].map(|help| ok(folder, format!("{name} {help}")));
        assert!(short.contains(common) && !short.contains(other), "{name}: {short}");
        assert!(
            long.contains(common) && long.contains(other) && long.contains(heading),
            "{name}: {long}"
        );
        assert!(long.find(common) < long.find(other), "{name}: {long}");
    }
}

/// The options that a help text defines.
fn defined(help: &str) -> BTreeSet<String> {
    let lines = help.lines().filter_map(|line| {
        line.strip_prefix("      --").or_else(|| line.get(5..)?.strip_prefix(" --"))
    });
    lines
        .filter_map(|line| line.split([' ', '.', '[']).next())
        .map(|name| format!("--{name}"))
        .collect()
}

#[test]
fn help_of_train_shows_few_options_and_help_all_shows_all() {
    let folder = &*scratch();
    let [usual, all] = ["--help", "--help-all"].map(|help| ok(folder, format!("train {help}")));
    let [few, every] = [&usual, &all].map(|help| defined(help));
    assert!(few.len() <= OPTIONS_OF_HELP && few.is_subset(&every), "{}: {few:?}", few.len());
    let more = format!("{} more options: gsplit train --help-all", every.len() - few.len());
    assert_eq!(usual.lines().last(), Some(&*more));
    assert!(!all.contains("more options:"), "{all}");
    // Keys of the file: --model is `kind` of its table, --config itself and such are in none.
    let listed = ok(folder, "train --print-config --parallelism cooperative --ranks 2");
    for key in listed
        .lines()
        .filter_map(|line| line.trim_start_matches("# ").split_once(" = "))
        .map(|(key, _)| key)
    {
        assert!(
            key == "kind" || every.contains(&format!("--{}", key.replace('_', "-"))),
            "{key}: {every:?}"
        );
    }
}

/// The documents whose options are compared with the command line.
fn documents() -> Vec<PathBuf> {
    [vec![root().join("README.md"), root().join("docs/llms.txt")], markdown("docs")].concat()
}

/// The fences of `text` that are marked as `language`.
fn fences<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fences = text.split("```").skip(1).step_by(2);
    fences.filter_map(|fence| fence.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// Copies the inputs of the commands that a clone of the repository has into `folder`; returns
/// whether git lists them.
fn clone_into(folder: &Path) -> bool {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "examples", "tests/data"])
        .current_dir(root())
        .output();
    let Some(listed) = listed.ok().filter(|listed| listed.status.success()) else { return false };
    for name in String::from_utf8(listed.stdout).unwrap().split_terminator('\0') {
        let (from, to) = (root().join(name), folder.join(name));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        // A file that was deleted just now is listed until that is committed.
        if from.exists() {
            fs::copy(from, to).unwrap();
        }
    }
    true
}

/// `line` without what differs between two runs: numbers, and the room between columns.
fn shape(line: &str) -> String {
    let words: String =
        line.chars().filter(|c| !c.is_ascii_digit() && !".,".contains(*c)).collect();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers of `line` that are the same in every run, as they are written: not seconds, nor the
/// epoch that is the best.
fn numbers(line: &str) -> Vec<String> {
    let words: Vec<&str> = line
        .split_whitespace()
        .map(|word| word.trim_matches(['(', ')', ',', ';', ':', '%']))
        .collect();
    // Of an epoch's row: sample, load, compute, exchange and seconds.
    let is_row = words.len() >= 13 && words.iter().take(13).all(|word| word.parse::<f64>().is_ok());
    let seconds = |at: usize| words.get(at + 1) == Some(&"s") || (is_row && (5..10).contains(&at));
    let is_epoch = |at: usize| at > 0 && words[at - 1] == "epoch";
    let is_same = |at: usize| words[at].parse::<f64>().is_ok() && !seconds(at) && !is_epoch(at);
    (0..words.len()).filter(|at| is_same(*at)).map(|at| words[at].to_string()).collect()
}

/// Whether counts and cuts are the same, and losses nearly so. Scores, of few vertices, may turn on
/// what another processor rounds otherwise.
fn agree(printed: &[String], shown: &[String]) -> bool {
    let is_near = |a: &String, b: &String| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= if b > 1.0 { 0.02 } else { 0.1 },
        _ => false,
    };
    let are_equal =
        |(a, b): (&String, &String)| if b.contains('.') { is_near(a, b) } else { a == b };
    printed.len() == shown.len() && printed.iter().zip(shown).all(are_equal)
}

/// The log of a single epoch with these values.
fn log_of(seconds: f64, exchange: f64, edges: u32) -> String {
    let log = serde_json::json!({ "seconds": seconds, "exchange_s": exchange, "edges": edges, "rows_loaded": edges });
    format!("{log}\n{{\"step\": 1}}\n")
}

#[test]
fn the_demo_says_what_was_measured() {
    let folder = &*scratch();
    let verdict = |split: f64, data: f64| {
        fs::write(folder.join("split"), log_of(split, 0.4, 60)).unwrap();
        fs::write(folder.join("data"), log_of(data, 0.1, 100)).unwrap();
        let script = root().join("scripts/verdict.py");
        let run = Command::new("python3")
            .arg(script)
            .args(["split", "data"])
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    for (split, data, ratio, says) in [
        (1.0, 2.0, "0.50 of data's time", "the work decides"),
        (1.02, 1.0, "1.02 of data's time", "neither is faster"),
        (3.1, 2.0, "1.55 of data's time", "split is slower"),
    ] {
        let said = verdict(split, data);
        assert!(
            said.contains(ratio) && said.contains(says) && said.contains("60 % of data's edges"),
            "{said}"
        );
    }
    let demo = fs::read_to_string(root().join("scripts/demo.sh")).unwrap();
    assert!(demo.contains("python3 scripts/verdict.py \"$runs/split.jsonl\" \"$runs/data.jsonl\""));
}

/// Sections of the quick start that every other section of the manual continues.
const FIRST: [&str; 2] = ["A table", "Five commands"];

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// A folder in which the commands of README and of [`FIRST`] have run, and the lines that they
/// printed; `None` outside a clone.
static FIRST_RAN: LazyLock<Option<(PathBuf, BTreeSet<String>)>> = LazyLock::new(|| {
    // A static value is never dropped: the folder is a fixed one, which the next run empties.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let _ = fs::remove_dir_all(&folder);
    if !clone_into(&folder) {
        println!("skipped: this is not a clone, or git is not installed");
        return None;
    }
    let mut printed = run_fences("README.md", &read("README.md"), &folder);
    let quickstart = read("docs/quickstart.md");
    for heading in FIRST {
        printed.extend(run_fences(heading, section(&quickstart, heading), &folder));
    }
    Some((folder, printed))
});

/// Runs the `sh` fences of `text`, which is at `place`, in `folder`; returns the lines that they
/// print.
fn run_fences(place: &str, text: &str, folder: &Path) -> BTreeSet<String> {
    let programs = Path::new(env!("CARGO_BIN_EXE_gsplit")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut printed = BTreeSet::new();
    for script in fences(text, "sh") {
        let run = Command::new("sh")
            .args(["-euc", script])
            .env("PATH", &path)
            .current_dir(folder)
            .output()
            .unwrap();
        let (out, errors) =
            (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{place}: {script}\n{out}\n{errors}");
        printed.extend(out.lines().chain(errors.lines()).map(str::to_string));
    }
    printed
}

/// Fails unless the last epoch of this log of a page has learnt the generated classes.
fn assert_learnt(log: &Path) {
    let text = fs::read_to_string(log).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(last["test"].as_f64().unwrap() > 0.95, "{last}");
}

/// Runs the commands of a section of a page in a copy of the folder of [`FIRST_RAN`].
fn run_section(page: &str, heading: &str) {
    let Some((first, _)) = &*FIRST_RAN else { return };
    let folder = &*scratch();
    let copy = Command::new("cp").arg("-a").arg(first.join(".")).arg(folder).status().unwrap();
    assert!(copy.success());
    run_fences(page, section(&read(&format!("docs/{page}.md")), heading), folder);
    if heading == "A first run" {
        ["split.jsonl", "single.jsonl"].iter().for_each(|log| assert_learnt(&folder.join(log)));
    }
}

/// A test for each section of a page that has commands: its name, the page, the heading.
macro_rules! sections {
    ($($name:ident: $page:literal, $heading:literal;)*) => {
        const SECTIONS: &[(&str, &str)] = &[$(($page, $heading)),*];

        mod commands_of {
            $(
                #[test]
                fn $name() {
                    super::run_section($page, $heading);
                }
            )*
        }
    };
}

sections! {
    input: "formats", "Input";
    generated_graphs: "formats", "Generated graphs";
    exports: "formats", "Output for other tools";
    processes: "gpu", "Processes and hosts";
    shards: "gpu", "Shards";
    predictions: "inference", "Predictions and embeddings";
    recommendations: "inference", "Recommendations";
    checking_a_machine: "install", "Checking a machine";
    memory: "memory", "Where rows are";
    partition: "partition", "Presample, partition, evaluate";
    own_weights: "partition", "Weights that came with the graph";
    one_command: "quickstart", "One command";
    every_night: "quickstart", "Every night";
    json: "reference", "JSON";
    report: "reference", "Report";
    plan: "reference", "Plan";
    columns: "tables", "How columns are understood";
    schema: "tables", "The schema";
    new_tables: "tables", "New tables";
    a_first_run: "train", "A first run";
    models: "train", "Models";
    placement: "train", "Placement of feature rows";
    systems: "train", "Systems";
    p3: "train", "P3";
    granndis: "train", "GraNNDis";
    song_and_jiang: "train", "Song and Jiang";
    typed: "typed", "Commands";
    tables_with_keys: "typed", "Input";
}

#[test]
fn every_section_with_commands_is_run() {
    let mut found = Vec::new();
    for path in markdown("docs") {
        let page = path.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let mut parts = text.split("\n## ");
        let head = parts.next().unwrap();
        assert!(
            fences(head, "sh").is_empty(),
            "{page}: commands belong below a heading of level two"
        );
        let with_commands = parts.filter(|part| !fences(part, "sh").is_empty());
        let headings = with_commands.map(|part| part.lines().next().unwrap());
        let others = headings.filter(|heading| page != "quickstart" || !FIRST.contains(heading));
        found.extend(others.map(|heading| (page.to_string(), heading.to_string())));
    }
    let listed: Vec<_> =
        SECTIONS.iter().map(|(page, heading)| (page.to_string(), heading.to_string())).collect();
    assert_eq!(found, listed, "docs/ has other sections with commands than `sections!` lists");
}

#[test]
fn the_first_commands_print_what_is_shown_and_the_model_learns() {
    let Some((folder, printed)) = &*FIRST_RAN else { return };
    let text = [read("README.md"), read("docs/quickstart.md")].concat();
    let shown = fences(&text, "console").into_iter().flat_map(str::lines);
    for line in shown.filter(|line| !line.is_empty() && *line != "...") {
        let same: Vec<&String> =
            printed.iter().filter(|other| shape(other) == shape(line)).collect();
        assert!(
            !same.is_empty(),
            "the documents show a line that no command prints: {line}\n{printed:#?}"
        );
        let is_of_today = same.iter().any(|other| agree(&numbers(other), &numbers(line)));
        assert!(
            is_of_today,
            "the documents show other numbers than are printed: {line}\n{same:#?}"
        );
    }
    assert_learnt(&folder.join("run.jsonl"));
}

#[test]
fn the_documents_name_all_options_and_no_others() {
    let folder = &*scratch();
    let options = |text: &str| -> BTreeSet<String> {
        let words = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter(|word| word.starts_with("--"));
        words.filter(|word| word.len() > 3).map(str::to_string).collect()
    };
    // Commands of launchers, cargo, pip and docker.
    let mut known = options(
        "--no-python --nnodes --nproc-per-node --rdzv-backend --rdzv-endpoint --nodes \
         --ntasks-per-node --gpus-per-node \
         --kill-on-bad-exit --map-by --part --release --no-default-features --features --path \
         --locked --test --lib --example --rm --help",
    );
    let mut own = BTreeSet::new();
    let mut read = |line: String| {
        let help = ok(folder, line);
        known.extend(options(&help));
        own.extend(defined(&help));
    };
    for name in subcommands(folder, "") {
        read(format!("{name} {}", if name == "train" { "--help-all" } else { "--help" }));
        for inner in subcommands(folder, &name) {
            read(format!("{name} {inner} --help"));
        }
    }
    let mut named = BTreeSet::new();
    for path in documents() {
        let here = options(&fs::read_to_string(&path).unwrap());
        let unknown: Vec<_> = here.difference(&known).collect();
        assert!(
            unknown.is_empty(),
            "{} names options that no subcommand has: {unknown:?}",
            path.display()
        );
        named.extend(here);
    }
    let unnamed: Vec<_> = own.difference(&named).collect();
    assert!(unnamed.is_empty(), "options that no document names: {unnamed:?}");
}

#[test]
fn completions_and_man_pages_have_the_options_of_both_programs() {
    let folder = &*scratch();
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(folder, format!("completions {shell}"));
        for word in ["convert", "symmetrise", "train", "fanouts", "split-layers", "compare"] {
            assert!(script.contains(word), "{shell} has no {word}");
        }
        assert!(!script.contains("outline"), "{shell} shows what is hidden");
    }
    ok(folder, "man pages");
    for (page, option) in
        [("gsplit", "json"), ("gsplit-convert", "symmetrise"), ("gsplit-compare", "epochs")]
    {
        let text = fs::read_to_string(folder.join(format!("pages/{page}.1"))).unwrap();
        assert!(text.contains(option), "{page}.1 has no {option}");
    }
    let train = fs::read_to_string(folder.join("pages/gsplit-train.1")).unwrap();
    assert!(
        train.contains("fanouts") && train.contains("GraphSAGE with the mean aggregator"),
        "{train}"
    );
}

#[test]
fn logs_with_records_of_mini_batches_are_compared() {
    let folder = &*scratch();
    community(folder, 600);
    let train = "train ds --parallelism single --layers 2 --fanouts 3,3 --hidden 8";
    let train = format!("{train} --batch-size 64 --epochs 2");
    ok(folder, format!("{train} --log plain.jsonl"));
    ok(folder, format!("{train} --log steps.jsonl --log-every 2"));
    let lines = |log: &str| fs::read_to_string(folder.join(log)).unwrap().lines().count();
    assert!(lines("plain.jsonl") == 2 && lines("steps.jsonl") > 4);
    let both = json(folder, "compare plain.jsonl steps.jsonl");
    for key in ["epochs", "loss", "valid", "test", "edges", "rows_loaded"] {
        assert_eq!(both["runs"][0][key], both["runs"][1][key], "{key}");
    }
    // A run that was interrupted in its first epoch, and a file of another kind.
    let log = fs::read_to_string(folder.join("steps.jsonl")).unwrap();
    fs::write(folder.join("early.jsonl"), log.lines().next().unwrap()).unwrap();
    refused(folder, "compare early.jsonl", 1, "early.jsonl: no epoch was finished");
    fs::write(folder.join("other.jsonl"), "{\"epoch\": 1}\n").unwrap();
    refused(folder, "compare plain.jsonl other.jsonl", 1, "other.jsonl, line 1: expected a line");
}
