//! README, the pages of `docs/` and `--help` say what is true: `sh` fences run as printed in a clone, README's output is what they
//! print, every option and every link exists, and README stays short.

use std::fs;
use std::path::{Path, PathBuf};
#[cfg(feature = "train")]
use std::{collections::BTreeSet, process::Command, sync::LazyLock};

#[cfg(feature = "train")]
use crate::support::{community, fails, json};
use crate::support::{ok, root};

/// Words of README, as `wc -w` counts them.
const README_WORDS: usize = 900;
/// Options of `train --help` at most.
#[cfg(feature = "train")]
const OPTIONS_OF_HELP: usize = 45;

/// The subcommands that `gsplit NAME.. --help` lists.
fn subcommands(folder: &Path, of: &[&str]) -> Vec<String> {
    let help = ok(folder, &[of, &["--help"]].concat());
    let lines = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let lines = lines.take_while(|line| line.starts_with("  ")).filter(|line| !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_string).collect()
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    let folder = tempfile::tempdir().unwrap();
    let commands = subcommands(folder.path(), &[]);
    assert!(commands.len() >= 7, "{commands:?}");
    for name in commands {
        let text = ok(folder.path(), &[&name, "--help"]);
        assert!(text.contains(&format!("gsplit {name}")) && text.contains("Example"), "{name}: {text}");
    }
}

#[cfg(feature = "train")]
#[test]
fn short_help_has_the_common_options_and_long_help_has_headings() {
    let folder = tempfile::tempdir().unwrap();
    for (name, common, other, heading) in [
        ("convert", "--symmetrise", "--ignore-header", "\nReading:\n"),
        ("partition", "--parts", "--seed", "\nPartitioner:\n"),
        ("train", "--epochs", "--heads", "\nModel ([model]):\n"),
        ("infer", "--embeddings", "--metric", "\nScores:\n"),
        ("presample", "--fanouts", "--negatives", "\nWhat is drawn:\n"),
        ("evaluate", "--partition", "--draw-by", "\nMini-batches:\n"),
        ("export", "--format", "--buffer", "\nOf one format:\n"),
        ("place", "--cache", "--presample", "\nWhat the prediction assumes:\n"),
        ("compare", "--systems", "--jumping-knowledge", "\nModel:\n"),
    ] {
        let [short, long] = ["-h", "--help"].map(|help| ok(folder.path(), &[name, help]));
        assert!(short.contains(common) && !short.contains(other), "{name}: {short}");
        assert!(long.contains(common) && long.contains(other) && long.contains(heading), "{name}: {long}");
        assert!(long.find(common) < long.find(other), "{name}: {long}");
    }
}

/// The options that a help text defines.
#[cfg(feature = "train")]
fn defined(help: &str) -> BTreeSet<String> {
    let lines =
        help.lines().filter_map(|line| line.strip_prefix("      --").or_else(|| line.get(5..)?.strip_prefix(" --")));
    lines.filter_map(|line| line.split([' ', '.', '[']).next()).map(|name| format!("--{name}")).collect()
}

#[cfg(feature = "train")]
#[test]
fn help_of_train_shows_few_options_and_help_all_shows_all() {
    let folder = tempfile::tempdir().unwrap();
    let [usual, all] = ["--help", "--help-all"].map(|help| ok(folder.path(), &["train", help]));
    let [few, every] = [&usual, &all].map(|help| defined(help));
    assert!(few.len() <= OPTIONS_OF_HELP && few.is_subset(&every), "{}: {few:?}", few.len());
    let more = format!("{} more options: gsplit train --help-all", every.len() - few.len());
    assert_eq!(usual.lines().last(), Some(&*more));
    assert!(!all.contains("more options:"), "{all}");
    // Keys of the file: --model is `kind` of its table, --config itself and such are in none.
    let listed = ok(folder.path(), &["train", "--print-config", "--parallelism", "cooperative", "--ranks", "2"]);
    for key in listed.lines().filter_map(|line| line.trim_start_matches("# ").split_once(" = ")).map(|(key, _)| key) {
        assert!(key == "kind" || every.contains(&format!("--{}", key.replace('_', "-"))), "{key}: {every:?}");
    }
}

/// The Markdown files in `folder` of the repository, by name.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    found.sort();
    found
}

