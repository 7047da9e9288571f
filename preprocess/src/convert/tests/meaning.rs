//! Small inputs that could be understood in two ways: each is the graph that is meant, or one line
//! that asks.

use super::bad_input::message;
use super::*;

/// The edges of `dataset` by the ids of the input, with `*` after targets of another kind; then
/// each edge column.
fn graph(dataset: &Dataset) -> String {
    let (ids, names) = (dataset.original_ids().unwrap(), dataset.original_names().unwrap());
    let kinds = dataset
        .manifest()
        .columns
        .contains_key("kind")
        .then(|| dataset.node_column("kind").unwrap());
    let name = |vertex: u32| {
        let mark = if kinds.as_ref().is_some_and(|kinds| kinds.bytes()[vertex as usize] == 1) {
            "*"
        } else {
            ""
        };
        let name = match (&ids, &names) {
            (Some(ids), _) => ids.get(vertex as usize).to_string(),
            (None, Some(names)) => names.get(vertex).unwrap().to_string(),
            (None, None) => vertex.to_string(),
        };
        name + mark
    };
    let topology = dataset.topology();
    let (mut lines, mut at) = (Vec::new(), 0);
    let columns: Vec<_> = dataset
        .manifest()
        .edge_columns
        .keys()
        .map(|name| (name, dataset.edge_column(name).unwrap()))
        .collect();
    for target in 0..dataset.num_vertices() as u32 {
        for &source in topology.in_neighbours(target) {
            let values = columns.iter().map(|(column, file)| {
                let value = match file.descr() {
                    "<f4" => file.as_slice::<f32>().unwrap()[at].to_string(),
                    "<f8" => file.as_slice::<f64>().unwrap()[at].to_string(),
                    _ => file.as_slice::<i64>().unwrap()[at].to_string(),
                };
                format!(" {column}={value}")
            });
            lines.push(format!("{}>{}{}", name(source), name(target), values.collect::<String>()));
            at += 1;
        }
    }
    lines.sort();
    let has_edge = |vertex: u32| {
        !topology.in_neighbours(vertex).is_empty() || topology.indices().contains(&vertex)
    };
    lines.extend((0..dataset.num_vertices() as u32).filter(|&vertex| !has_edge(vertex)).map(name));
    lines.join(", ")
}

/// Name of the file, its content, options, and the graph; or, after `error: `, the message.
pub(super) type Case = (&'static str, &'static str, &'static str, &'static str);

pub(super) fn check(cases: &[Case]) {
    let folder = tempfile::tempdir().unwrap();
    for (number, &(name, content, words, expected)) in cases.iter().enumerate() {
        let path = folder.path().join(number.to_string()).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let out = path.with_file_name("ds");
        let found = match convert(&path, &out, &options(words), false, &NoProgress) {
            Ok((dataset, _)) => {
                let findings = gsplit_store::verify(&out).unwrap();
                let problem = findings.iter().find(|finding| finding.problem.is_some());
                assert!(problem.is_none(), "{content:?} {words}: {problem:?}");
                graph(&dataset)
            }
            Err(error) => format!("error: {error}"),
        };
        match expected.strip_prefix("error: ") {
            Some(part) => assert!(
                found.starts_with("error: ") && found.contains(part),
                "{content:?} {words}: {found}"
            ),
            None => assert_eq!(found, expected, "{content:?} {words}"),
        }
    }
}

#[test]
fn first_lines_are_headers_or_edges() {
    check(&[
        (
            "a.csv",
            "alice,bob\nbob,carol\n",
            "",
            "error: pass --schema header=no if line 1 is a \
                                                 row",
        ),
        ("a.csv", "alice,bob\nbob,carol\n", "--schema header=no", "alice>bob, bob>carol"),
        ("a.csv", "alice,bob\nbob,carol\n", "--schema header=yes", "bob>carol"),
        ("a.txt", "alice bob\nbob carol\n", "--schema header=no", "alice>bob, bob>carol"),
        ("a.csv", "src,dst\nalice,bob\n", "", "alice>bob"),
        ("a.csv", "1,2\n2,3\n", "", "1>2, 2>3"),
        ("a.csv", "\"1\",\"2\"\n\"2\",\"3\"\n", "", "1>2, 2>3"),
        ("a.txt", "TP53 MDM2 0.5\nATM TP53 0.25\n", "", "ATM>TP53, TP53>MDM2"),
        (
            "a.txt",
            "A B 0.5\nC A 0.25\n",
            "--edge-columns weight",
            "A>B weight=0.5, C>A weight=0.25",
        ),
        ("a.txt", "# source target\nalice bob\nbob carol\n", "", "alice>bob, bob>carol"),
        ("a.csv", "\u{feff}source;target\nalice;bob\n", "", "alice>bob"),
        ("a.csv", "1,2\n2,3\n", "--schema header=yes", "2>3"),
    ]);
}

