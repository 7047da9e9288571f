//! Ambiguous tables of vertices: the question, and the result of each answer.

use super::tables::EDGES;
use super::*;

/// Fails unless these vertices are refused by `words` with `told`.
fn asks(nodes: &str, words: &str, told: &str) {
    refused(&folder(EDGES, nodes), words, &[told]);
}

/// The dataset of these vertices by `words`, and the notes.
fn made(nodes: &str, words: &str) -> (TempDir, Dataset, String) {
    let input = folder(EDGES, nodes);
    let (dataset, notes) = converted(&input, words);
    (input, dataset, notes)
}

fn split(dataset: &Dataset) -> [Vec<u32>; 3] {
    Split::ALL
        .map(|split| dataset.split(split).map(|vertices| vertices.to_vec()).unwrap_or_default())
}

#[test]
fn minus_one_is_a_class_or_unlabelled() {
    let of = |values: [&str; 4]| {
        let row = |(id, value): (u32, &str)| format!("{id}0,{id}.5,{value}\n");
        format!("id,f0,y\n{}", (1..5).zip(values).map(row).collect::<String>())
    };
    for (values, beside) in [
        (["-1", "1", "1", "-1"], "1"),
        (["-1", "0", "1", "1"], "0, 1"),
        (["-2", "-1", "0", "2"], "-2, 0, 2"),
    ] {
        let answers = "pass --schema unlabelled=none if -1 is a class, or --schema unlabelled=-1 \
                       if it stands for no label";
        let parts = ["column `y` holds -1 in ", &format!("beside {beside}: {answers}")];
        refused(&folder(EDGES, &of(values)), "", &parts);
    }
    for (values, word, expected, classes) in [
        (["-1", "1", "1", "-1"], "none", [0, 1, 1, 0], names(&["-1", "1"])),
        (["-1", "0", "1", "1"], "-1", [-1, 0, 1, 1], None),
        // Any other value can mean unlabelled.
        (["0", "1", "9", "9"], "9", [0, 1, -1, -1], None),
        (["a", "b", "unknown", "a"], "unknown", [0, 1, -1, 0], names(&["a", "b"])),
    ] {
        let (_out, dataset, notes) = made(&of(values), &format!("--schema unlabelled={word}"));
        assert_eq!(
            (labels(&dataset), dataset.manifest().class_names.clone()),
            (expected.to_vec(), classes)
        );
        let unlabelled = expected.iter().filter(|&&label| label == -1).count();
        let note = format!("labels: {unlabelled} of 4 vertices are unlabelled");
        assert_eq!(notes.contains(&note), unlabelled > 0, "{notes}");
        let kept = dataset.manifest().recipe.as_ref().unwrap().unlabelled.clone();
        assert_eq!(kept.as_deref(), Some(word).filter(|word| *word != "none"));
    }
    // Three classes and more are plain.
    let (_out, dataset, notes) = made(&of(["0", "1", "2", "-1"]), "");
    assert_eq!(labels(&dataset), [0, 1, 2, -1]);
    assert!(notes.contains("labels: 1 of 4 vertices are unlabelled"), "{notes}");
    for (values, value, expected) in [
        (["0", "1", "2", "1"], "7", "--schema unlabelled: column `y` has no value `7`"),
        (
            ["0", "1.5", "2", "1"],
            "0",
            "--schema unlabelled is for one column of classes; the label is a number to learn",
        ),
    ] {
        asks(&of(values), &format!("--schema unlabelled={value}"), expected);
    }
    asks("id,f0\n10,1\n20,2\n30,3\n40,4\n", "--schema unlabelled=7", "the table has no label");
}

#[test]
fn classes_without_vertices_are_noted() {
    let (_out, dataset, notes) = made("id,f0,y\n10,1,0\n20,2,1\n30,3,3\n40,4,1\n", "");
    assert_eq!(labels(&dataset), [0, 1, 3, 1]);
    assert!(
        notes.contains("note: labels: 1 of 4 classes has no vertex, e.g. class 2: "),
        "{notes}"
    );
    let (_out, _, notes) = made("id,f0,y\n10,1,0\n20,2,1\n30,3,2\n40,4,1\n", "");
    assert!(!notes.contains("no vertex"), "{notes}");
}

