//! Columns of ordinary tables, and what becomes of them: scales, categories, labels, identifiers,
//! directions; and new tables by the same recipe.

use std::fmt::Write as _;

use gsplit_store::{FeatureEncoding, Recipe};

use super::*;

/// Customers who know one another: few of the pairs are there in both directions.
pub(super) fn customers(columns: &str, row: impl Fn(u64) -> String) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_customers(folder.path(), columns, row);
    folder
}

fn write_customers(folder: &Path, columns: &str, row: impl Fn(u64) -> String) {
    let (mut nodes, mut edges) =
        (format!("customer_id,{columns}\n"), String::from("from_customer,to_customer\n"));
    for v in 0..300 {
        writeln!(nodes, "{},{}", 1000 + v, row(v)).unwrap();
        for step in [1, 7, 40] {
            writeln!(edges, "{},{}", 1000 + v, 1000 + (v + step) % 300).unwrap();
        }
    }
    std::fs::write(folder.join("edges.csv"), edges).unwrap();
    std::fs::write(folder.join("nodes.csv"), nodes).unwrap();
}

pub(super) fn recipe(dataset: &Dataset) -> Recipe {
    dataset.manifest().recipe.clone().unwrap()
}

/// Column `at` of the feature rows.
pub(super) fn column(dataset: &Dataset, at: usize) -> Vec<f64> {
    let features = dataset.features().unwrap();
    (0..dataset.num_vertices() as u32).map(|v| f64::from(features.row::<f32>(v)[at])).collect()
}

/// Mean and deviation.
fn moments(numbers: &[f64]) -> (f64, f64) {
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    (
        mean,
        (numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / numbers.len() as f64)
            .sqrt(),
    )
}

/// Account, zip code, age, income, plan, city, whether churned.
fn customer(v: u64) -> String {
    let random = v.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    let plan = ["free", "basic", "pro"][v as usize % 3];
    let (age, income) = (18 + v % 60, 20_000 + random % 80_000);
    let city = ["Oslo", "Rome", "Bonn", "Kyiv"][(random % 4) as usize];
    format!(
        "{},{:05},{age},{income}.5,{plan},{city},{}",
        40_000_000 + 7919 * v,
        1000 + random % 9000,
        v % 2
    )
}

const COLUMNS: &str = "account_no,zip,age,income,plan,city,churned";
const LABEL: &str = "--label-column churned";

