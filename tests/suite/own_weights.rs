//! Weights that came with the graph, from the raw file to the parts: recomputed here from the file
//! itself.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use gsplit_store::Dataset;
use serde_json::Value;

use crate::support::{errors, fails, gsplit, json, ok, refused, scratch};

/// A graph as written in METIS's format 011: weights of each vertex, and neighbours with weights.
struct MetisFile {
    weights: Vec<Vec<u64>>,
    pairs: BTreeMap<(usize, usize), u64>,
}

impl MetisFile {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text
            .lines()
            .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<u64>>());
        let header = lines.next().unwrap();
        assert_eq!(header[2], 11);
        let constraints = header[3] as usize;
        let (mut weights, mut pairs) = (Vec::new(), BTreeMap::new());
        for (v, line) in lines.enumerate() {
            weights.push(line[..constraints].to_vec());
            for pair in line[constraints..].chunks(2) {
                let u = pair[0] as usize - 1;
                let before = pairs.insert((u.min(v), u.max(v)), pair[1]);
                assert!(before.is_none_or(|before| before == pair[1]));
            }
        }
        assert_eq!(pairs.len() as u64, header[1]);
        Self { weights, pairs }
    }

    /// Heaviest part over the mean, for each weight.
    fn imbalance(&self, parts: &[u16], count: usize) -> Vec<f64> {
        let of = |c: usize| {
            let mut loads = vec![0; count];
            parts
                .iter()
                .zip(&self.weights)
                .for_each(|(&part, weights)| loads[part as usize] += weights[c]);
            *loads.iter().max().unwrap() as f64 * count as f64 / loads.iter().sum::<u64>() as f64
        };
        (0..self.weights[0].len()).map(of).collect()
    }

    fn cut(&self, parts: &[u16]) -> u64 {
        self.pairs
            .iter()
            .filter(|((u, v), _)| parts[*u] != parts[*v])
            .map(|(_, weight)| weight)
            .sum()
    }
}

/// Writes a ring of groups that are tied within, in format 011 with two weights a vertex.
fn write_metis(path: &Path) {
    let (n, group) = (480usize, 12);
    let mut pairs = BTreeMap::new();
    for v in 0..n {
        for step in [1, 2, 5] {
            let u = v / group * group + (v + step) % group;
            pairs.insert((u.min(v), u.max(v)), 5 + (u * v % 4) as u64);
        }
        let next = (v + group) % n;
        pairs.insert((v.min(next), v.max(next)), 1 + (v % 3) as u64);
    }
    pairs.retain(|(u, v), _| u != v);
    let mut text = format!("{n} {} 011 2\n", pairs.len());
    for v in 0..n {
        write!(text, "{} {}", 1 + v * v % 7, if v < n / 2 { 1 } else { 9 }).unwrap();
        for ((a, b), weight) in pairs.iter().filter(|((a, b), _)| *a == v || *b == v) {
            write!(text, " {} {weight}", if *a == v { b } else { a } + 1).unwrap();
        }
        text.push('\n');
    }
    fs::write(path, text).unwrap();
}

fn parts_of(folder: &Path, made: &Value) -> Vec<u16> {
    let file =
        folder.join("ds/partition").join(made["key"].as_str().unwrap()).join("assignment.npy");
    let bytes = fs::read(file).unwrap();
    bytes[128..].chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
}

/// Whether the report's figures of the weights in `file` are right for the stored parts.
fn check_report(file: &MetisFile, folder: &Path, made: &Value) -> Vec<f64> {
    let (parts, own) = (parts_of(folder, made), &made["own_weights"]);
    let imbalance = file.imbalance(&parts, made["parts"].as_u64().unwrap() as usize);
    for (c, found) in imbalance.iter().enumerate() {
        let said = own["vertices"][format!("vertex_weight.{}", c + 1)].as_f64().unwrap();
        assert!((said - found).abs() < 1e-9, "{said} {found}: {made}");
    }
    assert_eq!(own["cut"].as_f64(), Some(file.cut(&parts) as f64), "{made}");
    assert_eq!(own["total"].as_f64(), Some(file.pairs.values().sum::<u64>() as f64));
    imbalance
}

