//! New rows to predict for: alone, among one another, and joined to the graph of a dataset.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{command, errors, gsplit, json, ok, refused, scratch};

/// Old vertices, a ring with chords; and new ones behind them.
const OLD: u32 = 120;
const NEW: u32 = 6;

/// The id of a vertex.
type Id = fn(u32) -> String;

/// The columns of a file of predictions by their names, and its rows by their ids.
fn predictions(folder: &Path, name: &str) -> (Vec<String>, HashMap<String, Vec<String>>) {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let mut lines =
        text.lines().map(|line| line.split(',').map(str::to_string).collect::<Vec<_>>());
    let header = lines.next().unwrap();
    (header, lines.map(|cells| (cells[0].clone(), cells)).collect())
}

/// Tables of old and of new vertices, and both together; the last class is of no new vertex.
fn tables(folder: &Path, id: Id) {
    let team = |v: u32| ["blue", "green", "red"][(v % if v < OLD { 3 } else { 2 }) as usize];
    let row = |v: u32| {
        format!("{},{}.5,{},{}\n", id(v), v * v % 17, ["x", "y"][(v % 2) as usize], team(v))
    };
    let edge = |(u, v): (u32, u32)| format!("{},{},{}.25\n", id(u), id(v), 1 + (u + 2 * v) % 5);
    let old: Vec<(u32, u32)> =
        (0..OLD).flat_map(|v| [1, 3].map(|step| (v, (v + step) % OLD))).collect();
    // From and to old vertices, among one another, between old ones, and one that is there already.
    let new = [
        (120, 10),
        (11, 120),
        (121, 120),
        (30, 122),
        (122, 31),
        (123, 124),
        (60, 125),
        (5, 9),
        (10, 11),
        (8, 8),
    ];
    let rows = |range: std::ops::Range<u32>| range.map(row).collect::<String>();
    let edges = |edges: &[(u32, u32)]| edges.iter().copied().map(edge).collect::<String>();
    for (name, rows, among) in [
        ("old", rows(0..OLD), edges(&old)),
        ("new", rows(OLD..OLD + NEW), edges(&new)),
        ("all", rows(0..OLD + NEW), edges(&old) + &edges(&new)),
    ] {
        fs::write(folder.join(format!("{name}.csv")), format!("person,age,sex,team\n{rows}"))
            .unwrap();
        fs::write(folder.join(format!("{name}_edges.csv")), format!("from,to,amount\n{among}"))
            .unwrap();
    }
}

#[test]
#[ignore = "takes long: make test-all"]
fn differential_joined_rows_are_those_of_all_tables_together() {
    let number: Id = |v| (1000 + 7 * v).to_string();
    let text: Id = |v| format!("p-{v:03}");
    assert_joined(&[
        (number, "", "--model sage --layers 2 --fanouts 5,5"),
        (text, "--directed", "--model gcn --layers 2 --fanouts 5,5"),
        (
            number,
            "--directed --keep-duplicates --feature-dtype f16",
            "--model gat --heads 2 --layers 1 --fanouts 9",
        ),
    ]);
}

#[test]
fn joined_rows_with_weights_and_names_are_those_of_all_tables_together() {
    let digits: Id = |v| format!("{:03}", 500 - v);
    assert_joined(&[(
        digits,
        "--schema id-type=text --symmetrise --schema edge-weights=amount",
        "--model gcn --layers 1 --fanouts 5 --edge-weights weight",
    )]);
}