#[test]
fn flags_called_like_splits_are_the_split() {
    let expected = [vec![0], vec![1], vec![2, 3]];
    for nodes in [
        "id,f0,train_mask,val_mask,test_mask\n10,1,1,,0\n20,2,0,1,\n30,3,,,1\n40,4,0,0,1\n",
        "id,f0,train_mask,val_mask,test_mask\n10,1,1.0,,0.0\n20,2,0.0,1.0,\n30,3,,,1.0\n40,4,0.0,0.0,1.0\n",
        "id,f0,Train,valid,test\n10,1,True,False,\n20,2,False,True,\n30,3,False,,True\n40,4,False,False,True\n",
        "id,f0,is_train,is_val,is_test\n10,1,1,0,0\n20,2,0,1,0\n30,3,0,0,1\n40,4,0,0,1\n",
    ] {
        let (_out, dataset, notes) = made(nodes, "");
        assert_eq!(split(&dataset), expected, "{nodes}");
        assert_eq!(rows(&dataset), [[1.0], [2.0], [3.0], [4.0]], "{nodes}");
        let blanks = nodes.matches(",,").count() + nodes.matches(",\n").count();
        assert_eq!(
            notes.contains("have no value: they are not in that split"),
            blanks > 0,
            "{notes}"
        );
        assert!(dataset.manifest().columns.is_empty());
    }
    // A single flag is ambiguous.
    let one = "id,f0,test\n10,1,1\n20,2,0\n30,3,1\n40,4,0\n";
    let question = "column `test` holds 0 and 1, and its name looks like a split: pass --split-column test if it is one, or \
                    --split-column none if it is a feature";
    asks(one, "--label-column none", question);
    for (answer, splits, width) in
        [("test", [vec![], vec![], vec![0, 2]], 1), ("none", [vec![], vec![], vec![]], 2)]
    {
        let (_out, dataset, _) = made(one, &format!("--label-column none --split-column {answer}"));
        assert_eq!((split(&dataset), rows(&dataset)[0].len()), (splits, width), "{answer}");
    }
    // Numbers of that name are a feature, and so is what --feature-columns names.
    let (_out, dataset, _) = made("id,train,test\n10,1.5,3\n20,2,4\n30,3,5\n40,4,6\n", "");
    assert_eq!(rows(&dataset)[0], [1.5, 3.0]);
    let flags = "column `train_mask`: expected 0 and 1, or true and false, for a split";
    let several = "line 3: column `test`: several of `train`, `test` are set, and splits must not overlap: fix it, or pass --split-column none";
    for (nodes, expected) in [
        ("id,train,test\n10,1,0\n20,1,1\n30,0,1\n40,0,1\n", several),
        ("id,train_mask\n10,1\n20,2\n30,0\n40,0\n", flags),
        ("id,train_mask\n10,yes\n20,no\n30,no\n40,no\n", flags),
    ] {
        asks(nodes, "--label-column none", expected);
    }
}

#[test]
fn words_of_splits_are_taken_in_any_case() {
    let nodes = "id,f0,split\n10,1,TRAIN\n20,2,Validation\n30,3,Test\n40,4,None\n";
    let (_out, dataset, _) = made(nodes, "");
    assert_eq!(split(&dataset), [vec![0], vec![1], vec![2]]);
}