#[test]
fn both_weights_of_a_metis_file_are_balanced_and_its_edges_cut_by_theirs() {
    let folder = &*scratch();
    write_metis(&folder.join("g.graph"));
    let file = MetisFile::read(&folder.join("g.graph"));
    ok(folder, "convert g.graph --out ds");
    let partition = |more: &str| json(folder, format!("partition ds --parts 4 {more}"));

    let unit = partition("--weights unit");
    assert_eq!(
        unit["own_weights"]["unused"].to_string(),
        r#"["vertex_weight.1","vertex_weight.2","weight"]"#
    );
    let ignored = check_report(&file, folder, &unit);
    assert!(ignored[1] > 1.3, "these weights balance themselves: {ignored:?}");
    let said = gsplit(folder, "partition ds --parts 4 --weights unit --force");
    let (said, printed) = (errors(&said), String::from_utf8(said.stdout).unwrap());
    let notes: Vec<&str> = said.lines().filter(|line| line.contains("not used")).collect();
    assert!(notes.len() == 1 && notes[0].contains("--weights own"), "{said}");
    assert!(
        printed.contains("own heaviest / mean") && printed.contains("own weight of the cut"),
        "{printed}"
    );

    for method in ["multilevel", "metis"] {
        let own = partition(&format!("--weights own --partitioner {method}"));
        assert_eq!(own["key"], format!("{method}-own-k4"));
        assert!(own["own_weights"].get("unused").is_none(), "{own}");
        let balanced = check_report(&file, folder, &own);
        assert!(
            balanced.iter().all(|&imbalance| imbalance <= 1.03 + 1e-9),
            "{method}: {balanced:?}"
        );
        let imbalance = own["imbalance"].as_f64().unwrap();
        assert!((imbalance - balanced.iter().copied().fold(0.0, f64::max)).abs() < 1e-9, "{own}");
        // Weights may be used for the cut and not for the balance, and the other way round.
        let cut_alone =
            partition(&format!("--weights own --balance vertices --partitioner {method}"));
        check_report(&file, folder, &cut_alone);
        assert!(cut_alone["balance"]["vertices"].as_f64() <= Some(1.03 + 1e-9), "{cut_alone}");
        assert_eq!(
            cut_alone["own_weights"]["unused"].to_string(),
            r#"["vertex_weight.1","vertex_weight.2"]"#
        );
        let balanced_alone =
            partition(&format!("--weights unit --balance own,vertices --partitioner {method}"));
        assert_eq!(balanced_alone["own_weights"]["unused"].to_string(), r#"["weight"]"#);
        assert!(balanced_alone["imbalance"].as_f64() <= Some(1.06), "{balanced_alone}");
        check_report(&file, folder, &balanced_alone);
    }
    check_report(&file, folder, &partition("--weights own --partitioner range"));
    check_report(&file, folder, &partition("--partitioner random"));
    // Parts that another tool made are measured in the weights too.
    let parts: String = (0..480).map(|v| format!("{}\n", v % 4)).collect();
    fs::write(folder.join("g.graph.part.4"), parts).unwrap();
    check_report(&file, folder, &json(folder, "partition ds --import g.graph.part.4"));
    ok(folder, "verify ds");
}

#[test]
fn a_cut_goes_where_edges_are_light() {
    let folder = &*scratch();
    // A ring with four light edges, sixteen vertices apart, from the seventh on.
    let n = 64;
    let weight = |v: usize| if v % 16 == 7 { 1 } else { 100 };
    let mut text = format!("{n} {n} 1\n");
    for v in 0..n {
        let (before, after) = ((v + n - 1) % n, (v + 1) % n);
        writeln!(text, "{} {} {} {}", before + 1, weight(before), after + 1, weight(v)).unwrap();
    }
    fs::write(folder.join("ring.graph"), text).unwrap();
    ok(folder, "convert ring.graph --out ds");
    for method in ["multilevel", "metis"] {
        let made =
            json(folder, format!("partition ds --parts 4 --weights own --partitioner {method}"));
        assert_eq!(
            (made["own_weights"]["cut"].as_f64(), made["imbalance"].as_f64()),
            (Some(4.0), Some(1.0)),
            "{made}"
        );
    }
    let none = "--balance own: ds has no such weights";
    refused(folder, "partition ds --parts 4 --balance own --weights unit", 2, none);
}

#[test]
fn weights_of_tables_follow_their_vertices_and_are_added_up_where_edges_merge() {
    let folder = &*scratch();
    // Ids with gaps, rows in an order of their own, edges repeated and in both directions.
    let ids: Vec<u64> = (0..200).map(|i| 1000 + 7 * i).collect();
    const LOADS: [fn(u64) -> u64; 2] = [|id| id % 13, |id| 1 + id % 5];
    let mut nodes = "id,age,cpu,memory\n".to_string();
    for id in (0..200).map(|i| ids[i * 37 % 200]) {
        writeln!(nodes, "{id},{},{},{}.0", id % 90, LOADS[0](id), LOADS[1](id)).unwrap();
    }
    let (mut edges, mut pairs) = ("src,dst,bytes\n".to_string(), BTreeMap::new());
    for i in 0..200 {
        for (step, bytes) in [(1, 4), (1, 3), (199, 2), (20, 1)] {
            let (u, v) = (ids[i], ids[(i + step) % 200]);
            writeln!(edges, "{u},{v},{bytes}").unwrap();
            *pairs.entry((u.min(v), u.max(v))).or_insert(0) += bytes;
        }
    }
    fs::write(folder.join("nodes.csv"), nodes).unwrap();
    fs::write(folder.join("edges.csv"), edges).unwrap();
    let input = "convert edges.csv --nodes nodes.csv --out ds";
    let weights = "--schema vertex-weights=cpu,memory --schema edge-weights=bytes --symmetrise";
    ok(folder, format!("{input} {weights}"));
    let made = json(folder, "partition ds --parts 4 --weights own");

    let parts = parts_of(folder, &made);
    let bytes = fs::read(folder.join("ds/nodes/original_id.npy")).unwrap();
    let original = bytes[128..].chunks(8).map(|id| u64::from_le_bytes(id.try_into().unwrap()));
    let part: BTreeMap<u64, u16> = original.zip(parts).collect();
    let own = &made["own_weights"];
    for (name, weight) in ["cpu", "memory"].into_iter().zip(LOADS) {
        let mut loads = [0; 4];
        ids.iter().for_each(|id| loads[part[id] as usize] += weight(*id));
        let imbalance =
            *loads.iter().max().unwrap() as f64 * 4.0 / loads.iter().sum::<u64>() as f64;
        assert!(
            (own["vertices"][name].as_f64().unwrap() - imbalance).abs() < 1e-9,
            "{name} {imbalance}: {made}"
        );
        assert!(imbalance <= 1.05, "{name}: {imbalance}");
    }
    let cut: u64 =
        pairs.iter().filter(|((u, v), _)| part[u] != part[v]).map(|(_, bytes)| bytes).sum();
    assert_eq!(
        (own["cut"].as_f64(), own["total"].as_f64()),
        (Some(cut as f64), Some(2000.0)),
        "{made}"
    );
    // Weights are not features.
    let dataset = Dataset::open(folder.join("ds")).unwrap();
    let manifest = dataset.manifest();
    assert_eq!(manifest.features.as_ref().unwrap().names.as_ref().unwrap(), &["age"]);
    assert_eq!(manifest.vertex_weights, ["cpu", "memory"]);
}

#[test]
fn weights_that_cannot_be_are_refused_in_one_line_that_names_them() {
    let folder = &*scratch();
    fs::write(folder.join("e.csv"), "src,dst,bytes\n1,2,5\n2,3,-6\n").unwrap();
    let vertices = "--nodes n.csv --schema vertex-weights=cpu";
    for (value, said) in [("-1", "-1"), ("0.5", "0.5"), ("", "NaN"), ("4294967296", "4294967296")] {
        fs::write(folder.join("n.csv"), format!("id,cpu\n1,3\n2,{value}\n3,1\n")).unwrap();
        let line = fails(folder, format!("convert e.csv --out x {vertices}"), 1);
        let words = ["n.csv: ", "cpu", "row 1", "expected a whole number from 0 to 4294967295"];
        assert!(
            words.iter().all(|word| line.contains(word)) && line.contains(said),
            "{value}: {line}"
        );
    }
    fs::write(folder.join("n.csv"), "id,cpu,name\n1,3,a\n2,2,b\n3,1,c\n").unwrap();
    for (more, code, words) in [
        (
            "--schema edge-weights=bytes",
            1,
            "edge from 2 to 3 has the weight -6: expected a finite number from 0",
        ),
        ("--schema edge-weights=dst", 2, "`dst` is an end of the edges"),
        ("--schema edge-weights=cost", 1, "has no column `cost` for --schema edge-weights"),
        (
            "--schema vertex-weights=cpu",
            2,
            "--schema vertex-weights=cpu: expected a column of \
                                            numbers",
        ),
        (
            "--nodes n.csv --schema vertex-weights=name",
            1,
            "column `name`: expected numbers, for --schema vertex-weights",
        ),
        (
            "--nodes n.csv --schema vertex-weights=disk",
            1,
            "has no column `disk` for --schema \
                                                           vertex-weights",
        ),
        ("--nodes n.csv --schema vertex-weights=cpu,cpu", 1, "named twice"),
        ("--nodes n.csv --schema vertex-weights=id --id-column id", 1, "is an id"),
    ] {
        refused(folder, format!("convert e.csv --out x {more}"), code, words);
    }
    for (text, words) in [
        (
            "2 1 10\n-3 2\n1 1\n",
            "m.graph, line 2: expected vertex_weight from 0 to 2^63-1, found `-3`",
        ),
        ("2 1 1\n2 -3\n1 -3\n", "m.graph, line 2: expected a weight from 0 to 2^63-1, found `-3`"),
    ] {
        fs::write(folder.join("m.graph"), text).unwrap();
        refused(folder, "convert m.graph --out x", 1, words);
    }
    fs::write(folder.join("m.graph"), "2 1 10\n3 2\n4294967296 1\n").unwrap();
    ok(folder, "convert m.graph --out large");
    let large = "vertex_weight.npy: vertex 1: weight 4294967296: expected a whole number";
    refused(folder, "partition large --parts 2 --weights own", 1, large);
    refused(
        folder,
        "partition large --parts 3 --weights unit",
        1,
        "--parts 3: the graph has 2 vertices",
    );
    let unit = json(folder, "partition large --parts 2 --weights unit");
    assert!(unit.get("own_weights").is_none(), "{unit}");
    ok(folder, "generate rmat --vertices 64 --edges 200 --out bare");
    refused(
        folder,
        "partition bare --parts 2 --weights own",
        2,
        "--weights own: bare has no such weights",
    );
}