/// Predictions for new rows joined to a dataset equal the predictions of a dataset of all rows, for
/// each case of ids, options of the conversion and options of the training.
fn assert_joined(cases: &[(Id, &str, &str)]) {
    for &(id, of_convert, of_train) in cases {
        let folder = &*scratch();
        tables(folder, id);
        let convert = "--label-column team --random-split 0.6,0.2,0.2 --source-column from --target-column to";
        ok(
            folder,
            format!(
                "convert old_edges.csv --nodes old.csv --out run/dataset {convert} {of_convert}"
            ),
        );
        ok(
            folder,
            format!(
                "train run/dataset --hidden 8 --epochs 2 --checkpoint run/checkpoint {of_train}"
            ),
        );
        let logits = "--checkpoint run/checkpoint --predict logits --out";
        let of_dtype = if of_convert.contains("f16") { "--feature-dtype f16" } else { "" };
        let of_ids = if of_convert.contains("text") { "--schema id-type=text" } else { "" };
        ok(
            folder,
            format!(
                "convert all_edges.csv --nodes all.csv --recipe run/dataset --out both {of_dtype} \
                 {of_ids}"
            ),
        );
        ok(folder, format!("infer both {logits} both.csv"));
        let (header, expected) = predictions(folder, "both.csv");
        assert_eq!(header, ["id", "logit_blue", "logit_green", "logit_red"]);
        let output = gsplit(
            folder,
            format!("infer --nodes new.csv --edges new_edges.csv --with run {logits} new.csv.csv"),
        );
        let said = errors(&output);
        assert!(output.status.success(), "{said}");
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(
            told.contains("new.csv: 6 vertices by") && told.contains("  all    accuracy "),
            "{told}"
        );
        let read: u32 = said
            .split("the model reads ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next()?.parse().ok())
            .unwrap();
        assert!((3..OLD).contains(&read), "a part of the graph is read: {said}");
        let (_, found) = predictions(folder, "new.csv.csv");
        assert_eq!(found.len(), NEW as usize);
        for v in OLD..OLD + NEW {
            for (found, expected) in found[&id(v)].iter().zip(&expected[&id(v)]).skip(1) {
                let [found, expected]: [f32; 2] =
                    [found, expected].map(|cell| cell.parse().unwrap());
                assert!(
                    (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                    "{v}, {of_train}: {found} {expected}"
                );
            }
        }
        // Without edges, also where the model weighs them.
        ok(folder, format!("infer --nodes new.csv {logits} alone.csv"));
        ok(folder, format!("infer --nodes new.csv --with run/dataset {logits} bare.csv"));
        // Joined features are of the dataset's type.
        if of_dtype.is_empty() {
            assert_eq!(predictions(folder, "alone.csv").1, predictions(folder, "bare.csv").1);
        }
    }
}

#[test]
fn rows_that_do_not_join_are_refused_with_a_remedy() {
    let folder = &*scratch();
    tables(folder, |v| v.to_string());
    let convert = "--label-column team --random-split 0.6,0.2,0.2 --source-column from --target-column to --out run/dataset";
    ok(folder, format!("convert old_edges.csv --nodes old.csv {convert}"));
    ok(
        folder,
        "train run/dataset --layers 1 --fanouts 5 --hidden 4 --epochs 1 --checkpoint \
         run/checkpoint",
    );
    let words = |tables: &str| {
        format!("infer --checkpoint run/checkpoint --predict logits --out p.csv --force {tables}")
    };
    let refuse = |tables: &str, expected: &str| drop(refused(folder, words(tables), 1, expected));
    let found = |tables: &str| {
        ok(folder, words(tables));
        predictions(folder, "p.csv").1
    };
    // The message names the dataset first; each of its remedies works.
    refuse(
        "--nodes new.csv --edges new_edges.csv",
        "vertices have edges and no row, for example 5: pass --with DATASET if their rows",
    );
    let alone = found("--nodes new.csv --edges new_edges.csv --schema missing-rows=drop");
    let joined = found("--nodes new.csv --edges new_edges.csv --with run/dataset");
    assert!(alone.len() == 6 && joined.len() == 6 && alone["120"] != joined["120"]);

    // An id that neither has.
    fs::write(folder.join("stray.csv"), "from,to,amount\n120,10,1\n777,121,1\n").unwrap();
    let stray = "--nodes new.csv --edges stray.csv --with run";
    refuse(
        stray,
        "stray.csv: line 3: vertex 777 is neither in the table of new vertices nor in run/dataset",
    );
    assert_eq!(found(&format!("{stray} --schema missing-rows=fill --schema fill=3")).len(), 6);

    // A row of a vertex that the dataset has.
    fs::write(folder.join("again.csv"), "person,age,sex,team\n7,16.5,x,red\n120,2.5,y,blue\n")
        .unwrap();
    fs::write(folder.join("one.csv"), "from,to,amount\n120,10,1\n").unwrap();
    let again = "--nodes again.csv --edges one.csv --with run";
    let known = "1 row for vertices that run/dataset has too, e.g. line 2, vertex 7: pass --schema \
                 on-duplicate=last";
    refuse(again, &format!("again.csv: {known}"));
    let [first, last] =
        ["first", "last"].map(|which| found(&format!("{again} --schema on-duplicate={which}")));
    ok(folder, "infer run/dataset --checkpoint run/checkpoint --predict logits --out old.csv.csv");
    let old = predictions(folder, "old.csv.csv").1;
    assert_eq!(first["7"], old["7"], "the row of the dataset counts");
    assert!(last["7"] != old["7"] && last.len() == 2, "the row of the table counts");

    // Without edges, and other files.
    let bare = "--nodes new.csv --with run";
    assert_eq!(found(bare)["120"], found("--nodes new.csv")["120"]);
    refuse("--nodes new.csv --with run/checkpoint", "run/checkpoint");
    let other = "infer --checkpoint run/checkpoint --nodes none.csv --out p.txt";
    refused(folder, other, 2, "--out p.txt: expected a name that ends in .csv, .parquet or .npy");
    // The remedy works here and in convert.
    fs::write(folder.join("mixed.csv"), "person,age,sex\n120,2.5,y\nx7,9.5,y\n").unwrap();
    let mixed = "--nodes mixed.csv --edges one.csv";
    refuse(mixed, "the ids of the edges integers: pass --schema id-type=text");
    let words = "--schema id-type=text --schema missing-rows=drop";
    assert_eq!(found(&format!("{mixed} {words}")).len(), 2);
    ok(
        folder,
        format!("convert one.csv --nodes mixed.csv --recipe run/checkpoint {words} --out mixed"),
    );
    ok(folder, "infer mixed --checkpoint run/checkpoint --out mixed.parquet");
}

#[test]
fn predictions_have_the_classes_and_their_probabilities_by_name() {
    let folder = &*scratch();
    tables(folder, |v| v.to_string());
    let convert = "convert old_edges.csv --nodes old.csv --source-column from --target-column to --random-split 0.6,0.2,0.2";
    let train = "--layers 1 --fanouts 5 --hidden 4 --epochs 1";
    ok(folder, format!("{convert} --label-column team --out ds"));
    ok(folder, format!("train ds {train} --checkpoint ck"));
    let told = json(folder, "infer --nodes new.csv --checkpoint ck --out p.csv");
    let (header, rows) = predictions(folder, "p.csv");
    assert_eq!(header, ["id", "class", "probability_blue", "probability_green", "probability_red"]);
    let teams = ["blue", "green"].iter().cycle().zip(OLD..OLD + NEW);
    let right = teams.filter(|(team, v)| rows[&v.to_string()][1] == **team).count();
    assert_eq!(
        told["summary"]["all"].as_f64(),
        Some(right as f64 / f64::from(NEW)),
        "scored, without splits"
    );
    for row in rows.values() {
        let of: Vec<f64> = row[2..].iter().map(|cell| cell.parse().unwrap()).collect();
        assert!((of.iter().sum::<f64>() - 1.0).abs() < 1e-5);
        let best = (0..3).max_by(|&a, &b| of[a].total_cmp(&of[b])).unwrap();
        assert_eq!(row[1], ["blue", "green", "red"][best]);
    }
    ok(folder, "infer --nodes new.csv --checkpoint ck --predict class --out c.csv");
    assert_eq!(predictions(folder, "c.csv").0, ["id", "class"]);
    // The table that was written is one that gsplit reads.
    ok(folder, "infer ds --checkpoint ck --out p.parquet");
    ok(
        folder,
        "convert old_edges.csv --nodes p.parquet --label-column class --source-column from \
         --target-column to --out read",
    );

    // Numbers, and several classes.
    ok(folder, format!("{convert} --label-column age --out ages"));
    ok(folder, format!("train ages --task regression {train} --checkpoint ages-ck"));
    ok(folder, "infer ages --checkpoint ages-ck --out ages.csv");
    assert_eq!(predictions(folder, "ages.csv").0, ["id", "prediction"]);
    let likes: String =
        (0..OLD).map(|v| format!("{v},{},{},{}\n", v % 9, v % 2, v / 2 % 2)).collect();
    fs::write(folder.join("likes.csv"), format!("person,age,tea,coffee\n{likes}")).unwrap();
    let several = convert.replace("old.csv", "likes.csv");
    ok(folder, format!("{several} --label-column tea,coffee --out likes"));
    ok(folder, format!("train likes {train} --checkpoint likes-ck"));
    ok(folder, "infer likes --checkpoint likes-ck --out likes.csv.csv");
    let (header, rows) = predictions(folder, "likes.csv.csv");
    assert_eq!(header, ["id", "tea", "coffee", "probability_tea", "probability_coffee"]);
    for row in rows.values() {
        for class in 1..3 {
            assert_eq!(row[class] == "1", row[class + 2].parse::<f64>().unwrap() > 0.5, "{row:?}");
        }
    }
}

#[test]
fn new_tables_are_nobody_elses_to_read() {
    let folder = &*scratch();
    tables(folder, |v| v.to_string());
    let convert = "--label-column team --random-split 0.6,0.2,0.2 --source-column from --target-column to --out ds";
    ok(folder, format!("convert old_edges.csv --nodes old.csv {convert}"));
    ok(folder, "train ds --layers 1 --fanouts 5 --hidden 4 --epochs 1 --checkpoint ck");
    let shared = folder.join("tmp");
    fs::create_dir(&shared).unwrap();
    let infer = || {
        let mut command =
            command(folder, "infer --nodes old.csv --edges old_edges.csv --checkpoint ck");
        command.env("TMPDIR", &shared);
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let several: Vec<_> = (0..3).map(|_| infer()).collect();
    for child in several {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
    }
    let left = || fs::read_dir(&shared).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(left().count(), 0, "all is removed");
    // Killed half-way, whatever is left is closed to others; interrupted, nothing is.
    for (signal, expected) in
        [(rustix::process::Signal::KILL, false), (rustix::process::Signal::INT, true)]
    {
        let mut child = infer();
        let began = std::time::Instant::now();
        while left().next().is_none()
            && began.elapsed().as_secs() < 60
            && child.try_wait().unwrap().is_none()
        {
            std::thread::yield_now();
        }
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal);
        child.wait().unwrap();
        for path in left() {
            assert!(!expected, "{} is left after an interrupt", path.display());
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            let is_bare =
                fs::read_dir(&path).unwrap().all(|entry| entry.unwrap().file_name() == "lock");
            assert!(mode & 0o077 == 0 || is_bare, "{mode:o} {}", path.display());
            fs::remove_dir_all(path).unwrap();
        }
    }
}