#[test]
fn drawn_splits_leave_out_those_of_the_table() {
    for nodes in [
        "id,f0,split\n10,1,train\n20,2,val\n30,3,test\n40,4,\n",
        "id,f0,train_mask\n10,1,0\n20,2,1\n30,3,1\n40,4,1\n",
    ] {
        let (_out, dataset, notes) = made(nodes, "--random-split 0.5,0.25,0.25");
        assert_eq!(split(&dataset).map(|vertices| vertices.len()), [2, 1, 1]);
        let unused = "is not used for training: it has the splits of the table, and --random-split draws others";
        assert!(notes.contains(unused), "{notes}");
        assert!(!notes.contains("splits from"), "{notes}");
        assert_eq!(
            (rows(&dataset)[0].len(), dataset.manifest().recipe.as_ref().unwrap().splits.len()),
            (1, 0)
        );
    }
}

#[test]
fn cells_of_several_classes_are_asked_about() {
    let nodes = "id,f0,y\n10,1,0\n20,2,\"1,2\"\n30,3,1\n40,4,2\n";
    asks(
        nodes,
        "",
        "column `y`: `1,2` may be a number or two classes: pass --schema label-kind=number if it \
         is 1.2",
    );
    let (_out, dataset, _) = made(nodes, "--schema label-kind=number");
    assert_eq!(dataset.numeric_labels().unwrap()[..], [0.0, 1.2, 1.0, 2.0]);
    let nodes = "id,f0,y\n10,1,0\n20,2,1;2\n30,3,1\n40,4,2\n";
    asks(
        nodes,
        "",
        "column `y` holds numbers for the most part, and `1;2`: fix it, pass --schema \
         unlabelled=VALUE",
    );
    let (_out, dataset, _) = made(nodes, "--schema unlabelled=1;2");
    assert_eq!(labels(&dataset), [0, -1, 1, 2]);
}

#[test]
fn missing_cells_of_several_classes_are_kept_apart_from_zeros() {
    let nodes = "id,f0,a,b\n10,1,1,0\n20,2,,\n30,3,0,0\n40,4,0,\n";
    let (_out, dataset, notes) = made(nodes, "--label-column a,b --random-split 0.4,0.3,0.3");
    let labels = dataset.multi_labels().unwrap();
    let cells: Vec<_> = (0..4).map(|v| labels.cells(v).collect::<Vec<_>>()).collect();
    let [no, yes] = [false, true].map(Some);
    assert_eq!(cells, [[yes, no], [None, None], [no, no], [no, None]]);
    for line in [
        "labels: 3 cells without a value, in 2 of 2 classes, e.g. `a`: left out of the loss and \
         the scores",
        "labels: 1 of 4 vertices are unlabelled",
        "labels: 2 of 4 vertices have no class",
    ] {
        assert!(notes.contains(line), "{notes}");
    }
    // Splits are drawn among the vertices that have a value for some class.
    let mut drawn = split(&dataset).concat();
    drawn.sort_unstable();
    assert_eq!(drawn, [0, 2, 3]);
    // Ones and empty cells may be lists of classes.
    let ones = "id,f0,a,b\n10,1,1,\n20,2,,1\n30,3,1,1\n40,4,,\n";
    let question = "pass --schema unlabelled=none if an empty cell is a zero";
    asks(ones, "--label-column a,b", question);
    let (_out, dataset, _) = made(ones, "--label-column a,b --schema unlabelled=none");
    let labels = dataset.multi_labels().unwrap();
    assert!(!dataset.lacks_label_cells());
    assert_eq!(labels.classes(1).collect::<Vec<_>>(), [1]);
    // A vertex without a row has no value.
    let nodes = "id,f0,a,b\n10,1,1,0\n20,2,1,1\n30,3,0,0\n";
    let words = "--label-column a,b --schema missing-rows=fill --schema fill=mean";
    let (_out, dataset, _) = made(nodes, words);
    assert_eq!(dataset.multi_labels().unwrap().num_known(3), Some(0));
}

