//! `gsplit run`: every step in one command. The tests are in one file because most of them run on
//! the tables that it writes.

use std::fs;
use std::path::Path;

use crate::convert::npy;
use crate::support::{
    command, community, content, errors, fails, gsplit, json, losses, ok, refused, scratch, shared,
};

/// A graph of two circles of vertices, without features or labels: edges.txt.
fn raw(folder: &Path) {
    let mut edges = String::new();
    for v in 0..200 {
        let circle = v / 100 * 100;
        for step in 1..4 {
            edges += &format!("{v} {}\n", circle + (v - circle + step) % 100);
        }
    }
    fs::write(folder.join("edges.txt"), edges).unwrap();
}

/// Table of the vertices of [`raw`], of whose rows some are changed by `change`.
fn nodes(folder: &Path, change: impl Fn(u32) -> Option<String>) {
    let row = |v: u32| {
        change(v).unwrap_or(format!(
            "{v},{}.5,{}",
            v / 100,
            if v < 100 { "maths" } else { "physics" }
        ))
    };
    let rows: Vec<String> = (0..200).map(row).collect();
    fs::write(folder.join("nodes.csv"), format!("id,f,label\n{}\n", rows.join("\n"))).unwrap();
}

/// What `gsplit run` says for `line`, which may end with options of train.
fn run(folder: &Path, line: &str) -> serde_json::Value {
    serde_json::from_str(&ok(folder, line.replacen("run", "run --json", 1))).unwrap()
}

