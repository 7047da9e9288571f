//! The meaning of values in tables: words for missing ones, spellings, amounts, and columns that
//! are suspicious.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, StringArray};

use super::recipes::{column, customers, recipe};
use super::*;

/// The dataset of the table, converted by `words`, after a line with each of `parts`.
fn taken(folder: &TempDir, words: &str, parts: &[&str]) -> Dataset {
    let (dataset, said) = made(folder.path(), words);
    let dataset = dataset.unwrap_or_else(|problem| panic!("{words}: {problem}"));
    for part in parts {
        assert!(said.contains(part), "{words}: {part}: {said}");
        let decisions = dataset.manifest().provenance.decisions.join("\n");
        assert!(decisions.contains(part), "{words}: {part}: {decisions}");
    }
    dataset
}

/// Plain customers: an age, and a class that it does not tell.
fn plain(v: u64) -> String {
    format!("{},{}", 18 + v * 7 % 50, v * 11 % 13 % 2)
}

#[test]
fn words_that_stand_for_missing_values_are_named_and_taken() {
    let income = |v: u64| match v % 9 {
        3 => "#N/A".to_string(),
        5 => "n.a.".to_string(),
        _ => (1000 + v).to_string(),
    };
    let debt = |v: u64| if v.is_multiple_of(5) { "-".to_string() } else { format!("{},5", v % 30) };
    let folder = customers("age,label,income,debt", |v| {
        format!("{},{},\"{}\"", plain(v), income(v), debt(v))
    });
    let line = "line 5: column `income`: `#N/A`: expected a number or a date, as in most rows: ";
    refused(
        &folder,
        "",
        &[
            line,
            "pass --schema na='#N/A,-,n.a.' --schema fill=mean if it means that a value is \
                 missing",
        ],
    );
    let words = "--schema na=#N/A,-,n.a. --schema fill=mean";
    let dataset = taken(&folder, words, &["commas before fractions"]);
    let names = ["age", "income", "income missing", "debt", "debt missing"];
    assert_eq!(recipe(&dataset).feature_names(), names);
    assert_eq!(recipe(&dataset).na, ["#N/A", "-", "n.a."]);
    assert_eq!(column(&dataset, 2)[..6], [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
    // A new table is read by the same words.
    let again = format!("--recipe {}", dataset.path().display());
    assert_eq!(column(&taken(&folder, &again, &[]), 1), column(&dataset, 1));
    // Words that begin below the first rows.
    let late = customers("age,label,x", |v| {
        format!("{},{}", plain(v), if v == 299 { "none yet".into() } else { v.to_string() })
    });
    refused(
        &late,
        "",
        &[
            "line 301: column `x`: `none yet`: expected a number",
            "pass --schema na='none yet' --schema fill=mean",
        ],
    );
    refused(&late, "--schema na=y=3", &["--schema na=y=3: there is no column `y`"]);
}

#[test]
fn numbers_that_stand_for_missing_values_are_noted_and_taken() {
    let income = |v: u64| if v.is_multiple_of(5) { -9999 } else { 20_000 + v as i64 };
    let folder = customers("age,label,income", |v| format!("{},{}", plain(v), income(v)));
    let note = "column `income` is -9999 in 60 of 300 rows, and from 20001 to 20299 in the others: \
                if -9999 means that the value is missing, pass --schema na=income=-9999 --schema \
                fill=mean";
    taken(&folder, "", &[note]);
    for words in [
        "--schema na=income=-9999 --schema fill=mean --schema scale=none",
        "--schema na=-9999 \
                                                                             --schema fill=mean \
                                                                             --schema scale=none",
    ] {
        let dataset = taken(&folder, words, &[]);
        assert_eq!(column(&dataset, 1)[0], 20_150.0, "{words}: the mean of the others");
    }
    // Equal values in a Parquet file.
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(1000..1300));
    let incomes: ArrayRef = Arc::new(Int64Array::from_iter_values((0..300).map(income)));
    let cities: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..300).map(|v| ["Rome", "-", "Oslo"][v % 3])));
    let path = folder.path().join("nodes.parquet");
    write_parquet(&path, vec![("id", ids), ("income", incomes), ("city", cities)]);
    let missing = "--schema na=income=-9999,- --schema fill=mean";
    let words = format!(
        "--nodes {} --label-column none {missing} --schema \
                         scale=none",
        path.display()
    );
    let dataset = taken(&folder, &words, &[]);
    assert_eq!(
        recipe(&dataset).feature_names(),
        ["income", "income missing", "city=Oslo", "city=Rome"]
    );
    assert_eq!((column(&dataset, 0)[0], column(&dataset, 1)[0]), (20_150.0, 1.0));
}

