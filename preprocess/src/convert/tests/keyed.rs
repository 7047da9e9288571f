//! Tables with keys, and the graph of their rows.

use std::collections::BTreeMap;

use gsplit_kernels::{Draws, Stream, StreamKey};
use gsplit_store::Split;

use super::typed::{expected_rows, rows};
use super::*;

/// Customers called by strings, items by numbers, orders, likes as edges, and a task. Files are
/// replaced by the ones of the same name in `change`, or removed if they have no content.
fn shop(change: &[(&str, &str)]) -> TempDir {
    let schema = "\
        [tables.customer]\nfile = \"customers.csv\"\nkey = \"name\"\n\
        foreign = { invited_by = \"customer\" }\n\
        [tables.item]\nfile = \"items.csv\"\nkey = \"item_id\"\n\
        [tables.order]\nfile = \"orders.csv\"\nforeign = { who = \"customer\", what = \"item\" }\n\
        [tables.likes]\nfile = \"likes.csv\"\nforeign = { who = \"customer\", what = \"item\" }\n\
        edges = [\"who\", \"what\"]\n\
        [task]\nfile = \"task.csv\"\nforeign = { who = \"customer\" }\nlabel-column = \"left\"\n";
    let files = [
        ("schema.toml", schema),
        ("customers.csv", "name,age,invited_by\nann,31,\nbob,28,ann\ncy,55,bob\n"),
        ("items.csv", "item_id,price\n7,1.5\n1000000,2.5\n"),
        ("orders.csv", "who,amount,what\nbob,1,7\ncy,2,1000000\nbob,3,\n"),
        ("likes.csv", "who,what\nann,7\ncy,7\n"),
        ("task.csv", "who,left,split\nbob,yes,train\nann,no,valid\nbob,no,test\n"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let is_changed = |name: &str| change.iter().any(|(of, _)| *of == name);
    let kept = files.into_iter().filter(|(name, _)| !is_changed(name));
    for (name, content) in kept.chain(change.iter().copied().filter(|(_, text)| !text.is_empty())) {
        fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// The rows of the shop without options.
const ROWS: &str = "\
    customer 0 customer/invited_by/customer: 1; customer 1 customer/invited_by/customer: 2; \
    customer 1 customer/rev_invited_by/customer: 0; customer 2 customer/rev_invited_by/customer: 1; \
    customer 1 order/who/customer: 0 2; customer 2 order/who/customer: 1; \
    item 0 order/what/item: 0; item 1 order/what/item: 1; \
    order 0 customer/rev_who/order: 1; order 1 customer/rev_who/order: 2; \
    order 2 customer/rev_who/order: 1; order 0 item/rev_what/order: 0; \
    order 1 item/rev_what/order: 1; item 0 customer/likes/item: 0 2; \
    task 0 customer/who/task: 1; task 1 customer/who/task: 0; task 2 customer/who/task: 1";

#[test]
fn rows_are_vertices_and_foreign_keys_are_edges() {
    let folder = shop(&[]);
    let notes = Notes::default();
    let out = folder.path().join("ds");
    let schema = folder.path().join("schema.toml");
    convert(folder.path(), &out, &ConvertOptions::default(), false, &notes).unwrap();
    let dataset = Dataset::open(&out).unwrap();
    assert_eq!(rows(&dataset), expected_rows(ROWS));
    let notes = notes.lines().join("\n");
    for says in [
        "orders.csv: `what` makes no edge where it is empty (1), or not a key of item (0)",
        "3 customer, 2 item, 3 order, 3 task; relations: customer/invited_by/customer, ",
        "likes.csv: edges customer/likes/item, without values",
        "labels from `left`",
    ] {
        assert!(notes.contains(says), "{says}: {notes}");
    }
    assert_eq!(dataset.manifest().class_names.as_deref().unwrap(), ["no", "yes"]);
    assert_eq!(dataset.labels().unwrap()[8..], [1, 0, 0]);
    assert!(dataset.labels().unwrap()[..8].iter().all(|label| *label == -1));
    assert_eq!(dataset.split(Split::Train).unwrap()[..], [8]);
    assert_eq!(dataset.split(Split::Test).unwrap()[..], [10]);
    // Ages, prices and amounts are features, and keys are not. The task has ones.
    let widths: Vec<_> = dataset
        .types()
        .unwrap()
        .vertices
        .iter()
        .map(|of| of.features.as_ref().unwrap().dim)
        .collect();
    assert_eq!(widths, [1, 1, 1, 1]);
    // The schema itself is an input too, and the reverses of likes can be added.
    let out = folder.path().join("both");
    convert(&schema, &out, &options("--symmetrise"), false, &NoProgress).unwrap();
    let both = format!(
        "{ROWS}; customer 0 item/rev_likes/customer: 0; customer 2 item/rev_likes/customer: 0"
    );
    assert_eq!(rows(&Dataset::open(&out).unwrap()), expected_rows(&both));
}

#[test]
fn keys_that_are_wrong_are_refused_by_table_and_row() {
    let change_schema = |from: &str, to: &str| {
        let folder = shop(&[]);
        let text = fs::read_to_string(folder.path().join("schema.toml")).unwrap();
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    let table: &[(&str, String, &str)] = &[
        (
            "customers.csv",
            "name,age,invited_by\nann,31,\nann,2,\n".into(),
            "customers.csv: line 2 and line 3 have the same key in `name`, `ann`",
        ),
        (
            "customers.csv",
            "name,age,invited_by\nann,31,\n,2,\nbob,3,\n".into(),
            "customers.csv, line 3: column `name`: is empty",
        ),
        (
            "items.csv",
            "item_id,price\n7,1.5\n7,2\n".into(),
            "line 2 and line 3 have the same key in `item_id`, `7`",
        ),
        (
            "items.csv",
            "item_id,price\nx7,1.5\n8,2\n".into(),
            "`what` holds integers, and the key `item_id` of",
        ),
        (
            "orders.csv",
            "who,amount,what\nbob,1,8\ncy,2,7\ncy,2,9\n".into(),
            "2 of 3 values of `what` are no key `item_id` of",
        ),
        (
            "orders.csv",
            "who,amount,what\nbob,1,8\ncy,2,7\ncy,2,9\n".into(),
            "items.csv, `8` and `9`, first in line 2: add the rows, or missing-rows = \"drop\"",
        ),
        (
            "orders.csv",
            "who,amount\nbob,1\n".into(),
            "orders.csv: no column `what` (foreign key). There are `who`, `amount`",
        ),
        ("orders.csv", "who,amount,what\n".into(), "has columns and no rows"),
        ("orders.csv", String::new(), "orders.csv"),
        (
            "schema.toml",
            change_schema("key = \"item_id\"\n", ""),
            "foreign: [tables.item] has no key: add one",
        ),
        (
            "schema.toml",
            change_schema("what = \"item\"", "what = \"thing\""),
            "`what` names rows of `thing`: expected one of the tables, customer, item",
        ),
        (
            "schema.toml",
            change_schema("file = \"likes.csv\"\n", "file = \"likes.csv\"\nkey = \"who\"\n"),
            "[tables.likes]: edges: expected two columns that `foreign` has, and no key",
        ),
        (
            "schema.toml",
            change_schema("[\"who\", \"what\"]", "[\"who\", \"that\"]"),
            "[tables.likes]: edges: expected two columns that `foreign` has",
        ),
        (
            "schema.toml",
            change_schema("[task]", "[tables.alone]\nfile = \"items.csv\"\n[task]"),
            "[tables.alone]: no foreign key leads to these rows or from them",
        ),
        (
            "schema.toml",
            change_schema("key = \"name\"", "kee = \"name\""),
            "[tables.customer]: `kee` is not file, key, foreign, edges or a key of a schema",
        ),
        (
            "schema.toml",
            change_schema("key = \"name\"", "id-column = \"name\""),
            "id-column has no effect on a table with keys",
        ),
        ("schema.toml", change_schema("file = \"items.csv\"\n", ""), "missing field `file`"),
        ("schema.toml", change_schema("[task]", "[tables.task]"), "a table is called `task`"),
        (
            "schema.toml",
            format!("fill = 0\n{}", change_schema("item", "item")),
            "unknown field `fill`, expected `tables` or `task`",
        ),
        ("schema.toml", change_schema("[task]", "[task"), "schema.toml, line 15: unclosed table"),
        (
            "task.csv",
            "who,left,split\nbob,yes,train\nann,no,soon\n".into(),
            "task.csv, line 3: column `split`: `soon`",
        ),
    ];
    for (file, content, says) in table {
        let folder = shop(&[(file, content)]);
        let error = convert_new(folder.path(), &ConvertOptions::default()).unwrap_err().to_string();
        assert!(error.contains(says) && error.lines().count() == 1, "{says}: {error}");
    }
    let numbers = "who,left,split\nbob,1.5,train\nann,2.5,valid\n";
    let without = change_schema("label-column = \"left\"\n", "");
    let folder = shop(&[("task.csv", numbers), ("schema.toml", &without)]);
    let error = convert_new(folder.path(), &ConvertOptions::default()).unwrap_err().to_string();
    assert!(error.contains("task.csv: no column looks like a label: add label-column"), "{error}");
    for (words, says) in [
        (
            "--label-column age",
            "--label-column: there are several tables: write it under one of them in",
        ),
        ("--nodes x.csv", "the graph has several"),
        ("--bipartite", "--bipartite: there are several tables: leave it out"),
    ] {
        let error = convert_new(shop(&[]).path(), &options(words)).unwrap_err().to_string();
        assert!(error.contains(says), "{words}: {error}");
    }
    // A key on the command line is for all tables, in place of the default.
    let folder = shop(&[("items.csv", "item_id,price\n7,\n1000000,2.5\n")]);
    let words = "--schema fill=9 --schema scale=none";
    let (_kept, dataset) = convert_new(folder.path(), &options(words)).unwrap();
    let prices = dataset.features_of(1).unwrap().unwrap();
    assert_eq!([0, 1].map(|row| prices.row::<f32>(row)), [[9.0, 1.0], [2.5, 0.0]]);
    // Edges of keys that no row has can be left out.
    let orders = "who,amount,what\nbob,1,8\ncy,2,7\n";
    let folder = shop(&[("orders.csv", orders)]);
    let (_kept, dataset) =
        convert_new(folder.path(), &options("--schema missing-rows=drop")).unwrap();
    let found = rows(&dataset);
    assert_eq!(found["item 0 order/what/item"], [1]);
    assert!(!found.contains_key("order 0 item/rev_what/order"));
}

#[test]
fn oracle_random_keys_name_the_rows_that_have_them() {
    let mut draws = Draws::new(&StreamKey::new(91, Stream::Generate), 0);
    for case in 0..6 {
        let (n, m) = (1 + draws.below(400), 1 + draws.below(3000));
        // Dense numbers, numbers with gaps, and strings, in any order.
        let mut keys: Vec<String> = (0..n)
            .map(|v| match case % 3 {
                0 => format!("{v}"),
                1 => format!("{}", u64::from(v) << 40),
                _ => format!("k{v}"),
            })
            .collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, draws.below(at as u32 + 1) as usize);
        }
        let named: Vec<Option<u32>> =
            (0..m).map(|_| Some(draws.below(n + 1)).filter(|row| *row < n)).collect();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        write(
            "a.csv",
            "key,x\n".to_string()
                + &keys.iter().map(|key| format!("{key},1\n")).collect::<String>(),
        );
        let cell = |row: &Option<u32>| row.map_or("", |row| keys[row as usize].as_str());
        write(
            "b.csv",
            "x,to\n".to_string()
                + &named.iter().map(|row| format!("1,{}\n", cell(row))).collect::<String>(),
        );
        write("schema.toml", "[tables.a]\nfile = \"a.csv\"\nkey = \"key\"\n[tables.b]\nfile = \"b.csv\"\nforeign = { to = \"a\" }\n".into());
        let (_kept, dataset) = convert_new(folder.path(), &ConvertOptions::default()).unwrap();
        let mut expected = BTreeMap::<String, Vec<u64>>::new();
        for (row, of) in named.iter().enumerate().filter_map(|(row, of)| Some((row, (*of)?))) {
            expected.entry(format!("a {of} b/to/a")).or_default().push(row as u64);
            expected.entry(format!("b {row} a/rev_to/b")).or_default().push(of.into());
        }
        assert_eq!(rows(&dataset), expected, "case {case}");
    }
}
