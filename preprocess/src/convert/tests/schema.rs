//! The schema that is printed is the one that converts the same.

use super::bad_input::message;

use super::*;

/// The printed schema of the tables in `folder`, read by `words`.
fn printed(folder: &Path, words: &str) -> String {
    let mut options = options(words);
    options.read.nodes = Some(folder.join("nodes.csv")).filter(|path| path.exists());
    decide(&folder.join("edges.csv"), &options, &NoProgress).unwrap().1.to_toml()
}

/// Checks that the tables in `folder`, converted by `words`, become the same dataset with the
/// printed schema, which is then printed once more. Returns it.
fn round_trip(folder: &TempDir, words: &str) -> String {
    let folder = folder.path();
    let schema = printed(folder, words);
    let file = folder.join("schema.toml");
    fs::write(&file, &schema).unwrap();
    let by_schema = format!("--schema {} {words}", file.display());
    let keys = |text: &str| {
        text.lines().filter(|line| !line.starts_with('#')).map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(keys(&printed(folder, &by_schema)), keys(&schema));
    let [dataset, by_schema] = [words, &by_schema].map(|words| {
        let mut options = options(words);
        options.read.nodes = Some(folder.join("nodes.csv")).filter(|path| path.exists());
        let out = tempfile::tempdir_in(folder).unwrap().keep();
        convert(&folder.join("edges.csv"), &out.join("ds"), &options, false, &NoProgress).unwrap().0
    });
    let content = |dataset: &Dataset| {
        let mut manifest = dataset.manifest().clone();
        let schema = std::mem::take(&mut manifest.provenance).schema;
        if let Some(recipe) = &mut manifest.recipe {
            // Columns that are named need no further reason.
            recipe.left_out.iter_mut().for_each(|column| column.why.clear());
        }
        (schema, serde_json::to_value(manifest).unwrap())
    };
    assert_eq!(content(&dataset), content(&by_schema));
    schema
}

#[test]
fn the_printed_schema_converts_a_spreadsheet_the_same() {
    let row = |id: u32| {
        let (city, split) = (["Rom", "Bonn", "Pau"][id as usize % 3], ["train", "valid", "test"]);
        format!(
            "u{id};{}.{},5;{:02}/{:02}/2024;{city};{};{};{}\n",
            id,
            100 + id,
            1 + id % 28,
            1 + id % 12,
            ["gold", "tin"][id as usize % 2],
            split[id as usize % 3],
            1000 + 7 * id
        )
    };
    let nodes = "id;income;since;city;label;split;account_no\n".to_string()
        + &(1..60).map(row).collect::<String>();
    let edges: String = (1..59).map(|id| format!("u{id};u{};{id},25\n", id + 1)).collect();
    let folder = folder(&format!("from;to;amount\n{edges}"), &nodes);
    let schema = round_trip(&folder, "--directed");
    for line in [
        "header = \"yes\"\ndelimiter = \";\"\ndecimal = \"comma\"\ndate-order = \"dmy\"\n\
         id-type = \"text\"\nsource-column = \"from\"\ntarget-column = \"to\"\n\
         edge-columns = [\"amount\"]\nbipartite = \"no\"\nid-column = \"id\"\n\
         label-column = [\"label\"]\nlabel-kind = \"class\"\nunlabelled = \"none\"\n\
         split-column = [\"split\"]\nfeature-columns = [\"income\",\"since\",\"city\"]\n\
         encode = [\"city=onehot\"]\ncase = \"keep\"\nscale = \"standard\"\n",
        "# left out: account_no: its name looks like an identifier\n",
    ] {
        assert!(schema.contains(line), "{schema}");
    }
    // An edited schema takes effect; KEY=VALUE wins over it.
    let file = folder.path().join("schema.toml");
    fs::write(&file, schema.replace("city=onehot", "city=code")).unwrap();
    let by_file = format!("--schema {}", file.display());
    let width = |words: &str| rows(&converted(&folder, words).0)[0].len();
    assert_eq!(width(&by_file), 3);
    assert_eq!(width(&format!("--schema encode=city=onehot {by_file}")), 5);
    assert_eq!(width(&format!("{by_file} --feature-columns income --schema encode=auto")), 1);
}

#[test]
fn the_printed_schema_converts_other_tables_the_same() {
    let edges = "src,dst,w\n1,2,0.5\n2,3,1\n3,1,2\n4,1,1\n";
    for (edges, nodes, words, part) in [
        (
            edges,
            "id,y,a,b\n1,0,1.5,x\n2,1,,x\n3,-1,2,y\n4,2,1,z\n",
            "--schema fill=mean",
            "fill = \"mean\"",
        ),
        (
            edges,
            "id,likes_a,likes_b,a\n1,0,1,3\n2,1,1,4\n3,0,0,5\n4,1,0,6\n",
            "--label-column likes_* --schema edge-weights=w",
            "label-column = [\"likes_a\",\"likes_b\"]",
        ),
        (
            edges,
            "id,price,tier,a\n1,0.5,x,3\n2,1.5,X,4\n3,2.5,y,5\n4,1,y,6\n5,1,x,7\n6,1,y,7\n",
            "--label-column price --schema case=fold --schema encode=a=none",
            "encode = [\"tier=onehot\",\"a=none\"]",
        ),
        // The tables differ in their marks.
        (edges, "id;y;a\n1;0;1,5\n2;1;2,5\n3;-1;3\n4;2;4\n", "", "# delimiter: detected"),
        (
            "1 2 7\n2 3 8\n3 1 9\n",
            "id,label,a\n1,0,1\n2,1,2\n3,0,5\n",
            "--schema header=no --edge-columns t",
            "header = \"no\"",
        ),
        (
            edges,
            "id,label,a,train\n1,0,1,1\n2,1,2,0\n3,0,5,0\n4,0,5,1\n",
            "--random-split 0.5,0.25,0.25 --split-column train",
            "# left out: train",
        ),
    ] {
        let folder = folder(edges, nodes);
        let schema = round_trip(&folder, words);
        assert!(schema.contains(part), "{schema}");
    }
}

#[test]
fn inputs_without_tables_have_the_keys_that_are_given() {
    let (_folder, path) = file("edges.txt", "1 2 7\n2 3 8\n");
    let schema = |words: &str| decide(&path, &options(words), &NoProgress).unwrap().1.to_toml();
    assert_eq!(schema(""), "");
    assert_eq!(schema("--edge-columns t"), "edge-columns = [\"t\"]\n");
    let told = message(&path, &options("--schema encode=auto"));
    assert!(told.contains("--schema encode has no effect on this input"), "{told}");
}