#[test]
fn spellings_of_one_class_or_category_are_asked_about() {
    let folder = customers("age,churned,city", |v| {
        let city = ["Bonn", "Rome", "BONN", "Oslo"][v as usize % 4];
        format!("{},{},{city}", v % 50, ["Yes", "no", "NO", "Yes", "YES"][v as usize % 5])
    });
    let question = "column `churned` has `NO` and `no`, column `city` has `BONN` and `Bonn`, which \
                    differ only in case or blanks: pass --schema case=fold to take such strings \
                    for one, or --schema case=keep for several";
    refused(&folder, "--label-column churned", &[question]);
    let dataset = taken(&folder, "--label-column churned --schema case=fold", &[]);
    assert_eq!(dataset.manifest().class_names.as_deref().unwrap(), ["NO", "Yes"]);
    assert_eq!(dataset.labels().unwrap()[..5], [1, 0, 0, 1, 1]);
    assert_eq!(recipe(&dataset).feature_names(), ["age", "city=BONN", "city=Oslo", "city=Rome"]);
    let kept = taken(&folder, "--label-column churned --schema case=keep", &[]);
    assert_eq!(kept.manifest().num_classes, Some(4));
    // A new table may have other spellings.
    let new = customers("age,churned,city", |v| {
        format!("{},{},{}", v % 50, ["yes", "no"][v as usize % 2], "bonn")
    });
    let again = taken(&new, &format!("--recipe {}", dataset.path().display()), &[]);
    assert_eq!(again.manifest().class_names.as_deref().unwrap(), ["NO", "Yes"]);
    assert_eq!((again.labels().unwrap()[..2].to_vec(), column(&again, 1)[0]), (vec![1, 0], 1.0));
}

#[test]
fn columns_that_give_the_label_away_are_noted_and_can_be_left_out() {
    let folder = customers("age,tier,tier_code,label", |v| {
        let class = v * 11 % 13 % 3;
        let (tier, label) =
            (["gold", "tin", "lead"][class as usize], ["a", "b", "c"][class as usize]);
        format!("{},{tier},{},{label}", v % 50, 3 + 2 * class)
    });
    let notes = [
        "note: ",
        "column `tier` gives the label `label` away: each of its values has one class. If new \
         vertices do not have it, leave it out with \
         --schema encode=tier=none",
        "column `tier_code` gives the label `label` away",
    ];
    taken(&folder, "", &notes);
    let left_out = "`tier_code` is not used for training: --schema encode=tier*=none leaves it out";
    let dataset = taken(&folder, "--schema encode=tier*=none", &[left_out]);
    assert_eq!(recipe(&dataset).feature_names(), ["age"]);
    let (_, said) = made(customers("age,label", plain).path(), "");
    assert!(!said.contains("gives the label"), "{said}");
}