/// README, then the pages of the manual: what is run.
#[cfg(feature = "train")]
fn documents() -> Vec<PathBuf> {
    [vec![root().join("README.md")], markdown("docs")].concat()
}

/// The fences of `text` that are marked as `language`.
#[cfg(feature = "train")]
fn fences<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fences = text.split("```").skip(1).step_by(2);
    fences.filter_map(|fence| fence.strip_prefix(language)?.strip_prefix('\n')).collect()
}

/// Copies the inputs of the commands that a clone of the repository has into `folder`; returns whether git lists them.
#[cfg(feature = "train")]
fn clone_into(folder: &Path) -> bool {
    let listed = Command::new("git").args(["ls-files", "-z", "examples", "tests/data"]).current_dir(root()).output();
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
#[cfg(feature = "train")]
fn shape(line: &str) -> String {
    let words: String = line.chars().filter(|c| !c.is_ascii_digit() && !".,".contains(*c)).collect();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers of `line` that are the same in every run, as they are written: not seconds, nor the epoch that is the best.
#[cfg(feature = "train")]
fn numbers(line: &str) -> Vec<String> {
    let words: Vec<&str> =
        line.split_whitespace().map(|word| word.trim_matches(['(', ')', ',', ';', ':', '%'])).collect();
    // Of an epoch's row: sample, load, compute, exchange and seconds.
    let is_row = words.len() >= 13 && words.iter().take(13).all(|word| word.parse::<f64>().is_ok());
    let seconds = |at: usize| words.get(at + 1) == Some(&"s") || (is_row && (5..10).contains(&at));
    let is_epoch = |at: usize| at > 0 && words[at - 1] == "epoch";
    let is_same = |at: usize| words[at].parse::<f64>().is_ok() && !seconds(at) && !is_epoch(at);
    (0..words.len()).filter(|at| is_same(*at)).map(|at| words[at].to_string()).collect()
}

/// Whether counts and cuts are the same, and losses nearly so. Scores, of few vertices, may turn on what another processor rounds otherwise.
#[cfg(feature = "train")]
fn agree(printed: &[String], shown: &[String]) -> bool {
    let is_near = |a: &String, b: &String| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= if b > 1.0 { 0.02 } else { 0.1 },
        _ => false,
    };
    let are_equal = |(a, b): (&String, &String)| if b.contains('.') { is_near(a, b) } else { a == b };
    printed.len() == shown.len() && printed.iter().zip(shown).all(are_equal)
}

/// A log of one epoch of so many seconds.
#[cfg(feature = "train")]
fn log_of(seconds: f64, exchange: f64, edges: u32) -> String {
    let log = serde_json::json!({ "seconds": seconds, "exchange_s": exchange, "edges": edges, "rows_loaded": edges });
    format!("{log}\n{{\"step\": 1}}\n")
}

#[cfg(feature = "train")]
#[test]
fn the_demo_says_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let verdict = |split: f64, data: f64| {
        fs::write(folder.path().join("split"), log_of(split, 0.4, 60)).unwrap();
        fs::write(folder.path().join("data"), log_of(data, 0.1, 100)).unwrap();
        let script = root().join("scripts/verdict.py");
        let run =
            Command::new("python3").arg(script).args(["split", "data"]).current_dir(folder.path()).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    for (split, data, ratio, says) in [
        (1.0, 2.0, "0.50 of data's time", "the work decides"),
        (1.02, 1.0, "1.02 of data's time", "neither is faster"),
        (3.1, 2.0, "1.55 of data's time", "split is slower"),
    ] {
        let said = verdict(split, data);
        assert!(said.contains(ratio) && said.contains(says) && said.contains("60 % of data's edges"), "{said}");
    }
    let demo = fs::read_to_string(root().join("scripts/demo.sh")).unwrap();
    assert!(demo.contains("python3 scripts/verdict.py \"$runs/split.jsonl\" \"$runs/data.jsonl\""));
}

/// A folder in which README's commands have run, and the lines that they printed; `None` where this is no clone.
#[cfg(feature = "train")]
static README_RAN: LazyLock<Option<(PathBuf, BTreeSet<String>)>> = LazyLock::new(|| {
    // A static value is never dropped: the folder is a fixed one, which the next run empties.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let _ = fs::remove_dir_all(&folder);
    if !clone_into(&folder) {
        println!("skipped: this is no clone, or git is not here");
        return None;
    }
    let printed = run_fences("README.md", &folder);
    Some((folder, printed))
});

/// Runs the `sh` fences of `page` in `folder`; returns the lines that they print.
#[cfg(feature = "train")]
fn run_fences(page: &str, folder: &Path) -> BTreeSet<String> {
    let programs = Path::new(env!("CARGO_BIN_EXE_gsplit")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut printed = BTreeSet::new();
    for script in fences(&text, "sh") {
        let run = Command::new("sh").args(["-euc", script]).env("PATH", &path).current_dir(folder).output().unwrap();
        let (out, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{page}: {script}\n{out}\n{errors}");
        printed.extend(out.lines().chain(errors.lines()).map(str::to_string));
    }
    printed
}

/// Fails unless the last epoch of this log of a page has learnt the generated classes.
#[cfg(feature = "train")]
fn assert_learnt(log: &Path) {
    let text = fs::read_to_string(log).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert!(last["test"].as_f64().unwrap() > 0.95, "{last}");
}

/// Runs the commands of a page of the manual where those of README have run.
#[cfg(feature = "train")]
fn run_page(page: &str) {
    let Some((readme, _)) = &*README_RAN else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = Command::new("cp").arg("-a").arg(readme.join(".")).arg(folder.path()).status().unwrap();
    assert!(copy.success());
    run_fences(page, folder.path());
    if page == "docs/training.md" {
        ["split.jsonl", "single.jsonl"].iter().for_each(|log| assert_learnt(&folder.path().join(log)));
    }
}

/// A test for each page that has commands.
#[cfg(feature = "train")]
macro_rules! pages {
    ($($name:ident),* $(,)?) => {
        const PAGES: &[&str] = &[$(stringify!($name)),*];

        mod commands_of {
            $(
                #[test]
                fn $name() {
                    super::run_page(&format!("docs/{}.md", stringify!($name).replace('_', "-")));
                }
            )*
        }
    };
}

#[cfg(feature = "train")]
pages! {
    distributed, every_night, formats, granndis, inference, install, json, memory, models, p3, partitions, placement, plan, pytorch,
    report, run, song_jiang, systems, tables, training,
}

#[cfg(feature = "train")]
#[test]
fn every_page_with_commands_is_run() {
    let with_commands =
        markdown("docs").into_iter().filter(|page| !fences(&fs::read_to_string(page).unwrap(), "sh").is_empty());
    let names = with_commands.map(|page| page.file_stem().unwrap().to_str().unwrap().replace('-', "_"));
    assert_eq!(names.collect::<Vec<_>>(), PAGES, "docs/ has other pages with commands than `pages!` lists");
}

#[cfg(feature = "train")]
#[test]
fn the_commands_of_the_readme_print_what_it_shows_and_the_model_learns() {
    let Some((folder, printed)) = &*README_RAN else { return };
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let shown = fences(&readme, "console").into_iter().flat_map(str::lines);
    for line in shown.filter(|line| !line.is_empty() && *line != "...") {
        let same: Vec<&String> = printed.iter().filter(|other| shape(other) == shape(line)).collect();
        assert!(!same.is_empty(), "README shows a line that no command prints: {line}\n{printed:#?}");
        let is_of_today = same.iter().any(|other| agree(&numbers(other), &numbers(line)));
        assert!(is_of_today, "README shows other numbers than are printed: {line}\n{same:#?}");
    }
    assert_learnt(&folder.join("run.jsonl"));
}

#[test]
fn the_readme_is_short_and_says_first_what_was_not_tried() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let words = readme.split_whitespace().count();
    assert!(words <= README_WORDS, "README.md has {words} words, at most {README_WORDS}: move some to docs/");
    let first_screen = readme.lines().take(25).collect::<Vec<_>>().join(" ");
    assert!(first_screen.contains("Several GPUs and several hosts have not been"), "{first_screen}");
}

#[test]
fn the_index_of_the_manual_has_every_page() {
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    for page in markdown("docs") {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "docs/README.md has no link to {name}");
    }
}

#[cfg(feature = "train")]
#[test]
fn the_documents_name_all_options_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let options = |text: &str| -> BTreeSet<String> {
        let words =
            text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|word| word.starts_with("--"));
        words.filter(|word| word.len() > 3).map(str::to_string).collect()
    };
    // Those of launchers, cargo, pip and docker.
    let mut known = options(
        "--no-python --nnodes --nproc-per-node --rdzv-backend --rdzv-endpoint --nodes --ntasks-per-node --gpus-per-node \
         --kill-on-bad-exit --map-by --release --no-default-features --features --path --locked --test --lib --example --rm --help",
    );
    let mut own = BTreeSet::new();
    let mut read = |words: &[&str]| {
        let help = ok(folder, words);
        known.extend(options(&help));
        own.extend(defined(&help));
    };
    for name in subcommands(folder, &[]) {
        read(&[&name, if name == "train" { "--help-all" } else { "--help" }]);
        for inner in subcommands(folder, &[&name]) {
            read(&[&name, &inner, "--help"]);
        }
    }
    let mut named = BTreeSet::new();
    for path in documents() {
        let here = options(&fs::read_to_string(&path).unwrap());
        let unknown: Vec<_> = here.difference(&known).collect();
        assert!(unknown.is_empty(), "{} names options that no subcommand has: {unknown:?}", path.display());
        named.extend(here);
    }
    let unnamed: Vec<_> = own.difference(&named).collect();
    assert!(unnamed.is_empty(), "options that no document names: {unnamed:?}");
}