#[test]
fn a_word_of_the_first_line_that_is_an_id_far_below_is_found() {
    let rows: String = (0..5000).map(|v| format!("v{v},w{v}\n")).collect();
    let (_folder, path) = file("a.csv", format!("alice,bob\n{rows}carol,bob\n"));
    let found = message(&path, &options(""));
    assert!(
        found.contains(
            "line 5002: column `bob`: `bob` of line 1 is an id of a line below: pass --schema \
             header=no"
        ),
        "{found}"
    );
    assert!(!path.with_file_name(".ds.partial").exists());
    assert_eq!(
        convert_new(&path, &options("--schema header=no")).unwrap().1.topology().num_edges(),
        5002
    );
    fs::write(&path, format!("person_x,person_y\n{rows}")).unwrap();
    assert_eq!(convert_new(&path, &options("")).unwrap().1.topology().num_edges(), 5000);
}

#[test]
fn ends_are_known_columns_or_asked_for() {
    check(&[
        (
            "a.csv",
            "hash,from,to,value\n0x1,a,b,10\n0x2,b,c,20\n",
            "--edge-columns value=weight",
            "a>b weight=10, b>c weight=20",
        ),
        ("a.tsv", "type\tnode_a\tnode_b\nx\t1\t2\ny\t2\t3\n", "", "1>2, 2>3"),
        (
            "a.csv",
            "a1,b1,c1\n1,2,3\n2,3,4\n",
            "--source-column a1 --target-column c1 --edge-columns none",
            "1>3, 2>4",
        ),
        (
            "a.txt",
            "alice knows bob\nbob likes carol\n",
            "--schema \
                                                         header=no",
            "error: which columns",
        ),
        (
            "a.txt",
            "a knows b\nb likes c\n",
            "--schema header=no --source-column 1 --target-column 3",
            "a>b, b>c",
        ),
        ("a.csv", "child,parent\n1,2\n3,2\n", "", "2>1, 2>3"),
        (
            "a.csv",
            "Id,OwnerUserId,ParentId\n5,1,7\n6,2,5\n",
            "",
            "error: which columns are the ends of an edge? `Id` has `5`, `6`; `OwnerUserId` has \
             `1`, `2`; `ParentId` has `7`, `5`: name them with --source-column",
        ),
        (
            "a.csv",
            "node label\n1 0\n2 1\n3 0\n4 1\n5 0\n6 1\n7 0\n8 1\n",
            "",
            "error: are these vertices and their classes? They come with --nodes",
        ),
    ]);
}

#[test]
fn lists_that_are_no_edge_lists_are_read_as_such_or_refused() {
    check(&[
        ("a.txt", "1 2 3\n2 1 3 4\n3\n5\n", "", "1>2, 1>3, 2>1, 2>3, 2>4, 5"),
        ("a.adjlist", "#networkx\n1 2 3 4\n2 3\n4\n", "", "1>2, 1>3, 1>4, 2>3"),
        ("a.txt", "1: 2 3\n2: 1\n", "", "1>2, 1>3, 2>1"),
        ("a.txt", "a b c\nb c\nd\n", "--format adjlist", "a>b, a>c, b>c, d"),
        ("a.txt", "1 2 3\n2 3\n", "", "error: --format adjlist"),
        ("a.txt", "1 2 3\n2 3\n", "--format adjlist", "1>2, 1>3, 2>3"),
        ("a.txt", "1 2 3\n2 3\n", "--format snap", "1>2, 2>3"),
        ("a.txt", "1 2 x\n", "--format adjlist --keep-ids", "error: --keep-ids"),
        ("a.csv", "0,1,1,0\n1,0,0,1\n", "", "error: a matrix of zeros and ones"),
        ("a.txt", "0 4\n1 4\n2 4\n3 5\n", "", "0>4, 1>4, 2>4, 3>5"),
        (
            "a.csv",
            "x,y\n0.5,1.5\n2.5,3.25\n",
            "",
            "error: expected two columns of integers or strings",
        ),
        (
            "a.txt",
            "7 0 1 0 1 0 1 0 1 0 1\n8 1 1 0 1 0 1 0 1 0 1\n",
            "",
            "error: features of vertices?",
        ),
    ]);
}