#[test]
fn a_table_of_customers_needs_no_option_but_the_label() {
    let folder = customers(COLUMNS, customer);
    let (dataset, said) = made(folder.path(), LABEL);
    let dataset = dataset.unwrap();
    let recipe = recipe(&dataset);
    let names = [
        "age",
        "income",
        "plan=basic",
        "plan=free",
        "plan=pro",
        "city=Bonn",
        "city=Kyiv",
        "city=Oslo",
        "city=Rome",
    ];
    assert_eq!(recipe.feature_names(), names);
    assert_eq!(
        (recipe.id.as_str(), recipe.label.as_slice()),
        ("customer_id", &["churned".to_string()][..])
    );
    let out: Vec<&str> = recipe.left_out.iter().map(|out| out.column.as_str()).collect();
    assert_eq!(out, ["account_no", "zip"]);
    for (at, (least, most)) in [(18.0, 77.0), (20_000.5, 99_999.5)].into_iter().enumerate() {
        let (mean, deviation) = moments(&column(&dataset, at));
        assert!(mean.abs() < 1e-5 && (deviation - 1.0).abs() < 1e-5, "{mean} {deviation}");
        let FeatureEncoding::Number { shift, scale } = recipe.features[at].encoding else {
            panic!("a number")
        };
        assert!((least..most).contains(&shift) && scale > 1.0 && scale < most, "{shift} {scale}");
    }
    assert_eq!(
        column(&dataset, 3),
        (0..300).map(|v| f64::from(u8::from(v % 3 == 0))).collect::<Vec<_>>()
    );
    assert_eq!(dataset.labels().unwrap()[..4], [0, 1, 0, 1]);
    assert_eq!(dataset.topology().num_edges(), 1800, "both directions of each");
    assert!(recipe.edges.symmetrise);
    for part in [
        "`account_no` is not used for training: its name looks like an identifier. Use it with \
         --feature-columns",
        "`zip` is not used for training",
        "labels from `churned`",
        "edges are made two-way (hardly any has its reverse: 0.0 %)",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let alone = convert_new(&folder.path().join("edges.csv"), &options("--directed"))
        .unwrap_err()
        .to_string();
    assert!(alone.contains("--directed has no effect"), "{alone}");
    let directed = format!("--directed {LABEL}");
    assert_eq!(made(folder.path(), &directed).0.unwrap().topology().num_edges(), 900);
}

#[test]
fn scales_and_encodings_are_a_choice() {
    let folder = customers(COLUMNS, customer);
    let plain = made(folder.path(), &format!("--schema scale=none --schema encode=none {LABEL}"))
        .0
        .unwrap();
    assert_eq!(recipe(&plain).feature_names(), ["age", "income"]);
    assert_eq!(column(&plain, 0)[..2], [18.0, 19.0]);
    let ranged =
        made(folder.path(), &format!("--schema scale=minmax --feature-columns age,plan {LABEL}"))
            .0
            .unwrap();
    assert_eq!(recipe(&ranged).feature_names(), ["age", "plan=basic", "plan=free", "plan=pro"]);
    let ages = column(&ranged, 0);
    assert!(
        ages.iter().all(|age| (0.0..=1.0).contains(age))
            && ages.contains(&0.0)
            && ages.contains(&1.0)
    );
    let (dataset, _) = made(folder.path(), &format!("--feature-columns account_no,age {LABEL}"));
    assert_eq!(
        recipe(&dataset.unwrap()).feature_names(),
        ["account_no", "age"],
        "who names a column gets it"
    );
    // Many categories: the most frequent, and one for the rest.
    let towns = customers("town,label", |v| {
        format!("t{},{}", if v < 150 { v % 10 } else { v % 90 }, v % 2)
    });
    let (dataset, said) = made(towns.path(), "");
    let dataset = dataset.unwrap();
    let names = recipe(&dataset).feature_names();
    assert_eq!((names.len(), names[63].as_str()), (64, "town=other"));
    assert!((0..10).all(|town| names.contains(&format!("town=t{town}"))));
    assert!(said.contains("`town` is one-hot by its 63 most frequent values"), "{said}");
    let ones: f64 = (0..64).map(|at| column(&dataset, at).iter().sum::<f64>()).sum();
    assert_eq!(ones, 300.0);
    // Arrays are scaled where it is asked for.
    let arrays = folder.path().join("arrays");
    std::fs::create_dir(&arrays).unwrap();
    gsplit_store::write_npy(arrays.join("row.npy"), &[0i64, 1, 2]).unwrap();
    gsplit_store::write_npy(arrays.join("col.npy"), &[1i64, 2, 0]).unwrap();
    gsplit_store::write_npy(arrays.join("feat.npy"), &[1.0f32, 2.0, 6.0]).unwrap();
    let scaled = |words: &str| column(&convert_new(&arrays, &options(words)).unwrap().1, 0);
    assert_eq!(scaled(""), [1.0, 2.0, 6.0]);
    assert!(moments(&scaled("--schema scale=standard")).0.abs() < 1e-6);
}

#[test]
fn labels_are_numbers_classes_or_sets_of_classes() {
    let prices = customers("rooms,price", |v| format!("{},{}.25", v % 5, 1000 + v * 37 % 901));
    let dataset = made(prices.path(), "--label-column price --random-split 0.6,0.2,0.2").0.unwrap();
    assert!(dataset.manifest().numeric_label && dataset.manifest().num_classes.is_none());
    assert_eq!(dataset.numeric_labels().unwrap()[..2], [1000.25, 1037.25]);
    assert_eq!(dataset.split(Split::Train).unwrap().len(), 180);
    let whole = customers("rooms,price", |v| format!("{},{}", v % 5, 1000 + v * 37 % 901));
    let question = "`price` holds 300 different numbers in 300 rows: pass --schema \
                    label-kind=class, or number";
    refused(&whole, "--label-column price", &[question]);
    let (dataset, _) = made(whole.path(), "--label-column price --schema label-kind=number");
    assert_eq!(dataset.unwrap().numeric_labels().unwrap()[1], 1037.0);
    let (dataset, _) = made(whole.path(), "--label-column price --schema label-kind=class");
    assert_eq!(dataset.unwrap().manifest().num_classes, Some(300));
    let likes = customers("age,likes_a,likes_b,likes_c", |v| {
        format!("{},{},{},{}", v % 50, v % 2, v / 2 % 2, v / 4 % 2)
    });
    let dataset = made(likes.path(), "--label-column likes_*").0.unwrap();
    assert!(dataset.manifest().multi_label);
    assert_eq!(
        dataset.manifest().class_names.as_deref().unwrap(),
        ["likes_a", "likes_b", "likes_c"]
    );
    assert_eq!(dataset.multi_labels().unwrap().classes(5).collect::<Vec<_>>(), [0, 2]);
    refused(&likes, "--label-column likes_a,age", &["`age` of several: expected zeros and ones"]);
    let gaps = customers("age,plan", |v| {
        format!(
            "{},{}",
            if v == 3 { String::new() } else { v.to_string() },
            ["a", "b"][v as usize % 2]
        )
    });
    refused(&gaps, "", &["which column is the label? `plan` has `a`, `b`; `age` has "]);
    let names = customers("label,class", |v| format!("{},{}", v % 2, v % 3));
    refused(
        &names,
        "",
        &["which column is the label? `label` has `0`, `1`; `class` has `0`, `1`, `2` ..."],
    );
    let strings = customers("kind,x", |v| format!("{},{}", ["a", "b"][v as usize % 2], v % 7));
    refused(
        &strings,
        "--label-column kind --schema label-kind=number",
        &["column `kind` holds strings: expected numbers"],
    );
}

#[test]
fn splits_have_several_names() {
    let words = ["train", "train", "valid", "test"];
    let folded =
        customers("x,label,fold", |v| format!("{},{},{}", v % 9, v % 2, words[v as usize % 4]));
    let dataset = made(folded.path(), "").0.unwrap();
    assert_eq!(dataset.split(Split::Valid).unwrap().len(), 75);
    assert_eq!(recipe(&dataset).splits, ["fold"]);
    for row in [
        |v: u64| format!("{},{},{}", v % 9, v % 2, v % 5),
        |v| format!("{},{},{}", v % 9, v % 2, ["p", "q"][v as usize % 2]),
    ] {
        let numbers = customers("x,label,fold", row);
        let (dataset, said) = made(numbers.path(), "");
        let dataset = dataset.unwrap();
        assert!(dataset.manifest().splits().is_empty());
        assert_eq!(recipe(&dataset).feature_names(), ["x"]);
        assert!(
            said.contains("`fold` is not used for training: its name looks like a split"),
            "{said}"
        );
    }
}

#[test]
fn new_tables_are_converted_by_a_recipe_or_refused_by_name() {
    let folder = customers(COLUMNS, customer);
    let trained = made(folder.path(), &format!("--schema fill=mean {LABEL}")).0.unwrap();
    let by = format!("--recipe {}", trained.path().display());
    // Columns in another order, one more, no label: the rows mean the same.
    let moved = customers("city,income,plan,age,shoe", |v| {
        let row: Vec<String> = customer(v).split(',').map(str::to_string).collect();
        [&row[5], &row[3], &row[4], &row[2], "44"].map(|cell: &str| cell.to_string()).join(",")
    });
    let dataset = made(moved.path(), &by).0.unwrap();
    let bytes = |dataset: &Dataset| dataset.manifest().files["nodes/feat.arrow"].checksum.clone();
    assert_eq!(bytes(&dataset), bytes(&trained));
    assert_eq!((dataset.topology().num_edges(), dataset.manifest().num_classes), (1800, None));
    assert_eq!(recipe(&dataset).difference(&recipe(&trained)), None);
    let one = |columns: &str, cells: fn(u64) -> String, words: &str| {
        let new = customers(columns, cells);
        let (made, said) = made(new.path(), &format!("{by} {words}"));
        (made.map(|dataset| column(&dataset, 2)), said)
    };
    let [without, unseen, words]: [fn(u64) -> String; 3] =
        [|_| "1,pro,Rome".into(), |_| "1,2,gold,Rome".into(), |_| "old,2,pro,Rome".into()];
    let all = "age,income,plan,city";
    for (columns, cells, expected) in [
        ("income,plan,city", without, "has no column `age`, which is a feature of the recipe"),
        (
            all,
            unseen,
            "column `plan`: `gold`: not a category that training saw: pass --schema unseen=other",
        ),
        (all, words, "column `age`: expected numbers, as in the table of the recipe"),
    ] {
        let message = one(columns, cells, "").0.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    let blank = by_recipe(&trained, "age,income,plan,city", |_| ",2,pro,Rome".into(), "").unwrap();
    let ages = column(&blank, 0);
    assert!(
        ages.iter().all(|age| age.abs() < 1e-6),
        "the mean stands for each, without any value in the column"
    );
    let cells: fn(u64) -> String =
        |v| format!("{},200000,{},Rome", 30 + v % 9, if v == 0 { "gold" } else { "basic" });
    let (plans, said) = one("age,income,plan,city", cells, "--schema unseen=other");
    assert_eq!(plans.unwrap()[..3], [0.0, 1.0, 1.0]);
    assert!(said.contains("column `income` has the mean 200000"), "{said}");
    // A dataset converted without the recipe has another meaning, and the difference is reported.
    let other = made(moved.path(), "--label-column none").0.unwrap();
    let difference = recipe(&other).difference(&recipe(&trained)).unwrap();
    assert!(
        difference.contains("`shoe` is a feature here, but was not in training"),
        "{difference}"
    );
    let renamed = customers(COLUMNS, |v| customer(v).replace("pro", "gold"));
    let difference =
        recipe(&made(renamed.path(), LABEL).0.unwrap()).difference(&recipe(&trained)).unwrap();
    assert!(difference.contains("`plan` has other categories, or another scale"), "{difference}");
}

/// The dataset of a new table with these columns, by the recipe of `trained`, in whose folder it is
/// made.
fn by_recipe(
    trained: &Dataset,
    columns: &str,
    row: impl Fn(u64) -> String,
    words: &str,
) -> Result<Dataset, String> {
    let folder = tempfile::tempdir_in(trained.path().parent().unwrap()).unwrap().keep();
    write_customers(&folder, columns, row);
    made(&folder, &format!("--recipe {} {words}", trained.path().display())).0
}

#[test]
fn a_new_table_need_not_have_every_class() {
    let of_jobs = customers("age,job", |v| {
        format!("{},{}", v % 50, ["baker", "smith", "tailor"][v as usize % 3])
    });
    let jobs = made(of_jobs.path(), "--label-column job").0.unwrap();
    let of_numbers = customers("age,job", |v| format!("{},{}", v % 50, v % 3));
    let numbers = made(of_numbers.path(), "--label-column job").0.unwrap();
    for (trained, labels, names) in [
        (
            &jobs,
            ["smith", "baker", ""],
            Some(["baker", "smith", "tailor"].map(str::to_string).to_vec()),
        ),
        (&numbers, ["1", "0", "-1"], None),
    ] {
        // The last class is missing, or all but one.
        for few in 0..2 {
            let row = |v: u64| format!("{},{}", v % 50, labels[(v as usize % 3).max(few)]);
            let new = by_recipe(trained, "age,job", row, "").unwrap();
            assert_eq!(new.labels().unwrap()[few..3], [1, 0, -1][few..], "{few}");
            assert_eq!(
                (new.manifest().num_classes, &new.manifest().class_names),
                (Some(3), &names),
                "{few}"
            );
            // A dataset made by a recipe passes the recipe on.
            let next = by_recipe(&new, "age", |v| (v % 50).to_string(), "").unwrap();
            assert_eq!(next.manifest().num_classes, None);
            let kept = |dataset: &Dataset| {
                (recipe(dataset).classes, recipe(dataset).label_shape, recipe(dataset).label)
            };
            assert_eq!(kept(&next), kept(trained));
        }
    }
    let blank = by_recipe(&numbers, "age,job", |v| format!("{},", v % 50), "").unwrap();
    assert_eq!(
        (blank.manifest().num_classes, recipe(&blank).label_shape),
        (None, recipe(&numbers).label_shape)
    );
    let other =
        |words: &str| by_recipe(&numbers, "age,job", |v| format!("{},{}", v % 50, v % 4), words);
    let told = other("").unwrap_err();
    assert!(
        told.contains("row 3")
            && told.contains("3 is not a class of the recipe: pass --schema unseen=other"),
        "{told}"
    );
    let taken = other("--schema unseen=other").unwrap();
    assert_eq!(
        (taken.labels().unwrap()[..4].to_vec(), taken.manifest().num_classes),
        (vec![0, 1, 2, -1], Some(3))
    );
    let strings = |v: u64| format!("{},{}", v % 50, ["a", "b"][v as usize % 2]);
    let told = by_recipe(&numbers, "age,job", strings, "").unwrap_err();
    assert!(
        told.contains("column `job`: expected numbers, as in the table of the recipe"),
        "{told}"
    );
}

#[test]
fn labels_of_a_new_table_have_the_shape_of_the_recipe() {
    let of_prices = customers("rooms,price", |v| format!("{},{}.25", v % 5, 1000 + v * 37 % 901));
    let prices = made(of_prices.path(), "--label-column price").0.unwrap();
    let whole = by_recipe(&prices, "rooms,price", |v| format!("{},{}", v % 5, 10 * v), "").unwrap();
    assert_eq!(whole.numeric_labels().unwrap()[..3], [0.0, 10.0, 20.0]);

    let three = |v: u64, bits: [u64; 3]| format!("{},{},{},{}", v % 50, bits[0], bits[1], bits[2]);
    let columns = "age,likes_a,likes_b,likes_c";
    let single = |v: u64| three(v, [0, 1, 2].map(|class| u64::from(v % 3 == class)));
    let of_sets = customers(columns, |v| three(v, [v % 2, v / 2 % 2, v / 4 % 2]));
    let sets = made(of_sets.path(), "--label-column likes_*").0.unwrap();
    let each = by_recipe(&sets, columns, single, "").unwrap();
    assert!(
        each.manifest().multi_label && each.manifest().num_classes == Some(3),
        "one class in each row by chance"
    );
    let blank = by_recipe(&sets, columns, |v| format!("{},,,", v % 50), "").unwrap();
    assert_eq!(blank.manifest().num_classes, None, "no label yet is not a label of no class");

    let of_classes = customers(columns, single);
    let classes = made(of_classes.path(), "--label-column likes_*").0.unwrap();
    let lacking = |v| if v == 1 { three(v, [0, 0, 0]) } else { three(v, [1, 0, 0]) };
    let lacking = by_recipe(&classes, columns, lacking, "").unwrap();
    assert_eq!(
        (lacking.labels().unwrap()[..3].to_vec(), lacking.manifest().num_classes),
        (vec![0, -1, 0], Some(3))
    );
    let empty = |v| if v == 1 { format!("{},,0,", v % 50) } else { three(v, [0, 1, 0]) };
    let lacking = by_recipe(&classes, columns, empty, "").unwrap();
    assert_eq!(lacking.labels().unwrap()[..3], [1, -1, 1]);
    let lacking = by_recipe(&sets, columns, empty, "").unwrap().multi_labels().unwrap();
    assert_eq!([0, 1].map(|v| lacking.num_known(v)), [Some(3), Some(1)]);
    let refused = by_recipe(&classes, columns, |v| three(v, [1, v % 2, 0]), "").unwrap_err();
    assert!(refused.contains("expected a single 1 among zeros, as in the recipe"), "{refused}");
}

#[test]
fn strings_of_the_recipe_are_strings_in_a_new_table() {
    let code = |v: u64| ["007", "7", "A1"][v as usize % 3];
    let table = customers("age,code,team", |v| {
        format!("{},{},{}", v % 50, code(v), ["01", "a", "x"][v as usize % 3])
    });
    let trained = made(table.path(), "--label-column team --schema encode=code=onehot").0.unwrap();
    assert_eq!(recipe(&trained).feature_names(), ["age", "code=007", "code=7", "code=A1"]);
    let new =
        by_recipe(&trained, "age,code,team", |v| format!("{},{},01", v % 50, code(v % 2)), "")
            .unwrap();
    assert_eq!(
        [1, 2, 3].map(|at| column(&new, at)[..2].to_vec()).concat(),
        [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    );
    assert_eq!(
        (new.labels().unwrap()[..3].to_vec(), new.manifest().num_classes),
        (vec![0; 3], Some(3))
    );
}
