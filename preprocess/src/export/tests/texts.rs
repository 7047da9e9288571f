//! METIS, Matrix Market and edge lists.

use std::io::Read;

use super::*;

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap().lines().map(str::to_string).collect()
}

fn numbers(line: &str) -> Vec<u64> {
    line.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// {smaller, larger} and the sum of the weights of all edges between the two, halved where they go
/// in both directions.
fn oracle_pairs(example: &Example) -> BTreeMap<(u32, u32), f64> {
    let mut sums: BTreeMap<(u32, u32), [Option<f64>; 2]> = BTreeMap::new();
    for (&(u, v), &weight) in example.edges.iter().zip(&example.weights) {
        if u != v {
            let sum = &mut sums.entry((u.min(v), u.max(v))).or_default()[usize::from(u < v)];
            *sum = Some(sum.unwrap_or(0.0) + f64::from(weight));
        }
    }
    let weight = |sums: [Option<f64>; 2]| match sums {
        [Some(back), Some(forth)] => (back + forth) / 2.0,
        [one, other] => one.or(other).unwrap_or(0.0),
    };
    sums.into_iter().map(|(pair, sums)| (pair, weight(sums))).collect()
}

#[test]
fn oracle_metis_is_the_undirected_simple_graph() {
    for (kind, n, m) in [
        (Kind::Bare, 60, 400),
        (Kind::Single, 60, 400),
        (Kind::Bare, 9, 0),
        (Kind::Single, 1000, 20_000),
    ] {
        let example = example(kind, n, m, 11);
        let weighted = kind != Kind::Bare;
        let pairs = oracle_pairs(&example);
        let path = example.write(ExportFormat::Metis, "g.graph");
        let mut text = lines(&path);
        let factor = match weighted {
            true => text
                .remove(0)
                .strip_prefix("% edge weights are multiplied by ")
                .unwrap()
                .parse()
                .unwrap(),
            false => 1.0,
        };
        let format = if weighted { " 001" } else { "" };
        assert_eq!(text[0].trim_end(), format!("{n} {}{format}", pairs.len()));
        assert_eq!(text.len(), n + 1);
        let mut found = BTreeMap::new();
        for (v, line) in text[1..].iter().enumerate() {
            let numbers = numbers(line);
            let neighbours: Vec<(u64, u64)> = match weighted {
                true => numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
                false => numbers.iter().map(|&u| (u, 1)).collect(),
            };
            assert!(
                neighbours.windows(2).all(|pair| pair[0].0 < pair[1].0),
                "ascending, each once"
            );
            for (u, weight) in neighbours {
                assert!(found.insert((v as u32, u as u32 - 1), weight).is_none());
            }
        }
        let expected: BTreeMap<(u32, u32), u64> = pairs
            .iter()
            .flat_map(|(&(u, v), &sum)| {
                let weight = if weighted { ((sum * factor).round() as u64).max(1) } else { 1 };
                [((u, v), weight), ((v, u), weight)]
            })
            .collect();
        assert!(found == expected, "{n} vertices, {m} edges");
        let sum: u64 = found.values().sum();
        assert!(!weighted || (1 << 29..1 << 31).contains(&sum), "as large as 32 bits allow: {sum}");
    }
}

#[test]
fn a_metis_file_with_weights_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, text) in [
        ("both.graph", "4 2 011 2\n5 0 2 7\n1 2 1 7 3 4\n9 9 2 4\n0 3\n"),
        ("loads.graph", "3 1 010 1\n8 2\n6 1\n4\n"),
        ("edges.graph", "2 1 001\n2 3\n1 3\n"),
    ] {
        fs::write(at(name), text).unwrap();
        let out = at(&format!("{name}.ds"));
        let (dataset, _) =
            convert(&at(name), &out, &ConvertOptions::default(), false, &NoProgress).unwrap();
        let (told, options) =
            (Notes::default(), ExportOptions { force: true, ..Default::default() });
        export(&dataset, ExportFormat::Metis, &at("again"), &options, &told).unwrap();
        let again: Vec<String> =
            lines(&at("again")).iter().map(|line| line.trim_end().to_string()).collect();
        assert_eq!(again, text.lines().collect::<Vec<_>>(), "{name}");
        let told = told.lines().join("\n");
        assert!(!told.contains("vertex_weight"), "nothing is left out: {told}");
    }
}