#[cfg(feature = "train")]
#[test]
fn completions_and_man_pages_have_the_options_of_both_programs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for shell in ["bash", "zsh", "fish"] {
        let script = ok(folder, &["completions", shell]);
        for word in ["convert", "symmetrise", "train", "fanouts", "split-layers", "compare"] {
            assert!(script.contains(word), "{shell} has no {word}");
        }
        assert!(!script.contains("outline"), "{shell} shows what is hidden");
    }
    ok(folder, &["man", "pages"]);
    for (page, option) in [("gsplit", "json"), ("gsplit-convert", "symmetrise"), ("gsplit-compare", "rounds")] {
        let text = fs::read_to_string(folder.join(format!("pages/{page}.1"))).unwrap();
        assert!(text.contains(option), "{page}.1 has no {option}");
    }
    let train = fs::read_to_string(folder.join("pages/gsplit-train.1")).unwrap();
    assert!(train.contains("fanouts") && train.contains("GraphSAGE with the mean aggregator"), "{train}");
}

#[cfg(feature = "train")]
#[test]
fn logs_with_records_of_mini_batches_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    community(folder, 600);
    let train = ["train", "ds", "--parallelism", "single", "--layers", "2", "--fanouts", "3,3", "--hidden", "8"];
    let train = [&train[..], &["--batch-size", "64", "--epochs", "2"]].concat();
    ok(folder, &[&train[..], &["--log", "plain.jsonl"]].concat());
    ok(folder, &[&train[..], &["--log", "steps.jsonl", "--log-every", "2"]].concat());
    let lines = |log: &str| fs::read_to_string(folder.join(log)).unwrap().lines().count();
    assert!(lines("plain.jsonl") == 2 && lines("steps.jsonl") > 4);
    let both = json(folder, &["compare", "plain.jsonl", "steps.jsonl"]);
    for key in ["epochs", "loss", "valid", "test", "edges", "rows_loaded"] {
        assert_eq!(both["runs"][0][key], both["runs"][1][key], "{key}");
    }
    // What was interrupted in its first epoch, and what is something else.
    let log = fs::read_to_string(folder.join("steps.jsonl")).unwrap();
    fs::write(folder.join("early.jsonl"), log.lines().next().unwrap()).unwrap();
    assert!(fails(folder, &["compare", "early.jsonl"], 1).contains("early.jsonl: no epoch was finished"));
    fs::write(folder.join("other.jsonl"), "{\"epoch\": 1}\n").unwrap();
    assert!(
        fails(folder, &["compare", "plain.jsonl", "other.jsonl"], 1).contains("other.jsonl, line 1: expected a line")
    );
}

/// The name by which GitHub links to a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_matches(['#', ' ']).to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

#[test]
fn the_documents_name_only_files_that_are_there() {
    for path in [markdown(""), markdown("docs"), markdown("python")].concat() {
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            assert!(linked.exists(), "{} links to {target}", path.display());
            let named = |line: &str| line.starts_with('#') && anchor(line) == heading;
            let found = heading.is_empty() || fs::read_to_string(&linked).unwrap().lines().any(named);
            assert!(found, "{} links to {target}: no such heading", path.display());
        }
    }
}
