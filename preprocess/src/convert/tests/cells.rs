//! Cells of text tables: marks in numbers, stray words, and zeros before ids.

use std::sync::Arc;

use arrow_array::{Array, Int64Array, StringArray};

use super::bad_input::message;
use super::meaning::check;
use super::*;

#[test]
fn a_comma_that_is_known_makes_points_stand_between_thousands() {
    let proven = "src;dst;a;b\n1;2;1.234;0,5\n2;3;5.678;1,5\n";
    let plain = "src;dst;a\n1;2;1.234\n2;3;5.678\n";
    check(&[
        ("a.csv", proven, "", "1>2 a=1234 b=0.5, 2>3 a=5678 b=1.5"),
        ("a.csv", plain, "", "1>2 a=1.234, 2>3 a=5.678"),
        ("a.csv", plain, "--schema decimal=comma", "1>2 a=1234, 2>3 a=5678"),
        ("a.csv", plain, "--schema decimal=point", "1>2 a=1.234, 2>3 a=5.678"),
        ("a.csv", "src;dst;a;b\n1;2;1.5;0,5\n", "", "1>2 a=1.5 b=0.5"),
        (
            "a.csv",
            "src;dst;w\n1;2;0,5\n2;3;1.5\n3;1;2,5\n",
            "",
            "error: a.csv, line 3: column `w`: `1.5`: expected a comma",
        ),
    ]);
    let (folder, path) =
        file("a.csv", "src;dst;a;b;c;d\n1;2;1.234;0,5;10%;7\n2;3;5.678;1,5;5%;8\n");
    let notes = Notes::default();
    let (dataset, _) =
        convert(&path, &folder.path().join("ds"), &options(""), false, &notes).unwrap();
    for line in [
        "commas before fractions, points between thousands (else pass --schema decimal=point): a, \
         b",
        "percents, read as hundredths: c",
    ] {
        let line = format!("{}: {line}", path.display());
        assert!(notes.lines().contains(&line), "{line}: {:?}", notes.lines());
        assert!(dataset.manifest().provenance.decisions.contains(&line), "{line}");
    }
}