#[test]
fn labels_that_are_names_or_have_an_odd_number_are_asked_about() {
    let named = customers("age,name", |v| format!("{},person {v}", v % 50));
    let question = "column `name` has 300 different strings in 300 rows: a name and not a class? \
                    Pass another column with --label-column, or --schema label-kind=class if each \
                    is a class";
    refused(&named, "--label-column name", &[question]);
    let dataset = taken(&named, "--label-column name --schema label-kind=class", &[]);
    assert_eq!(dataset.manifest().num_classes, Some(300));
    refused(
        &named,
        "--label-column customer_id",
        &["column `customer_id` holds the ids of the edges"],
    );
    let words = "--id-column customer_id --label-column customer_id";
    refused(&named, words, &["holds the ids: name another with --label-column"]);
    let odd = customers("age,label", |v| {
        format!("{},{}", v % 50, if v.is_multiple_of(10) { -99 } else { v as i64 % 3 })
    });
    let question = "column `label` holds -99 in 30 rows, and no other negative number: pass \
                    --schema unlabelled=-99";
    refused(&odd, "", &[question]);
    assert_eq!(taken(&odd, "--schema unlabelled=-99", &[]).manifest().num_classes, Some(3));
    let skewed = customers("age,price", |v| {
        format!("{},{}.5", v % 50, if v.is_multiple_of(50) { 90_000 } else { 100 + v })
    });
    let notes =
        ["the label `price` is skewed: ", "consider a column of its logarithm as the label"];
    taken(&skewed, "--label-column price", &notes);
    let both = customers("heating,area,price", |v| {
        format!("{},{},{}.5", ["gas", "oil"][v as usize % 2], v % 70, v)
    });
    let question = "which column is the label? `heating` has `gas`, `oil`; `area` has ";
    refused(&both, "", &[question]);
    let many: Vec<String> = (0..20).map(|at| format!("go{at}")).collect();
    let sets = customers(&many.join(","), |v| {
        (0..20).map(|at| ["0", "1", ""][(v as usize + at) % 3]).collect::<Vec<_>>().join(",")
    });
    refused(&sets, "", &["; `go11` has `", "; and 8 more: pass --label-column COLUMN"]);
}

#[test]
fn amounts_and_times_with_zones_are_numbers_or_refused() {
    let folder = customers("label,price,since", |v| {
        let (label, day, hour) = (v * 11 % 13 % 2, 1 + v % 28, v % 10);
        format!(
            "{label},\"€ {},{:03}.50\",2025-03-{day:02} 1{hour}:00 +01:00",
            1 + v % 40,
            v * 7 % 999
        )
    });
    let said = [
        "amounts of money, read without their sign: price (€)",
        "dates, read as days since 1970-01-01: since",
    ];
    let dataset = taken(&folder, "--schema scale=none", &said);
    assert_eq!((column(&dataset, 0)[1], column(&dataset, 1)[0]), (2007.5, 20_148.375));
    let unknown = customers("label,since", |v| {
        format!("{},2025-03-{:02} 10:00 JST", v * 11 % 13 % 2, 1 + v % 28)
    });
    let zone = "line 2: column `since`: `2025-03-01 10:00 JST`: its time or time zone is unknown";
    refused(&unknown, "", &[zone, "--schema encode=since=none"]);
    assert!(
        taken(&unknown, "--schema encode=since=none --features random:4", &[])
            .manifest()
            .features
            .is_some()
    );
    let mixed = customers("label,price", |v| {
        format!("{},{} {}.25", v * 11 % 13 % 2, if v == 8 { '$' } else { '€' }, v)
    });
    refused(
        &mixed,
        "",
        &["line 10: column `price`: `$ 8.25`: expected an amount in €, as in other rows"],
    );
}

#[test]
fn numbers_in_a_column_called_like_a_split_are_asked_about() {
    let folder = customers("age,label,split", |v| format!("{},{}", plain(v), v % 3));
    let question = "column `split` holds the numbers 0 to 2, and its name looks like a split: write train, valid and test in it, or pass \
                    --random-split 0.6,0.2,0.2 to draw splits, or --split-column none if it is a \
                    feature";
    refused(&folder, "", &[question]);
    refused(&folder, "--random-split auto", &[question]);
    let drawn = taken(&folder, "--random-split 0.6,0.2,0.2", &["`split` is not used for training"]);
    assert_eq!(drawn.split(Split::Train).unwrap().len(), 180);
    let feature = taken(&folder, "--split-column none", &[]);
    assert_eq!(recipe(&feature).feature_names(), ["age", "split"]);
}