#[test]
fn weights_of_a_metis_file_are_whole_and_what_it_cannot_hold_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let converted = |name: &str, text: &str| {
        fs::write(at(name), text).unwrap();
        let read = crate::read::options::ReadOptions { keep_ids: true, ..Default::default() };
        let options = ConvertOptions { read, ..Default::default() };
        convert(&at(name), &at(&format!("{name}.ds")), &options, false, &NoProgress).unwrap().0
    };
    let edges = "src,dst,weight\n0,1,0.25\n1,0,0.25\n1,2,7.6\n2,3,0\n3,3,5\n3,4,\n";
    let told = Notes::default();
    export(
        &converted("g.csv", edges),
        ExportFormat::Metis,
        &at("g.graph"),
        &ExportOptions::default(),
        &told,
    )
    .unwrap();
    let told = told.lines().join("\n");
    for expected in [
        "the 6 edges of g.csv.ds are 4 pairs of vertices; 1 self-loop dropped",
        "edge weights are multiplied by 67108864 and rounded",
        "2 edge weights of 0 or missing: METIS takes numbers from 1",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let again = converted("g.graph", &fs::read_to_string(at("g.graph")).unwrap());
    let weights = again.edge_column("weight").unwrap();
    assert_eq!(
        weights.as_slice::<i64>().unwrap(),
        [1 << 24, 1 << 24, 510_027_360, 510_027_360, 1, 1, 1 << 26, 1 << 26]
    );
    let negative = converted("n.csv", "src,dst,weight\n0,1,-2\n1,2,3\n");
    let refused = export(
        &negative,
        ExportFormat::Metis,
        &at("n.graph"),
        &ExportOptions::default(),
        &NoProgress,
    );
    assert!(refused.unwrap_err().to_string().contains("an edge has the weight -2"));
}

#[test]
fn oracle_matrix_market_has_every_edge() {
    for kind in [Kind::Bare, Kind::Single] {
        let example = example(kind, 70, 500, 5);
        let text = lines(&example.write(ExportFormat::Mtx, "g.mtx"));
        let field = if kind == Kind::Bare { "pattern" } else { "real" };
        assert_eq!(text[0], format!("%%MatrixMarket matrix coordinate {field} general"));
        assert_eq!(text[2], "70 70 500");
        assert_eq!(text.len(), 503);
        for ((line, &(u, v)), &weight) in text[3..].iter().zip(&example.edges).zip(&example.weights)
        {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!((words[0], words[1]), (&*(u + 1).to_string(), &*(v + 1).to_string()));
            match kind {
                Kind::Bare => assert_eq!(words.len(), 2),
                _ => assert_eq!(words[2].parse::<f32>().unwrap(), weight),
            }
        }
    }
}

#[test]
fn oracle_edge_lists_have_every_edge_by_each_name() {
    let single = example(Kind::Single, 5000, 150_000, 6);
    let multi = example(Kind::Multi, 50, 300, 6);
    let own = |v: u32| v.to_string();
    let number = |v: u32| (v * 3 + 7).to_string();
    let name = |v: u32| format!("vertex/{v}");
    let original = ExportOptions { original_ids: true, ..Default::default() };
    type ExportCase<'a> = (&'a Example, ExportOptions, &'a dyn Fn(u32) -> String);
    let cases: [ExportCase<'_>; 3] = [
        (&single, ExportOptions::default(), &own),
        (&single, original.clone(), &number),
        (&multi, original, &name),
    ];
    for (i, (example, options, name)) in cases.into_iter().enumerate() {
        let plain =
            fs::read_to_string(example.export(ExportFormat::Snap, &format!("{i}.txt"), &options))
                .unwrap();
        let (head, body): (Vec<&str>, Vec<&str>) =
            plain.lines().partition(|line| line.starts_with('#'));
        assert_eq!(head[1], format!("# Nodes: {} Edges: {}", example.n, example.edges.len()));
        let expected: Vec<String> =
            example.edges.iter().map(|&(u, v)| format!("{}\t{}", name(u), name(v))).collect();
        assert!(body == expected);
        let packed =
            fs::File::open(example.export(ExportFormat::Snap, &format!("{i}.txt.gz"), &options))
                .unwrap();
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert!(text == plain);
    }
}