#[test]
fn types_and_styles_are_those_of_all_rows() {
    let values = |rows: &str, last: &str, words: &str| {
        let text = format!("src;dst;a\n{}2;3;{last}\n", rows.repeat(1500));
        let (_folder, path) = file("a.csv", text);
        let made = convert_new(&path, &options(&format!("{words} --keep-duplicates")));
        made.map(|(_out, dataset)| {
            let column = dataset.edge_column("a").unwrap();
            let numbers = column.as_slice::<f64>().map(<[f64]>::to_vec);
            numbers.unwrap_or_else(|_| {
                column.as_slice::<i64>().unwrap().iter().map(|&number| number as f64).collect()
            })
        })
        .map_err(|error| error.to_string())
    };
    for (rows, last, words, expected) in [
        ("1;2;5\n", "0.5", "", Ok(0.5)),
        ("1;2;5\n", "", "", Ok(f64::NAN)),
        ("1;2;5\n", "-7", "", Ok(-7.0)),
        ("1;2;5.5\n", "1,234.5", "", Ok(1234.5)),
        ("1;2;5\n", "1,234", "", Err("column `a`: `1,234` may be a thousand or more")),
        ("1;2;5\n", "1,234", "--schema decimal=comma", Ok(1.234)),
        ("1;2;5\n", "x", "", Err("a.csv, line 1502: column `a`")),
    ] {
        match (values(rows, last, words), expected) {
            (Ok(found), Ok(expected)) => {
                let last = *found.last().unwrap();
                assert!(last == expected || (last.is_nan() && expected.is_nan()), "{last}");
                assert_eq!(found.len(), 1501, "{last}");
            }
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{last}: {found}"),
            (found, expected) => panic!("{rows} {last}: {found:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn an_input_unlike_its_first_rows_is_decided_told_once_and_reused() {
    let edges = format!("src,dst,w\n{}10,20,0.5\n", "20,10,1\n".repeat(1500));
    let folder = folder(&edges, "id,x\n10,1\n20,2\n");
    let (path, nodes) = (folder.path().join("edges.csv"), folder.path().join("nodes.csv"));
    let options = options(&format!("--nodes {} --label-column none", nodes.display()));
    let (_, decided) = decide(&path, &options, &NoProgress).unwrap();
    assert_eq!(decided.schema.edge_columns, names(&["w"]));
    let (out, notes) = (folder.path().join("ds"), Notes::default());
    assert_eq!(convert(&path, &out, &options, false, &notes).unwrap().1, Outcome::Converted);
    for text in ["edges.csv, line 1502, is unlike the first rows", "edges from `src` to `dst`"] {
        let count = notes.lines().iter().filter(|line| line.contains(text)).count();
        assert_eq!(count, 1, "{text}: {:?}", notes.lines());
    }
    assert_eq!(convert(&path, &out, &options, false, &NoProgress).unwrap().1, Outcome::Reused);
}

#[test]
fn files_of_several_names_are_one_table_if_the_user_says_so() {
    for (names, words) in [
        (["blocks.csv", "follows.csv"], "--schema one-table=yes"),
        (["part-0.csv", "part-1.csv"], ""),
        (["split=train/0.csv", "split=test/0.csv"], "--schema one-table=yes"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edges");
        fs::create_dir(&path).unwrap();
        for name in names {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "src,dst\n1,2\n").unwrap();
        }
        if !words.is_empty() {
            let asked = message(&path, &options(""));
            assert!(asked.contains("pass --schema one-table=yes"), "{asked}");
        }
        let notes = Notes::default();
        convert(&path, &folder.path().join("ds"), &options(words), false, &notes).unwrap();
        let line = format!("{}: one table of 2 files, ", path.display());
        assert!(notes.lines().iter().any(|note| note.starts_with(&line)), "{:?}", notes.lines());
    }
}

#[test]
fn a_stray_word_among_numbers_of_edges_is_refused_with_its_line() {
    let stray = "src,dst,w\n1,2,0.5\n2,3,soon\n3,1,0.25\n";
    let error = "error: a.csv, line 3: column `w`: `soon`: expected a number, as in other rows; \
                 pass --schema na=soon if it means that the value is missing";
    check(&[
        ("a.csv", stray, "", error),
        ("a.csv", stray, "--edge-columns w", error),
        ("a.csv", stray, "--schema edge-weights=w", error),
        ("a.csv", stray, "--edge-columns none", "1>2, 2>3, 3>1"),
        ("a.csv", "src,dst,w\n1,2,a\n2,3,soon\n3,1,0.25\n", "", "1>2, 2>3, 3>1"),
        ("a.csv", "src,dst,w\n1,2,NA\n2,3,\n3,1,0.25\n", "", "1>2 w=NaN, 2>3 w=NaN, 3>1 w=0.25"),
    ]);
}

#[test]
fn ids_with_leading_zeros_are_asked_about() {
    let padded = "src,dst\n1,2\n007,0\n";
    let error = "error: a.csv, line 3: column `src`: id `007` has leading zeros, which numbers do \
                 not keep: pass --schema id-type=text to keep ids as they are written, or --schema \
                 id-type=number";
    check(&[
        ("a.csv", padded, "", error),
        ("a.csv", padded, "--schema id-type=text", "007>0, 1>2"),
        ("a.csv", padded, "--schema id-type=number", "1>2, 7>0"),
        ("a.csv", "src,dst\n0,10\n", "", "0>10"),
        ("a.csv", "1,2\n3,007\n", "", "error: line 2: column `2`: id `007` has leading zeros"),
        ("a.csv", "1,2\n3,007\n", "--schema id-type=text", "1>2, 3>007"),
        ("a.csv", "1,2\n3,007\n", "--schema id-type=number", "1>2, 3>7"),
        ("a.txt", "1 2\n3 007\n", "", "1>2, 3>7"),
        ("a.txt", "1 2\n3 007\n", "--schema id-type=text", "1>2, 3>007"),
        (
            "a.csv",
            "src,dst\n1,x\n2,3\n",
            "",
            "error: one holds integers, the other strings: pass --schema id-type=text",
        ),
        ("a.csv", "src,dst\n1,x\n2,3\n", "--schema id-type=text", "1>x, 2>3"),
        (
            "a.csv",
            "src,dst\n1,2\n2.5,3\n4,5\n",
            "",
            "error: --target-column; `src` has `2.5` in line 3",
        ),
        (
            "a.graph",
            "2 1\n2\n1\n",
            "--schema id-type=text",
            "error: --schema id-type has no \
                                                             effect",
        ),
    ]);
    let (_folder, path) = file("a.csv", format!("src,dst\n{}x,2\n", "1,2\n".repeat(1500)));
    let found = message(&path, &options(""));
    assert!(
        found.contains("line 1502: column `src`: `x`")
            && found.ends_with("or pass --schema id-type=text if ids are strings"),
        "{found}"
    );
    assert_eq!(convert_new(&path, &options("--schema id-type=text")).unwrap().1.num_vertices(), 3);
}

#[test]
fn the_type_of_ids_is_that_of_both_tables() {
    let of_class = "--label-column class";
    let input = folder("src,dst\na1,b\nb,a1\n", "id,class\n7,0\n8,1\n");
    let told = "ids are integers, the ids of the edges strings: pass --schema id-type=text";
    refused(&input, &format!("{of_class} --id-column id"), &[told]);
    let padded = "id,class\n007,0\n8,1\n";
    let input = folder("src,dst\n7,8\n", padded);
    refused(&input, of_class, &["nodes.csv, line 2: column `id`: id `007` has leading zeros"]);
    assert_eq!(
        labels(&converted(&input, &format!("{of_class} --schema id-type=number")).0),
        [0, 1]
    );
    let input = folder("src,dst\n007,8\n", padded);
    let (dataset, _) = converted(&input, &format!("{of_class} --schema id-type=text"));
    assert_eq!((labels(&dataset), dataset.manifest().string_ids), (vec![0, 1], true));
    assert_eq!(dataset.manifest().provenance.options["schema"]["id-type"], "text");
}

#[test]
fn ids_of_typed_columns_become_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (edges, nodes) = (folder.path().join("edges.parquet"), folder.path().join("nodes.csv"));
    let write = |source: ArrayRef, target: ArrayRef| {
        write_parquet(&edges, vec![("src", source), ("dst", target)])
    };
    fs::write(&nodes, "id,class\n7,0\n8,1\n9,0\n").unwrap();
    let with =
        |words: &str| options(&format!("--nodes {} --label-column class {words}", nodes.display()));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["9", "8"]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![8, 7]));
    write(texts.clone(), texts.clone());
    // Without an option, the ids are read like the ids of the edges if they match.
    for words in ["", "--id-column id"] {
        let (_out, dataset) = convert_new(&edges, &with(words)).unwrap();
        assert_eq!((labels(&dataset), dataset.manifest().string_ids), (vec![0, 1, 0], true));
    }
    for (words, strings) in [("--schema id-type=number", false), ("--schema id-type=text", true)] {
        for (source, target) in [(&texts, &numbers), (&numbers, &texts)] {
            write(source.clone(), target.clone());
            let (_out, dataset) = convert_new(&edges, &with(words)).unwrap();
            assert_eq!((labels(&dataset), dataset.manifest().string_ids), (vec![0, 1, 0], strings));
            let edges = if source.data_type() == texts.data_type() { [1, 2] } else { [0, 1] };
            let mut sources = dataset.topology().indices().to_vec();
            sources.sort();
            sources.dedup();
            assert!(edges.iter().all(|v| sources.contains(v)), "{sources:?}");
        }
    }
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x", "8"]));
    write(words, texts);
    let found = message(&edges, &options("--schema id-type=number"));
    let told = "row 0, column `src`: is `x`: expected a whole number below 2^64, for --schema \
         id-type=number";
    assert!(found.contains(told), "{found}");
}
