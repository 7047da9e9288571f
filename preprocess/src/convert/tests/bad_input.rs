//! Every kind of bad input is one line that names file, line and remedy.

use std::os::unix::ffi::OsStrExt;

use super::*;

pub fn message(source: &Path, options: &ConvertOptions) -> String {
    let message = match convert_new(source, options) {
        Ok(_) => format!("{} was converted", source.display()),
        Err(error) => error.to_string(),
    };
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// The parts that were expected in messages and are not there, of a whole table of cases.
#[derive(Default)]
pub struct Wrong(Vec<String>);

impl Wrong {
    pub fn expect(&mut self, case: impl std::fmt::Display, message: &str, parts: &[&str]) {
        let missing = parts.iter().filter(|part| !message.contains(**part));
        self.0.extend(missing.map(|part| format!("{case}: expected `{part}` in `{message}`")));
    }

    pub fn check(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

#[test]
fn csv_tables() {
    let table: &[(&str, &str, &[&str])] = &[
        ("raw/num-node-list", "six\n", &["line 1", "expected a number from 0", "`six`"]),
        ("raw/num-node-list", "-6\n", &["line 1", "`-6`"]),
        (
            "raw/num-node-list",
            "99999999999\n",
            &["[99999999999]: expected the count of one graph, up to 4294967295"],
        ),
        ("raw/num-node-list", "6\n7\n", &["counts of several graphs"]),
        ("raw/num-node-list", "", &["found []: expected the count of one graph"]),
        (
            "raw/num-node-list",
            "7\n",
            &["node-label.csv.gz", "6 labels for the 7 vertices", "download it again"],
        ),
        ("raw/num-node-list", "5\n", &["an edge names vertex 5: expected ids below 5"]),
        (
            "raw/node-label",
            "0\n1\n\n2\n1\n0\n0\n",
            &["node-label.csv.gz, line 7", "more labels than the 6 vertices"],
        ),
        (
            "raw/num-edge-list",
            "11\n",
            &["edge.csv.gz: the header promises 11 edges, 10 follow", "download it again"],
        ),
        ("raw/edge", "0,1\n0,6\n", &["an edge names vertex 6: expected ids below 6"]),
        ("raw/edge", "0,1\n0,-1\n", &["line 2", "expected a vertex id", "found `-1`"]),
        ("raw/edge", "0,1\n\n7\n", &["line 3", "expected two vertex ids"]),
        ("raw/edge", "0,99999999999999999999\n", &["line 1", "expected a vertex id"]),
        (
            "raw/node-feat",
            "1,2,3\n1,2\n",
            &["line 2", "expected 3 features as in the first row, found 2"],
        ),
        (
            "raw/node-feat",
            "1,2\n1,2,3\n",
            &["line 2", "expected 2 features as in the first row, found 3"],
        ),
        ("raw/node-feat", "1,2\n1,x\n", &["line 2", "expected a number, found `x`"]),
        ("raw/node-feat", "1,2\n1,nan\n", &["line 2", "expected a finite"]),
        ("raw/node-feat", "1,2\n1,1e99\n", &["line 2", "expected a finite"]),
        ("raw/node-feat", "1\n2\n3\n", &["3 feature rows for the 6 vertices", "download it again"]),
        (
            "raw/node-feat",
            "1\n2\n3\n4\n5\n6\n\n7\n",
            &["line 8", "more feature rows than the 6 vertices"],
        ),
        ("raw/node-feat", "", &["line 1", "expected a row of features"]),
        (
            "raw/node-label",
            "0\n1\ncat\n1\n1\n1\n",
            &["line 3", "label `cat`: expected a class number"],
        ),
        (
            "raw/node-label",
            "0\n1\n0.5\n1\n1\n1\n",
            &["line 3", "label 0.5: expected a class number from 0"],
        ),
        (
            "raw/node-label",
            "0\n1\n-7\n1\n1\n1\n",
            &["line 3", "label -7: expected a class number from 0"],
        ),
        (
            "raw/node-label",
            "0\n1\n2000000000\n1\n1\n1\n",
            &["line 3", "label 2000000000", "below 1000000"],
        ),
        ("raw/node-label", "0,1\n1,1\n", &["node-label.csv.gz: 2 labels for the 6 vertices"]),
        (
            "raw/node-label",
            "0,1\n1,2\n",
            &["line 2", "label 2: expected 0 or 1 for each of the 2 classes"],
        ),
        (
            "raw/node-label",
            "0\n1,1\n",
            &["line 2", "expected 1 labels as in the first row, found 2"],
        ),
        ("split/only/train", "0\n6\n", &["the train split names 6, which is not a vertex"]),
        ("split/only/train", "0\nx\n", &["line 2", "found `x`"]),
        ("split/only/train", "0\n3\n0\n", &["the train split lists vertex 0 twice"]),
        ("split/only/test", "4\n1\n", &["vertex 1 is in the valid split and in test"]),
    ];
    let mut wrong = Wrong::default();
    for (name, text, parts) in table {
        let folder = copy("ogb-csv");
        let path = folder.path().join(format!("{name}.csv.gz"));
        std::fs::write(&path, gz(text)).unwrap();
        let message = message(&ogb(folder.path()), &ConvertOptions::default());
        wrong.expect(format!("{name} {text:?}"), &message, parts);
        assert!(message.contains(&folder.path().display().to_string()), "{message}");
    }
    wrong.check();
}

#[test]
fn truncated_and_missing_tables() {
    let everything = [
        "raw/num-node-list",
        "raw/num-edge-list",
        "raw/edge",
        "raw/node-feat",
        "raw/node-label",
        "split/only/test",
    ];
    for name in everything {
        let folder = copy("ogb-csv");
        let path = folder.path().join(format!("{name}.csv.gz"));
        let whole = std::fs::read(&path).unwrap();
        for length in [0, 7, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let message = message(&ogb(folder.path()), &ConvertOptions::default());
            let expected =
                format!("{}: truncated or damaged gzip stream: download it again", path.display());
            assert!(message.starts_with(&expected), "{message}");
        }
        std::fs::remove_file(&path).unwrap();
        let optional = ["raw/node-feat", "raw/node-label"].contains(&name);
        let result = convert_new(&ogb(folder.path()), &ConvertOptions::default());
        assert_eq!(result.is_ok(), optional, "{name}");
        if let Err(error) = result {
            let named = if name == "raw/edge" {
                "expected raw/edge.csv.gz".into()
            } else {
                path.display().to_string()
            };
            assert!(error.to_string().contains(&named), "{error}");
        }
    }
}

#[test]
fn splits_are_chosen_or_listed() {
    let folder = copy("ogb-csv");
    let with = |split: &str| options(&format!("--schema split-name={split}"));
    let source = ogb(folder.path());
    assert!(
        message(&source, &with("time"))
            .contains("--schema split-name=time: expected one of the splits in")
    );
    std::fs::create_dir(folder.path().join("split/another")).unwrap();
    assert!(message(&source, &options("")).contains(
        "pass --schema split-name: expected one of the \
                                                 splits in"
    ));
    assert!(message(&source, &with("another")).contains("another/train.csv.gz"));
    assert!(convert_new(&source, &with("only")).is_ok());
    let mut random = options("--random-split 0.5,0.2,0.3");
    assert!(convert_new(&source, &random).is_ok());
    random.read.schema.split_name = Some("only".into());
    let both = message(&source, &random);
    assert!(both.contains("exclude each other"), "{both}");
}

#[test]
fn features_too_large_for_their_type() {
    let folder = copy("ogb-csv");
    std::fs::write(folder.path().join("raw/node-feat.csv.gz"), gz("1\n2\n70000\n3\n4\n5\n"))
        .unwrap();
    let with = |feature_dtype| ConvertOptions { feature_dtype, ..Default::default() };
    let message = message(&ogb(folder.path()), &with(FeatureDtype::F16));
    assert!(
        message.contains("node-feat.csv.gz, line 3: feature 70000 is too large for f16"),
        "{message}"
    );
    assert!(convert_new(&ogb(folder.path()), &with(FeatureDtype::Bf16)).is_ok());
}

#[test]
fn snap_lines() {
    let table: &[(&str, &[&str])] = &[
        ("0 1\n2\n", &["line 2", "expected two vertex ids, found less"]),
        ("FromNodeId,ToNodeId\n0,1\n", &["line 1", "found `FromNodeId`"]),
        ("0 1\n0 -1\n", &["line 2", "found `-1`"]),
        ("0 1\n\n# x\n0 1.5\n", &["line 4", "found `1.5`"]),
        ("0 18446744073709551616\n", &["line 1", "from 0 to 2^64-1"]),
        ("# nothing\n", &["no edges"]),
        ("", &["no edges"]),
        ("%%MatrixMarket matrix coordinate\n3 3 1\n1 2\n", &["line 1", "Matrix Market"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("edges.txt");
    let compressed = folder.path().join("edges.txt.gz");
    let options = ConvertOptions { format: Some(Format::Snap), ..Default::default() };
    let mut wrong = Wrong::default();
    for (text, parts) in table {
        std::fs::write(&plain, text).unwrap();
        std::fs::write(&compressed, gz(text)).unwrap();
        for path in [&plain, &compressed] {
            let message = message(&snap(path), &options);
            wrong.expect(
                format!("{text:?}"),
                &message,
                &[&[path.to_str().unwrap()][..], parts].concat(),
            );
        }
    }
    wrong.check();
    let gone = message(&snap(folder.path().join("gone.txt")), &ConvertOptions::default());
    assert!(gone.contains("gone.txt") && gone.contains("check the path"), "{gone}");
    let folder_given = message(&snap(data("ogb-csv")), &options);
    assert!(
        folder_given.contains("ogb-csv") && folder_given.contains("expected a file"),
        "{folder_given}"
    );
    let foreign = folder.path().join(std::ffi::OsStr::from_bytes(b"edges-\xff.txt"));
    std::fs::write(&foreign, "0 1\n").unwrap();
    let foreign = message(&snap(foreign), &ConvertOptions::default());
    assert!(foreign.contains("edges-") && foreign.contains("rename it"), "{foreign}");
    let gone = message(&ogb(folder.path().join("gone")), &ConvertOptions::default());
    assert!(gone.contains("gone: No such file") && gone.contains("check the path"), "{gone}");
}

#[test]
fn one_rule_for_weights_of_every_format() {
    let folder = tempfile::tempdir().unwrap();
    type FileOfFormat = fn(&str) -> String;
    let formats: [(&str, FileOfFormat); 3] = [
        ("x.mtx", |weight| {
            format!("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 0.5\n2 3 {weight}\n")
        }),
        ("x.csv", |weight| format!("src,dst,weight\n0,1,0.5\n1,2,{weight}\n")),
        ("x.txt", |weight| format!("0 1 0.5\n1 2 {weight}\n")),
    ];
    for (name, text) in formats {
        let path = folder.path().join(name);
        let options = options(if name == "x.txt" { "--edge-columns weight" } else { "" });
        for odd in ["inf", "-inf"] {
            std::fs::write(&path, text(odd)).unwrap();
            let message = message(&path, &options);
            assert!(
                message.contains(&format!("has the weight {odd}: expected a finite number")),
                "{name}: {message}"
            );
        }
        std::fs::write(&path, text("nan")).unwrap();
        let (_folder, dataset) = convert_new(&path, &options).unwrap();
        assert_eq!(dataset.manifest().provenance.facts["weights_missing"], 1, "{name}");
        let column = dataset.edge_column("weight").unwrap();
        let weights: Vec<f64> = match column.as_slice::<f32>() {
            Ok(weights) => weights.iter().map(|&weight| weight.into()).collect(),
            Err(_) => column.as_slice().unwrap().to_vec(),
        };
        assert!(weights[0] == 0.5 && weights[1].is_nan(), "{name}: {weights:?}");
    }
}