#[test]
fn two_kinds_of_ids_are_kept_apart_or_asked_for() {
    check(&[
        (
            "a.csv",
            "user_id,item_id,rating\n1,1,5\n2,1,4\n",
            "",
            "error: pass --bipartite to keep them apart",
        ),
        (
            "a.csv",
            "user_id,item_id,rating\n1,1,5\n2,1,4\n",
            "--bipartite",
            "1>1* rating=5, 2>1* rating=4",
        ),
        (
            "a.csv",
            "user_id,item_id,rating\n1,1,5\n2,1,4\n",
            "--bipartite=no",
            "1>1 rating=5, 2>1 rating=4",
        ),
        ("a.csv", "author,paper\n7,7\n", "", "error: --bipartite"),
        ("a.csv", "author,paper\nada,p1\nbob,p2\n", "", "ada>p1, bob>p2"),
        ("a.csv", "author,paper\nada,p1\nbob,ada\n", "", "error: --bipartite"),
        ("a.csv", "author,paper\nada,p1\nbob,ada\n", "--bipartite=no", "ada>p1, bob>ada"),
        ("a.csv", "actor_id,repo_id\n1,1\n2,1\n", "", "error: --bipartite"),
        ("a.csv", "author,paper\nada,p1\nbob,ada\n", "--bipartite", "ada>p1*, bob>ada*"),
        ("out.x", "% bip unweighted\n% 2 2 2\n1 1\n2 1\n", "", "error: `% bip`"),
        ("out.x", "% bip unweighted\n% 2 2 1\n1 1\n2 1\n", "--bipartite", "1>1*, 2>1*"),
        (
            "out.x",
            "% bip unweighted\n% 3 2 1\n1 1\n2 1\n",
            "--bipartite",
            "error: promises 3 edges, 2 follow",
        ),
        (
            "out.x",
            "% asym unweighted\n% 3 2 2\n1 2\n2 1\n",
            "",
            "error: the header promises 3 edges",
        ),
        (
            "u.data",
            "196\t242\t3\t881250949\n186\t302\t3\t891717742\n",
            "--bipartite",
            "186>302*, 196>242*",
        ),
        (
            "r.dat",
            "1::93::5::978\n1::61::3::979\n",
            "--bipartite --edge-columns rating",
            "1>61* rating=3, 1>93* rating=5",
        ),
        ("a.csv", "from_user,to_user\n1,1\n1,2\n", "", "1>1, 1>2"),
    ]);
}

#[test]
fn numbers_of_spreadsheets_are_read_as_they_are_meant() {
    check(&[
        ("a.csv", "src;dst;weight\n1;2;0,5\n2;3;1,25\n", "", "1>2 weight=0.5, 2>3 weight=1.25"),
        (
            "a.csv",
            "src,dst,weight\n1,2,\"1,000\"\n2,3,\"12,345,678\"\n",
            "",
            "1>2 weight=1000, 2>3 weight=12345678",
        ),
        ("a.csv", "src,dst,share\n1,2,10%\n2,3,2.5%\n", "", "1>2 share=0.1, 2>3 share=0.025"),
        (
            "a.csv",
            "src,dst,since\n1,2,2020-01-31\n2,3,2020-02-01\n",
            "",
            "1>2 since=18292, 2>3 since=18293",
        ),
        (
            "a.csv",
            "src,dst,since\n1,2,2020-01-31 12:00\n2,3,\n",
            "",
            "1>2 since=18292.5, 2>3 since=NaN",
        ),
        ("a.csv", "src,dst,since\n1,2,01/02/2020\n", "--schema date-order=dmy", "1>2 since=18293"),
        ("a.csv", "src,dst,n\n1,2,?\n2,3,4\n", "", "1>2 n=NaN, 2>3 n=4"),
        ("a.csv", "src,dst,n\n1,2,N/A\n2,3,4\n", "--schema fill=0", "1>2 n=0, 2>3 n=4"),
        ("a.csv", "date,src,dst\n2020-01-31,1,2\n", "--edge-columns none", "1>2"),
    ]);
}