#[test]
fn dates_are_read_in_one_order() {
    let nodes = |dates: [&str; 4]| {
        let row = |(id, date): (u32, &str)| format!("{id}0,{id},{date}\n");
        format!("id,f0,since\n{}", (1..5).zip(dates).map(row).collect::<String>())
    };
    let mixed = "expected a number or a date, as in most rows: pass --schema";
    for (dates, expected) in [
        (
            ["01/02/2020", "03/04/2020", "05/06/2020", "7/8/2020"],
            "column `since`: `01/02/2020` may begin with its day or its month: pass --schema \
             date-order=dmy"
                .to_string(),
        ),
        (
            ["31/01/2020", "01/31/2020", "30/01/2020", "1/1/2020"],
            format!(
                "line 3: column `since`: `01/31/2020`: {mixed} na=01/31/2020 --schema fill=mean if"
            ),
        ),
        (
            ["2020-01-31", "2020-02-30", "2020-01-01", "2020-01-02"],
            format!(
                "line 3: column `since`: `2020-02-30`: {mixed} na=2020-02-30 --schema fill=mean if"
            ),
        ),
    ] {
        asks(&nodes(dates), "--label-column none", &expected);
    }
    let undecided = nodes(["01/02/2020", "03/04/2020", "05/06/2020", "7/8/2020"]);
    for (order, day, said) in
        [("dmy", 18_293.0, "day before month"), ("mdy", 18_263.0, "month before day")]
    {
        let (_out, dataset, notes) =
            made(&undecided, &format!("--label-column none --schema date-order={order}"));
        assert_eq!(rows(&dataset)[0], [1.0, day], "{order}");
        assert!(
            notes.contains(&format!("dates, read as days since 1970-01-01: since ({said})")),
            "{notes}"
        );
        assert_eq!(dataset.manifest().recipe.as_ref().unwrap().dates.as_deref(), Some(order));
    }
    let decided = nodes(["01/31/2020", "01/01/2020", "", "1/2/2020"]);
    let (_out, dataset, notes) = made(&decided, "--label-column none --schema fill=0");
    assert_eq!(rows(&dataset)[0], [1.0, 18_292.0, 0.0]);
    assert!(notes.contains("since (month before day)"), "{notes}");
}

#[test]
fn two_columns_of_ids_are_asked_about() {
    for (one, other) in [("key", "other"), ("id", "node_id")] {
        let nodes = format!("{one},{other},f0\n10,40,1\n20,30,2\n30,20,3\n40,10,4\n");
        let question = format!(
            "`{one}` and `{other}` both hold the ids of the edges, in different rows: pass \
             --id-column"
        );
        asks(&nodes, "", &question);
        let (_out, dataset, _) = made(&nodes, &format!("--id-column {other} --feature-columns f0"));
        assert_eq!(rows(&dataset), [[4.0], [3.0], [2.0], [1.0]]);
    }
    // Two equal columns need no question.
    let (_out, dataset, _) =
        made("id,node_id,f0\n10,10,1\n20,20,2\n30,30,3\n40,40,4\n", "--feature-columns f0");
    assert_eq!(rows(&dataset), [[1.0], [2.0], [3.0], [4.0]]);
}

#[test]
fn classes_that_a_recipe_lacks_count_as_unlabelled() {
    let (_out, trained, _) = made("id,f0,y\n10,1,a\n20,2,b\n30,3,a\n40,4,b\n", "");
    assert_eq!(trained.manifest().recipe.as_ref().unwrap().classes, ["a", "b"]);
    let recipe = format!("--recipe {}", trained.path().display());
    let new = "id,f0,y\n10,1,b\n20,2,c\n30,3,\n40,4,d\n";
    let expected = "column `y`: `c` is not a class of the recipe: pass --schema unseen=other to \
                    count it as unlabelled, or leave the column out of the table";
    asks(new, &recipe, expected);
    let (_out, dataset, notes) = made(new, &format!("{recipe} --schema unseen=other"));
    assert_eq!(
        (labels(&dataset), dataset.manifest().class_names.clone()),
        (vec![1, -1, -1, -1], names(&["a", "b"]))
    );
    let note = "column `y`: 2 rows are of classes that the recipe does not have, as `c`: they count as unlabelled";
    assert!(notes.contains(note), "{notes}");
}
