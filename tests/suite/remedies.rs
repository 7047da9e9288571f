//! Every option that a message names exists for the commands that print it, and remedies change the
//! outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::layering::product_files;
use crate::support::{errors, gsplit, ok, root, scratch};

/// The commands that print the messages of a folder or a file. The first that fits counts.
const PRINTED_BY: [(&str, &str); 28] = [
    ("preprocess/src/presample", "presample"),
    ("preprocess/src/features", "convert generate"),
    ("preprocess/src/export", "export partition"),
    ("src/doctor", "doctor train"),
    ("preprocess/src", "convert generate presample infer"),
    ("partition/src/evaluate", "evaluate"),
    ("partition/src/place", "place"),
    ("partition/src", "partition evaluate place shard"),
    ("trainer/src/infer", "infer train"),
    ("trainer/src", "train infer compare plan"),
    ("src/run", "run train convert"),
    ("src/train", "train"),
    ("src/infer", "infer"),
    ("src/compare", "compare"),
    ("src/plan", "plan train partition doctor"),
    ("src/convert", "convert"),
    ("src/presample", "presample"),
    ("src/partition", "partition"),
    ("src/evaluate", "evaluate"),
    ("src/place", "place"),
    ("src/export", "export"),
    ("src/generate", "generate"),
    ("src/inspect", "inspect"),
    ("src/report", "report"),
    ("src/shard", "shard"),
    ("src/clean", "clean"),
    ("src/verify", "verify convert presample partition"),
    ("", "convert presample partition evaluate place shard export report train infer run"),
];
/// Options of other programs.
const FOREIGN: &str = "--no-python --target --no-default-features --force-reinstall --no-deps --locked --release --shm-size --ipc --pid \
    --long --ultra --distribution --gsplit";

/// The options of `command`.
fn options(folder: &Path, command: &str) -> BTreeSet<String> {
    let help = ok(folder, [command, if command == "train" { "--help-all" } else { "--help" }]);
    named(&help).into_iter().collect()
}

/// The options that `text` names.
fn named(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words
        .filter(|word| word.len() > 3 && word.starts_with("--") && !word.ends_with('-'))
        .map(str::to_string)
        .collect()
}

/// The string literals of `code`, without tests and comments.
fn literals(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "'").replace("'\"'", "");
    code.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

/// The messages of the product that name an option: the file, the text.
fn messages() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in product_files("src store/src preprocess/src partition/src trainer/src") {
        let within = path.strip_prefix(root()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let with_option = literals(&text)
            .into_iter()
            .filter(|text| !named(text).is_empty() && text.contains(' '));
        found.extend(with_option.map(|text| (within.to_path_buf(), text)));
    }
    found
}

#[test]
fn every_option_in_a_message_exists_for_the_commands_that_print_it() {
    let folder = &*scratch();
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for command in PRINTED_BY.iter().flat_map(|(_, commands)| commands.split(' ')) {
        known.entry(command).or_insert_with(|| options(folder, command));
    }
    let messages = messages();
    assert!(messages.len() > 200, "{}", messages.len());
    let mut wrong = Vec::new();
    for (path, text) in messages {
        // `gsplit NAME --option` is of that command, whoever prints it.
        let other = text.split("gsplit ").skip(1).filter_map(|rest| rest.split([' ', '`']).next());
        let mut commands: Vec<&str> =
            other.filter_map(|name| known.keys().find(|known| **known == name).copied()).collect();
        let place = path.to_str().unwrap();
        let of_place = PRINTED_BY
            .iter()
            .find(|(folder, _)| place.starts_with(folder))
            .map(|(_, commands)| *commands);
        commands.extend(of_place.unwrap_or_default().split(' '));
        commands.extend(text.contains("onvert").then_some("convert"));
        commands.extend(text.contains("dataset again").then_some("convert"));
        let exists = |option: &String| {
            commands.iter().any(|command| known[command].contains(option))
                || FOREIGN.split(' ').any(|other| other == option)
        };
        wrong.extend(
            named(&text)
                .into_iter()
                .filter(|option| !exists(option))
                .map(|option| format!("{place}: {option}: {text}")),
        );
    }
    assert!(
        wrong.is_empty(),
        "messages name options that no command has which prints them:\n{}",
        wrong.join("\n")
    );
}