#[test]
fn counts_and_weights_are_named_as_what_they_are() {
    let infinite = "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 inf\n";
    let mtx = "%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 2 18446744073709551615\n";
    check(&[
        (
            "a.mtx",
            mtx,
            "",
            "error: with its sign, found `18446744073709551615`; --edge-columns none",
        ),
        ("a.mtx", mtx, "--edge-columns none", "1>2"),
        ("a.mtx", infinite, "", "error: --edge-columns none leaves"),
        (
            "a.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 3\n2 1\n",
            "",
            "error: pass --bipartite",
        ),
        (
            "a.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n2 3 2\n1 3\n2 1\n",
            "--bipartite",
            "1>3*, 2>1*",
        ),
        ("a.graph", "3 4\n2 3\n1\n1\n", "", "error: each listed at both ends"),
        ("a.graph", "3 4\n2 3\n1\n1\n", "--schema ignore-header=yes", "1>2, 1>3, 2>1, 3>1"),
        ("a.graph", "3 2\n2 3\n1\n1\n", "", "1>2, 1>3, 2>1, 3>1"),
        ("a.graph", "3 7\n2 3\n1\n1\n", "", "error: promises 7 edges"),
    ]);
}

#[test]
fn numbers_that_are_ids_are_read_exactly_or_refused_with_their_line() {
    check(&[
        ("a.csv", "src,dst\n1.0,2.0\n3.0,4.0\n", "", "1>2, 3>4"),
        ("a.csv", "src,dst\n1,2.0\n3,\n", "", "error: a.csv, line 3: column `dst`: is empty"),
        ("a.csv", "src,dst\n1.0,2.5\n3.0,4.0\n", "", "error: expected"),
        ("a.csv", "src,dst\n82378273827382738273,2\n", "", "82378273827382738273>2"),
        ("a.csv", "1.0,2.0\n2.0,3.0\n", "", "1>2, 2>3"),
        ("a.csv", "src,dst\n-1,2\n", "", "error: line 2: column `src`: `-1`: expected ids from 0"),
        ("a.csv", "src,dst,n\n1,2,3\n2,3,\n", "--edge-columns none", "1>2, 2>3"),
        ("a.csv", "src,dst,n\n1,2,3\n2,3,\n", "--schema fill=7", "1>2 n=3, 2>3 n=7"),
        ("a.csv", "src,dst,n\n1,2,3\n2,3,\n", "", "1>2 n=3, 2>3 n=NaN"),
        ("a.txt", "1 2\n2 3\n", "--schema fill=7", "error: --schema fill has no effect"),
        ("a.csv", "src,dst,n\n1,2,3\n", "--schema fill=mean", "error: --schema fill has no effect"),
        ("a.csv", "src;dst;weight\n1;2;0.5\n", "", "1>2 weight=0.5"),
        (
            "a.csv",
            "src,dst\n",
            "",
            "error: a.csv: no edges and no vertices: expected at least one edge",
        ),
        ("a.csv", "5,1,2\n6,2,3\n", "--source-column 2 --target-column 3", "1>2, 2>3"),
        ("a.csv", "src|dst\n1|2\n", "", "1>2"),
        ("a.txt", "1~2\n2~3\n", "--schema delimiter=~", "1>2, 2>3"),
        ("a.txt", "1 2\n2 3\n", "--schema delimiter=;", "error: "),
        ("a.npz", "", "--schema delimiter=;", "error: "),
        (
            "a.txt",
            "1 2\n2 3\n",
            "--format snap --schema header=no",
            "error: --schema header has no \
                                                                     effect",
        ),
    ]);
}