fn steps(run: &serde_json::Value) -> Vec<&str> {
    run["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect()
}

#[test]
fn a_dataset_becomes_predictions_and_finished_steps_are_reused() {
    let folder = &*scratch();
    community(folder, 600);
    let words =
        "run ds --out out -- --fanouts 5,5 --epochs 3 --hidden=16 --ranks 2 --lr 0.01 --seed 3";
    let all = run(folder, words);
    assert_eq!(steps(&all), ["presample", "partition", "train", "infer", "report"]);
    let partition = &all["steps"][1]["result"];
    assert_eq!(partition["presample"], "f5-5_b1024_e10_s3");
    assert_eq!(all["steps"][2]["result"]["config"]["system"]["parallelism"], "split");
    assert_eq!(all["steps"][2]["result"]["config"]["model"]["layers"], 2);
    let predictions = fs::read(folder.join("out/predictions.parquet")).unwrap();

    let again = run(folder, words);
    assert_eq!(steps(&again), steps(&all));
    assert_eq!(again["steps"][3]["result"]["reused"], true, "predictions are there");
    assert_eq!(again["steps"][0]["result"]["reused"], true);
    assert_eq!(again["steps"][1]["result"]["reused"], true);
    assert_eq!(again["steps"][2]["result"]["summary"]["epochs"].as_array().unwrap().len(), 0);
    assert_eq!(fs::read(folder.join("out/predictions.parquet")).unwrap(), predictions);

    // Killed between the predictions and the record of them.
    let record = folder.join("out/run.json");
    let mut content: serde_json::Value =
        serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    content.as_object_mut().unwrap().remove("infer").unwrap();
    fs::write(&record, content.to_string()).unwrap();
    let again = run(folder, words);
    assert_eq!(steps(&again), ["presample", "partition", "train", "infer", "report"]);
    assert_eq!(fs::read(folder.join("out/predictions.parquet")).unwrap(), predictions);

    // A file of somebody else's stays.
    fs::create_dir(folder.join("other")).unwrap();
    fs::write(folder.join("other/run.json"), "{}").unwrap();
    fs::write(folder.join("other/predictions.parquet"), "mine").unwrap();
    fails(folder, words.replace("--out out", "--out other"), 1);
    assert_eq!(fs::read(folder.join("other/predictions.parquet")).unwrap(), b"mine");

    // Each step as printed makes the same.
    for step in all["steps"].as_array().unwrap() {
        let line = step["command"].as_str().unwrap().trim_start_matches("gsplit ");
        // What run replaces of its own, others replace by --force.
        ok(folder, format!("{line}{}", if step["step"] == "infer" { " --force" } else { "" }));
    }
}

#[test]
fn raw_edges_are_converted_with_the_options_given() {
    let folder = &*scratch();
    raw(folder);
    let words = "run edges.txt --symmetrise --features=random:8 --out o -- --task link --epochs=1 --hidden 8";
    let dry = run(folder, &words.replacen("run", "run --dry-run", 1));
    assert!(!folder.join("o").exists());
    assert_eq!(
        dry["steps"][0]["command"],
        "gsplit convert edges.txt --symmetrise --features=random:8 --out=o/dataset"
    );
    let all = run(folder, words);
    assert_eq!(steps(&all), ["convert", "train", "infer", "report"]);
    assert!(
        folder.join("o/embeddings.parquet").is_file() && folder.join("o/report.html").is_file()
    );
    // Ranks share edges by a map that mini-batches of edges have cut.
    let two = run(
        folder,
        "run o/dataset --out p -- --task=link --epochs=1 --hidden=8 --ranks=2 --negatives=3",
    );
    assert_eq!(steps(&two), ["presample", "partition", "train", "infer", "report"]);
    assert_eq!(two["steps"][1]["result"]["presample"], "f10-10_b512_e1_s0_links3");
    refused(folder, "evaluate o/dataset", 2, "f10-10_b512_e1_s0_links3: is of edges");
    let told = "o/dataset: already there, but it was made without --drop-self-loops";
    refused(folder, words.replacen("run", "run --drop-self-loops", 1), 1, told);
}

#[test]
fn arrays_of_several_types_become_predictions() {
    let folder = &*scratch();
    let array =
        |name: &str, descr: &str, shape: &str, numbers: &mut dyn Iterator<Item = [u8; 4]>| {
            let path = folder.join("shop").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            npy(&path, descr, shape, numbers);
        };
    let ends = (0..300).chain((0..300).map(|at| at % 20)).map(i32::to_le_bytes);
    array("user___buys___item/edge_index.npy", "<i4", "(2, 300)", &mut ends.clone());
    array(
        "user/node_feat.npy",
        "<f4",
        "(300, 1)",
        &mut (0..300).map(|at| ((at % 2) as f32).to_le_bytes()),
    );
    array("item/num_nodes.npy", "<i4", "()", &mut [20i32.to_le_bytes()].into_iter());
    let told = "o/dataset: has no labels of any type to learn";
    refused(folder, "run shop --out o", 1, told);
    refused(
        folder,
        "run shop --out p --features fastrp:8",
        2,
        "--features fastrp:8 is for vertices",
    );
    array(
        "user/node_label.npy",
        "<i4",
        "(300,)",
        &mut (0..300).map(|at| (at % 2i32).to_le_bytes()),
    );
    let words = "run shop --out q --symmetrise -- --fanouts 3,3 --epochs 3 --hidden 8 --ranks 2";
    let all = run(folder, words);
    assert_eq!(steps(&all), ["convert", "presample", "partition", "train", "infer", "report"]);
    assert_eq!(all["steps"][4]["result"]["summary"]["vertices"], 300);
    assert!(
        folder.join("q/predictions.parquet").is_file() && folder.join("q/report.html").is_file()
    );
}

#[test]
fn ratings_become_recommendations() {
    let folder = &*scratch();
    let pairs = (1..60).flat_map(|user| {
        (1..13).filter(move |item| (user * 7 + item * 5) % 4 > 1).map(move |i| (user, i))
    });
    let lines: String = pairs.map(|(user, item)| format!("{user},{item},3\n")).collect();
    fs::write(folder.join("ratings.csv"), "user_id,item_id,rating\n".to_string() + &lines).unwrap();
    let words = "run ratings.csv --bipartite --symmetrise --features fastrp:8 --out o -- --task link --epochs 1 --hidden 8";
    let dry = run(folder, &words.replacen("run", "run --dry-run", 1));
    let infer = dry["steps"][2]["command"].as_str().unwrap();
    assert!(infer.ends_with("--out=o/recommendations.parquet --top=10"), "{infer}");
    let all = run(folder, words);
    assert_eq!(steps(&all), ["convert", "train", "infer", "report"]);
    assert!(folder.join("o/recommendations.parquet").is_file());
    let counts = &all["steps"][2]["result"]["summary"]["recommendations"];
    assert_eq!((&counts["sources"], &counts["without"]), (&59.into(), &0.into()));
    assert!(counts["rows"].as_u64().unwrap() > 59);
    assert_eq!(all["steps"][1]["result"]["summary"]["baseline"]["name"], "popularity");

    fs::write(folder.join("users.txt"), "3\n5\n").unwrap();
    ok(folder, "infer o/dataset --checkpoint o/checkpoint --top 2 --sources users.txt --out r.csv");
    let text = fs::read_to_string(folder.join("r.csv")).unwrap();
    let sources: Vec<&str> = text.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(sources, ["source", "3", "3", "5", "5"]);
    fails(folder, "infer o/dataset --checkpoint o/checkpoint --with-known", 2);
    // Features are made without the links that training holds out; where they are others, train
    // says that scores flatter.
    let other =
        words.replace("--out o", "--out p").replace("--epochs 1", "--epochs=1 --test-edges=0.2");
    let dry = run(folder, &other.replacen("run", "run --dry-run", 1));
    assert!(
        dry["steps"][0]["command"].as_str().unwrap().contains("--held-out-links=0.25,0 "),
        "{dry}"
    );
}

#[test]
fn names_of_classes_go_with_the_model_to_other_graphs() {
    let folder = &*scratch();
    raw(folder);
    nodes(folder, |_| None);
    let words = "run edges.txt --nodes nodes.csv --random-split 0.6,0.2,0.2 --out o -- --epochs 1 --hidden 8";
    let all = run(folder, words);
    let infer =
        all["steps"].as_array().unwrap().iter().find(|step| step["step"] == "infer").unwrap();
    assert_eq!(infer["result"]["summary"]["class_names"], serde_json::json!(["maths", "physics"]));
    let page = fs::read_to_string(folder.join("o/report.html")).unwrap();
    assert!(page.contains("<th scope=\"row\">maths</th>"), "named in the report");
    assert!(ok(folder, "inspect o/dataset").contains("physics: 100 (50.0 %)"));
    let told = ok(folder, "train o/dataset --epochs 1 --hidden 8");
    assert!(
        told.contains("test after epoch 1  precision  recall") && told.contains("\nphysics "),
        "{told}"
    );
    ok(folder, "convert edges.txt --out other --features random:1");
    let told = ok(folder, "infer other --checkpoint o/checkpoint --out p.npy");
    assert!(told.contains("classes by number: 0 maths, 1 physics"), "{told}");
    let told = ok(folder, "infer other --checkpoint o/checkpoint --out p.parquet");
    assert!(!told.contains("maths"), "{told}");
}

#[test]
fn what_is_missing_is_told_before_training() {
    let folder = &*scratch();
    raw(folder);
    fs::create_dir(folder.join("mine")).unwrap();
    fs::write(folder.join("mine/thesis"), "").unwrap();
    refused(folder, "run edges.txt --out mine", 1, "--out mine: is there, and not of gsplit run");
    assert_eq!(fs::read_dir(folder.join("mine")).unwrap().count(), 1);
    fails(folder, "run edges.txt --out o -- --epochs many", 2);
    fails(folder, "run edges.txt --out o --random-split nonsense", 2);
    assert!(!folder.join("o").exists());
    refused(
        folder,
        "run edges.txt --out o",
        1,
        "has no features to learn from (--features=fastrp:64 makes them of the graph's structure), no \
         labels to learn (--nodes FILE names a table of the vertices that has some; -- --task=link \
         learns the edges)",
    );
    refused(
        folder,
        "run edges.txt --out o --features=fastrp:8 -- --epochs 1",
        1,
        "o/dataset: has no labels to learn (--nodes FILE",
    );
    ok(folder, "convert edges.txt --out bare");
    refused(folder, "run bare --out q", 1, "convert the graph again with these options");
    refused(folder, "run o/dataset --out p --symmetrise", 2, "is a dataset already");
}

#[test]
fn splits_a_rate_and_an_end_are_chosen_where_none_is_given() {
    let folder = &*scratch();
    raw(folder);
    nodes(folder, |_| None);
    let words = "run edges.txt --nodes nodes.csv --out o -- --hidden 8 --fanouts 3";
    let all = run(folder, words);
    assert_eq!(steps(&all), ["convert", "train", "infer", "report"]);
    let command = |step: usize| all["steps"][step]["command"].as_str().unwrap();
    assert!(command(0).contains("--nodes=nodes.csv --random-split=auto"), "{}", command(0));
    assert_eq!(
        all["steps"][0]["result"]["splits"],
        serde_json::json!({ "train": 120, "valid": 40, "test": 40 })
    );
    assert!(
        command(1).contains("--hidden 8 --fanouts 3 --lr=0.01 --epochs=300 --patience=30"),
        "{}",
        command(1)
    );
    let summary = &all["steps"][1]["result"]["summary"];
    assert!(summary["stopped_early"] == true && summary["epochs"].as_array().unwrap().len() < 100);
    let again = run(folder, words);
    assert_eq!(again["steps"][2]["result"]["reused"], true, "the split is known");
    // Numbers that are given stay, and without a valid split epochs are counted.
    let told = |more: &str| {
        run(folder, &format!("{} {more}", words.replacen("run", "run --dry-run", 1)))["steps"][1]["command"]
            .as_str()
            .unwrap()
            .to_string()
    };
    assert!(told("--lr 0.1").contains("--lr 0.1 --epochs=300"));
    assert!(!told("--epochs 7").contains("--patience"));
    assert!(
        told("--eval-every 0").contains("--epochs=100")
            && !told("--eval-every=0").contains("--patience")
    );
}

#[test]
#[ignore = "takes long: make test-all"]
fn cora_is_learnt_without_an_option() {
    let Some(cora) = shared("planetoid-cora") else { return };
    let folder = &*scratch();
    let all = run(folder, &format!("run {} --out o", cora.display()));
    let train = &all["steps"][1]["result"]["summary"];
    let test = train["best"]["test"].as_f64().unwrap();
    assert!(test >= 0.80, "{test}");
    assert!(train["baseline"]["test"].as_f64().unwrap() < 0.35, "{}", train["baseline"]);
    let page = fs::read_to_string(folder.join("o/report.html")).unwrap();
    assert!(page.contains("the classes most confused in the test split"));
}

#[test]
fn steps_are_numbered_and_mistyped_options_are_told() {
    let folder = &*scratch();
    community(folder, 300);
    let output = gsplit(folder, "run ds --out o -- --epochs 1 --hidden 8 --fanouts 3");
    let told = errors(&output);
    assert!(output.status.success(), "{told}");
    for step in
        ["── 1 of 3: gsplit train ds", "── 2 of 3: gsplit infer ds", "── 3 of 3: gsplit report o"]
    {
        assert!(told.contains(step), "{told}");
    }
    let page = fs::read_to_string(folder.join("o/report.html")).unwrap();
    assert!(page.contains("<p>300 vertices, "), "the graph lies elsewhere");
    refused(folder, "report ds --dataset ds", 1, "ds: has several datasets, among them ds and ds");
    for (mistyped, meant) in [
        ("--symetrise", "a similar argument exists: '--symmetrise'"),
        ("-- --epcohs 1", "a similar argument exists: '--epochs'"),
        (
            "--epochs 1",
            "error: --epochs: gsplit run takes its own options and those of gsplit convert",
        ),
        ("-- --symmetrise", "error: --symmetrise: gsplit run takes its own options"),
        ("--resume", "--resume: gsplit run takes its own options"),
        ("-- --checkpoint=x", "--checkpoint=x: is chosen by gsplit run"),
    ] {
        refused(folder, format!("run ds --out p {mistyped}"), 2, meant);
    }
}

#[test]
fn what_train_leaves_open_follows_from_what_it_says() {
    let folder = &*scratch();
    let chosen = |words: &str| {
        let config = &json(folder, format!("train --print-config {words}"))["config"];
        let system = &config["system"];
        format!(
            "{} {} {}",
            system["parallelism"].as_str().unwrap(),
            system["ranks"],
            config["model"]["layers"]
        )
    };
    assert_eq!(chosen(""), "single 1 3");
    assert_eq!(chosen("--fanouts 10,5"), "single 1 2");
    assert_eq!(chosen("--ranks 3"), "split 3 3");
    assert_eq!(chosen("--partition k"), "split 4 3");
    assert_eq!(chosen("--preset p3 --ranks 2"), "push-pull 2 2");
    fs::write(folder.join("run.toml"), "system.ranks = 2\ndata.fanouts = \"4\"\n").unwrap();
    assert_eq!(chosen("--config run.toml"), "split 2 1");
}

#[test]
fn training_takes_the_partition_that_was_cut_by_its_own_mini_batches() {
    let folder = &*scratch();
    community(folder, 400);
    for fanouts in ["3,3", "4,4"] {
        ok(folder, format!("presample ds --fanouts {fanouts} --batch-size 64 --epochs 2"));
    }
    let keys = ["f3-3_b64_e2_s0", "f4-4_b64_e2_s0"];
    let cut = |presample: &str| {
        json(folder, format!("partition ds --parts 2 --presample {presample}"))["key"].clone()
    };
    assert_eq!(cut(keys[0]), "multilevel-presampled-k2");
    assert_eq!(cut(keys[1]), format!("multilevel-presampled-k2-{}", keys[1]));
    ok(folder, format!("partition ds --parts 2 --weights degree --presample {}", keys[0]));
    let options = "--batch-size 64 --epochs 1 --hidden 8 --ranks 2 --eval-every 0";
    let train = |fanouts| format!("train ds --fanouts {fanouts} {options}");
    let notes = |fanouts| errors(&gsplit(folder, train(fanouts)));
    assert!(
        notes("3,3")
            .contains("note: partition multilevel-presampled-k2; --partition names another")
    );
    assert!(
        notes("4,4")
            .contains("note: partition multilevel-presampled-k2-f4-4_b64_e2_s0; --partition")
    );
    // Two suit this run equally.
    let told =
        format!("--partition: multilevel-presampled-k2, multilevel-presampled-k2-{}", keys[1]);
    refused(folder, train("5,5"), 1, &told);
    fs::remove_dir_all(folder.join("ds/partition/multilevel-presampled-k2")).unwrap();
    let unlike = notes("5,5");
    assert!(
        unlike.contains("was cut by mini-batches of 64 seeds and fanouts 4,4, which are not"),
        "{unlike}"
    );
}

#[test]
fn a_run_is_one_file() {
    let folder = &*scratch();
    community(folder, 300);
    let train =
        "--ranks 2 --layers 2 --fanouts 3,3 --batch-size 64 --hidden 8 --lr 0.02 --epochs 2";
    let call = |line: &str| run(folder, line);
    let text = |line: &str| ok(folder, line);
    let file = text(&format!("run ds --out first --print-config -- {train}"));
    assert!(
        !folder.join("first").exists() && file.starts_with("input = \"ds\"\nout = \"first\""),
        "{file}"
    );
    for line in
        ["[train.data]", "[train.model]\nkind = \"sage\"", "hidden = 8", "lr = 0.02", "epochs = 2"]
    {
        assert!(file.contains(line), "{line}: {file}");
    }
    // The printed file runs to the same result, and prints itself.
    fs::write(folder.join("job.toml"), &file).unwrap();
    assert_eq!(text("run --config job.toml --print-config"), file);
    let commands = |run: &serde_json::Value| {
        let of = |step: &serde_json::Value| step["command"].as_str().unwrap().to_string();
        run["steps"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let of_train = |run: &serde_json::Value| losses(&run["steps"][2]["result"]);
    let first = call(&format!("run ds --out first -- {train}"));
    let second = call("run --config job.toml --out second");
    assert_eq!(of_train(&first), of_train(&second));
    // Every step takes its options from the file, and the command line wins.
    let more =
        "\n[presample]\nepochs = 1\n[partition]\nquality = \"high\"\n[infer]\nsplit = \"test\"\n";
    fs::write(folder.join("more.toml"), format!("{file}{more}")).unwrap();
    let dry = commands(&call("run --config more.toml --dry-run -- --epochs 1"));
    for (command, option) in
        dry.iter().zip(["--epochs=1", "--quality=high", "--epochs 1", "--split=test"])
    {
        assert!(command.contains(option), "{option}: {command}");
    }
    assert!(!dry[2].contains("--epochs=2"), "{dry:?}");
    let expected = ["f3-3_b64_e1_s0", "--partition=multilevel_high-presampled-k2"];
    assert!(dry[1].contains(expected[0]) && dry[2].contains(expected[1]), "{dry:?}");
    // Settings that depend on a dataset are printed if the dataset exists, and left open otherwise.
    let chosen = text("run ds --out first --print-config");
    assert!(
        ["lr = 0.01", "epochs = 300", "patience = 30"].iter().all(|line| chosen.contains(line)),
        "{chosen}"
    );
    raw(folder);
    let file = text(
        "run edges.txt --out o --symmetrise --features random:8 --print-config -- --task link",
    );
    assert!(file.contains("[convert]\nsymmetrise = true\nfeatures = \"random:8\""), "{file}");
    assert!(
        file.contains(
            "# left open, since they follow from the dataset: optimizer, epochs, patience"
        ),
        "{file}"
    );
    fs::write(folder.join("raw.toml"), &file).unwrap();
    let dry = commands(&call("run --config raw.toml --dry-run"));
    assert_eq!(dry[0], "gsplit convert edges.txt --symmetrise --features=random:8 --out=o/dataset");
    assert!(dry[1].contains("--negatives=4") && !dry[1].contains("--epochs="), "{dry:?}");
    // Keys of the schema are a table; those of the command line come last, and win.
    let keys = "[convert.schema]\nignore_header = true\nedge-columns = ['a', 'b']\n";
    fs::write(folder.join("keys.toml"), format!("{file}\n{keys}")).unwrap();
    let dry = commands(&call("run --config keys.toml --dry-run --schema ignore-header=no"));
    let words = "'--schema=edge-columns=[\"a\",\"b\"]' --schema=ignore_header=yes --schema=ignore-header=no";
    assert!(dry[0].contains(words), "{dry:?}");
    let printed = text("run --config keys.toml --print-config");
    fs::write(folder.join("printed.toml"), &printed).unwrap();
    assert_eq!(text("run --config printed.toml --print-config"), printed);

    let base = "input = 'ds'\nout = 'x'\n";
    for (text, told) in [
        (
            "input = 'ds'\nouts = 'x'",
            "bad.toml:2: unknown field `outs`, expected one of `input`, `out`, `from`",
        ),
        (
            "[train.run.optimizer]\nlr = 'fast'",
            "bad.toml:2: invalid type: string \"fast\", expected f64",
        ),
        (
            &format!("{base}[convert.schema]\nfil = 1\n"),
            "bad.toml:3: schema: invalid value 'fil=1': `fil` is not a key",
        ),
        ("[convert]\nsymmetrise = 1", "bad.toml:2: symmetrise: expected true or false, got 1"),
        ("[place]\ncache = 1", "bad.toml:1: unknown field `place`, expected one of"),
        (&format!("{base}[train.run]\nepochs = 0\n"), "bad.toml:4: --epochs 0: expected 1 or more"),
        ("out = 'x'", "bad.toml: has no `input`"),
        (
            &format!("{base}[convert]\nsymmetrise = true"),
            "--symmetrise: ds is a dataset already, which is not converted: leave it out",
        ),
    ] {
        fs::write(folder.join("bad.toml"), text).unwrap();
        refused(folder, "run --config bad.toml", 2, told);
    }
    assert!(!folder.join("x").exists());
    // A value that begins with a dash is a value, whatever its key.
    let dashes =
        "input = '--help'\nout = '-h'\n[convert]\nnodes = '--version'\nlabel_column = '--help'\n";
    fs::write(folder.join("dash.toml"), dashes).unwrap();
    let dry = commands(&call("run --config dash.toml --dry-run"));
    let convert = "gsplit convert ./--help --label-column=--help --nodes=--version --random-split=auto --out=./-h/dataset";
    assert_eq!(
        dry[0].split(' ').collect::<std::collections::BTreeSet<_>>(),
        convert.split(' ').collect(),
        "{dry:?}"
    );
    assert!(fails(folder, "run --config dash.toml", 1).starts_with("convert failed"));
}

#[test]
fn failures_are_json_for_scripts_and_quiet_training_has_no_table() {
    let folder = &*scratch();
    community(folder, 300);
    let error = |words: &str| {
        let output = gsplit(folder, words);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["exit"].as_i64(), output.status.code().map(i64::from));
        assert_eq!(told["schema"], 1);
        told["error"].as_str().unwrap().to_string()
    };
    assert!(error("inspect none --json").contains("none: No such file"));
    assert!(error("train ds --json --hidden 0").contains("--hidden 0: expected 1 to"));
    assert!(error("run none --json --out o").contains("none: No such file"));
    // Of usage: by clap, in both programs, and before it.
    for (line, problem) in [
        ("bogus --json", "unrecognized subcommand 'bogus'"),
        ("--json", "requires a subcommand"),
        ("inspect --json", "arguments were not provided: <DATASET>"),
        ("train ds --nope --json", "unexpected argument '--nope' found"),
        (
            "train ds --lr much --json",
            "invalid value 'much' for '--lr <LR>': expected a number, such as 0.5",
        ),
        ("train ds --epochs 1.5 --json", "expected a whole number"),
    ] {
        let told = error(line);
        assert!(told.contains(problem) && !told.contains('\n'), "{line}: {told}");
    }
    ok(folder, "presample ds --key p --epochs 1");
    let differs = error("presample ds --key p --epochs 2 --json");
    assert!(
        differs.contains("it was made with --epochs 1 and is asked for with --epochs 2"),
        "{differs}"
    );
    ok(folder, "partition ds --parts 2 --key k");
    let differs = error("partition ds --parts 3 --key k --json");
    assert!(differs.contains("made with --parts 2 and is asked for with --parts 3"), "{differs}");
    let train = "train ds --epochs 2 --hidden 8 --fanouts 3";
    let (told, quiet) = (ok(folder, train), ok(folder, format!("{train} --quiet")));
    assert!(
        told.contains("epoch     loss") && told.lines().any(|line| line.ends_with(" *")),
        "{told}"
    );
    assert!(told.contains("\n      majority") && told.contains("(majority 0."), "{told}");
    assert!(!told.contains("precision"), "of 16 classes the report has the table: {told}");
    assert!(!quiet.contains("epoch     loss") && quiet.contains("best: epoch"), "{quiet}");
}

#[test]
fn what_will_bite_is_told_when_a_graph_is_converted() {
    let folder = &*scratch();
    raw(folder);
    let notes = |more: &str| {
        let output = gsplit(folder, format!("convert edges.txt {more}"));
        assert!(output.status.success());
        errors(&output)
    };
    let directed = notes("--out directed");
    for note in [
        "note: 0 % of 128 edges looked at have a reverse",
        "this dataset has no features. Generate them from the structure with --features fastrp:64",
        "has no labels, so only `train --task link` can use it. Add labels with --nodes TABLE",
    ] {
        assert!(directed.contains(note), "{note}: {directed}");
    }
    let whole = notes("--out whole --symmetrise --features random:4");
    assert!(!whole.contains("reverse") && whole.contains("has no labels, so only"), "{whole}");
    assert!(!notes("--out directed").contains("note:"), "it is there already");
}

#[test]
fn a_run_that_ended_in_its_first_step_goes_on() {
    let folder = &*scratch();
    fs::write(folder.join("edges.txt"), "0 1\n1 2\nx\n").unwrap();
    let words = "run edges.txt --out out --features fastrp:8 -- --task link --fanouts 3 --epochs 1 --hidden 4";
    fails(folder, words, 1);
    assert!(folder.join("out/run.json").exists());
    raw(folder);
    ok(folder, words);
    // Killed while it wrote its first record.
    fs::create_dir_all(folder.join("first/.run.json.partial")).unwrap();
    ok(folder, words.replace("--out out", "--out first"));
}

#[test]
fn a_run_is_repeated_with_new_tables_and_starts_from_the_model_before() {
    let folder = &*scratch();
    raw(folder);
    nodes(folder, |_| None);
    let line = "run edges.txt --nodes nodes.csv --out night -- --epochs 2 --hidden 8 --fanouts 3";
    let with = |more: &str| line.replace(" -- ", more);
    let call = |more: &str| run(folder, &with(more));
    // The first night there is nothing to replace.
    let first = call(" --fresh -- ");
    assert_eq!(steps(&first), ["convert", "train", "infer", "report"]);
    let best = &first["steps"][1]["result"]["summary"]["best"];
    assert_eq!(
        [&first["score"]["test"], &first["score"]["epoch"]],
        [&best["test"], &best["epoch"]]
    );
    assert_eq!(first["score"]["baseline"]["name"], "majority");
    fs::write(folder.join("night/thesis.tex"), "mine").unwrap();
    let before = content(&folder.join("night"));

    // New rows: the run says what to do, and does it only then.
    nodes(folder, |v| (v == 7).then(|| "7,0.75,physics".to_string()));
    let told = refused(folder, line, 1, "night/dataset: already there, but nodes.csv had ");
    assert!(
        told.contains("pass --fresh to replace the run in night, or choose another --out"),
        "{told}"
    );
    assert_eq!(content(&folder.join("night")), before);
    // A table that cannot be read leaves the earlier run as it is, and so does training that fails.
    nodes(folder, |v| (v == 7).then(|| "7,tall,physics".to_string()));
    let told = refused(folder, with(" --fresh -- "), 1, "tall");
    assert!(told.contains("nodes.csv"), "{told}");
    let kept = |before: &std::collections::BTreeMap<String, Vec<u8>>| {
        let mut now = content(&folder.join("night"));
        now.retain(|name, _| !name.starts_with(".fresh/"));
        assert_eq!(&now, before);
    };
    kept(&before);
    ok(folder, "infer night/dataset --checkpoint night/checkpoint --out p.npy");

    nodes(folder, |v| (v == 7).then(|| "7,0.75,physics".to_string()));
    let second = call(" --fresh --from night -- ");
    assert_eq!(steps(&second), ["convert", "train", "infer", "report"]);
    let command = |step: usize| second["steps"][step]["command"].as_str().unwrap();
    assert!(
        command(0).contains("--recipe=night/checkpoint")
            && command(0).ends_with("--out=night/dataset"),
        "{second}"
    );
    assert!(
        command(1).contains("--init=night/checkpoint") && !second.to_string().contains(".fresh"),
        "{second}"
    );
    let loss = |run: &serde_json::Value| losses(&run["steps"][1]["result"])[0];
    assert!(
        loss(&second) < loss(&first),
        "it starts from the learnt parameters: {} {}",
        loss(&first),
        loss(&second)
    );
    let now = content(&folder.join("night"));
    assert_eq!(now["thesis.tex"], b"mine");
    assert!(now.keys().all(|name| !name.starts_with(".fresh")), "{:?}", now.keys());
    for changed in ["dataset/dataset.json", "training.jsonl", "report.html", "run.json"] {
        assert_ne!(now[changed], before[changed], "{changed}");
    }
    // The title of the page is the folder's name.
    assert!(String::from_utf8_lossy(&now["report.html"]).contains("<title>night"));

    // Into another folder, with another shape, and with a column that is missing.
    let other = with(" --from night -- ").replace("--out night", "--out other");
    assert_eq!(steps(&run(folder, &other)), ["convert", "train", "infer", "report"]);
    let wide = other.replace("--hidden 8", "--hidden 16").replace("--out other", "--out wide");
    refused(folder, wide, 2, "--hidden is 16, the model of --from night/checkpoint/epoch-0000");
    let rows =
        fs::read_to_string(folder.join("nodes.csv")).unwrap().replace("id,f,label", "id,g,label");
    fs::write(folder.join("nodes.csv"), rows).unwrap();
    let missing = other.replace("--out other", "--out missing");
    let told = errors(&gsplit(folder, missing));
    assert!(told.contains("has no column `f`, which is a feature of the recipe"), "{told}");
    assert!(told.contains("convert failed. Fix the error above"), "{told}");
}

#[test]
fn no_child_outlives_a_gsplit_that_is_killed() {
    let folder = &*scratch();
    community(folder, 300);
    let words = "run ds --out o -- --epochs 1000000 --hidden 8 --fanouts 3 --eval-every 0";
    let mut parent = command(folder, words);
    let mut parent = parent
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let wait = |until: &dyn Fn() -> bool| {
        let since = std::time::Instant::now();
        while !until() {
            assert!(since.elapsed().as_secs() < 120);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    // Once there is a checkpoint, the process that holds its lock is the trainer.
    wait(&|| folder.join("o/checkpoint/epoch-00001").exists());
    let children = format!("/proc/{0}/task/{0}/children", parent.id());
    let child: u32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait(&|| !Path::new(&format!("/proc/{child}")).exists());
    // The lock is released: the same checkpoints go on.
    refused(
        folder,
        "train ds --checkpoint o/checkpoint --epochs 1",
        2,
        "--checkpoint o/checkpoint: holds a run",
    );
}