/// Fails unless `line` fails and says `told`; returns all that it says.
fn says(folder: &Path, line: &str, told: &str) -> String {
    let output = gsplit(folder, line);
    let said = errors(&output);
    assert!(!output.status.success() && said.contains(told), "{line}: {said}");
    said
}

/// A command that fails, words of its message, and the options that the message names, with which
/// it does not fail.
#[test]
fn remedies_change_the_outcome() {
    let folder = &*scratch();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("edges.csv", "src,dst\n1,2\n2,3\n3,4\n4,1\n");
    write("nodes.csv", "id,age,town,class\n1,30,Rome,a\n2,,Oslo,b\n3,50,Rome,a\n4,60,Oslo,b\n");
    write("twice.csv", "id,age,class\n1,30,a\n2,40,b\n2,41,b\n3,50,a\n4,60,b\n");
    write("mine.txt", "mine\n");
    write("some.csv", "id,age,class\n1,30,a\n2,40,b\n3,50,a\n");
    ok(folder, "convert edges.csv --nodes nodes.csv --schema fill=mean --out ds");
    ok(folder, "generate community --vertices 200 --edges 2000 --out big");
    let train = "train big --layers 1 --fanouts 3 --hidden 8 --epochs";
    ok(folder, format!("{train} 1 --checkpoint ck"));
    let run = |more: &str| format!("{train} {more}");
    for (bad, told, more) in [
        ("convert edges.csv --nodes nodes.csv --out a", "--schema fill", "--schema fill=mean"),
        (
            "convert edges.csv --nodes twice.csv --out b",
            "--schema on-duplicate=first",
            "--schema on-duplicate=first",
        ),
        (
            "convert edges.csv --nodes some.csv --schema fill=0 --out c",
            "--schema missing-rows=fill",
            "--schema missing-rows=fill",
        ),
        (
            "convert edges.csv --drop-self-loops --nodes nodes.csv --schema fill=mean --out ds",
            "pass --force to rebuild it",
            "--force",
        ),
        (&run("2 --checkpoint ck"), "pass --resume to continue it", "--resume"),
        (&run("1 --log mine.txt"), "or pass --force to replace it", "--force"),
    ] {
        says(folder, bad, told);
        ok(folder, format!("{bad} {more}"));
    }
    for (bad, told) in [
        ("train --task node x", ": check the path"),
        ("convert - --out d", ": gsplit reads files, not standard input"),
    ] {
        says(folder, bad, told);
    }
    // The folder of a run, where a dataset or a checkpoint is expected.
    ok(folder, "run big --out r -- --layers 1 --fanouts 3 --hidden 8 --epochs 1");
    fs::create_dir(folder.join("q")).unwrap();
    ok(folder, "convert edges.csv --out q/dataset");
    for command in ["presample q", "verify q", "infer q --checkpoint q --embeddings e.npy"] {
        let told = says(folder, command, "q: not a gsplit dataset");
        assert!(told.contains("folder of a run: name q/dataset"), "{command}: {told}");
    }
    ok(folder, "infer big --checkpoint r --out p.npy");
    let of_run = "--checkpoint r: is the folder of a run: name r/checkpoint";
    says(folder, "train big --checkpoint r --resume", of_run);
    // Tips that mislead are not printed.
    for command in [
        "convert edges.csv --out e --labels x",
        "convert edges.csv --out e --froce",
        "infer big --forse",
    ] {
        let told = says(folder, command, "");
        assert!(!told.contains("'--label-column'") && !told.contains("'-- "), "{command}: {told}");
        assert_eq!(
            told.contains("a similar argument exists: '--force'"),
            !command.contains("labels"),
            "{told}"
        );
    }
}