/// The vertices of `dataset` by the ids of the input, each with its label and its feature row; then
/// its edges.
fn rows(dataset: &Dataset) -> String {
    let ids = dataset.original_ids().unwrap().map(|ids| ids.to_vec());
    let labels = dataset.labels().unwrap();
    let features = dataset.features().unwrap();
    let row = |v: usize| {
        let id = ids.as_ref().map_or(v as u64, |ids| ids[v]);
        let values: Vec<String> =
            features.row::<f32>(v as u32).iter().map(f32::to_string).collect();
        format!("{id}: {} {}", labels[v], values.join(" "))
    };
    let rows: Vec<String> = (0..dataset.num_vertices()).map(row).collect();
    format!("{}; {}", rows.join(", "), graph(dataset))
}

#[test]
fn rows_that_are_missing_or_twice_are_counted_and_asked_for() {
    let (folder, edges) = file("edges.csv", "src,dst\n1,2\n2,3\n3,4\n");
    let whole = "id,label,x\n1,0,0.5\n2,1,1.5\n3,0,2.5\n4,1,3.5\n";
    let twice =
        "id,label,x,split\n1,0,0.5,train\n2,1,1.5,\n2,0,9,test\n3,0,2.5,test\n4,1,3.5,valid\n";
    let missing = "id,label,x\n1,0,0.5\n2,1,1.5\n3,0,2.5\n";
    for (number, (nodes, words, expected)) in [
        (whole, "", "1: 0 0.5, 2: 1 1.5, 3: 0 2.5, 4: 1 3.5; 1>2, 2>3, 3>4"),
        (
            twice,
            "",
            "error: 1 duplicate id: 2 is on line 3 and again on line 4: pass --schema \
                     on-duplicate",
        ),
        (
            twice,
            "--schema on-duplicate=first",
            "1: 0 0.5, 2: 1 1.5, 3: 0 2.5, 4: 1 3.5; 1>2, 2>3, 3>4",
        ),
        (
            twice,
            "--schema on-duplicate=last",
            "1: 0 0.5, 2: 0 9, 3: 0 2.5, 4: 1 3.5; 1>2, 2>3, 3>4",
        ),
        (
            missing,
            "",
            "error: 1 of 4 vertices have edges and no row, for example 4: pass --schema \
                       missing-rows=fill, or drop",
        ),
        (missing, "--schema missing-rows=drop", "1: 0 0.5, 2: 1 1.5, 3: 0 2.5; 1>2, 2>3"),
        (
            missing,
            "--schema missing-rows=fill --schema fill=7",
            "1: 0 0.5, 2: 1 1.5, 3: 0 2.5, 4: -1 7; 1>2, 2>3, 3>4",
        ),
        (
            missing,
            "--schema missing-rows=fill --schema fill=mean",
            "1: 0 0.5, 2: 1 1.5, 3: 0 2.5, 4: -1 1.5; 1>2, 2>3, 3>4",
        ),
        (
            missing,
            "--schema missing-rows=fill",
            "error: --schema missing-rows=fill: column `x`: \
                                                 has no value: pass --schema fill",
        ),
        (
            "id,label,x\n7,0,0.5\n8,1,1.5\n",
            "",
            "error: the edges, which are integers, such as `1` and `2`; `id` has `7`, `8`",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let table = folder.path().join(format!("{number}.csv"));
        fs::write(&table, nodes).unwrap();
        let options = options(&format!(
            "--schema scale=none --directed --nodes {} \
                                        {words}",
            table.display()
        ));
        let out = folder.path().join(format!("ds{number}"));
        let found = match convert(&edges, &out, &options, false, &NoProgress) {
            Ok((dataset, _)) => rows(&dataset),
            Err(error) => format!("error: {error}"),
        };
        match expected.strip_prefix("error: ") {
            Some(part) => assert!(
                found.starts_with("error: ") && found.contains(part),
                "{nodes:?} {words}: {found}"
            ),
            None => assert_eq!(found, expected, "{nodes:?} {words}"),
        }
    }
    let split = |number: usize, split| {
        Dataset::open(folder.path().join(format!("ds{number}")))
            .unwrap()
            .split(split)
            .unwrap()
            .to_vec()
    };
    assert_eq!(
        [split(2, Split::Train), split(2, Split::Valid), split(2, Split::Test)],
        [vec![0], vec![3], vec![2]]
    );
    assert_eq!(
        [split(3, Split::Train), split(3, Split::Valid), split(3, Split::Test)],
        [vec![0], vec![3], vec![1, 2]]
    );
}
