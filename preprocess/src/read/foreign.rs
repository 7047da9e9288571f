//! Formats that are known and not read, each with the one command that converts it.
//!
//! First bytes decide, then names. The commands write `edges.csv`, `edges.parquet` or `edge_index.npy`, with the tools that
//! read the format anyway.

use std::path::Path;

use gsplit_store::{shell_path, shell_word};

use super::text::uncompressed;
use crate::{Error, Result};

/// A format that another program reads.
struct Foreign {
    name: &'static str,
    /// Endings of names, in lower case.
    endings: &'static [&'static str],
    /// Whether a file starts so.
    is: fn(&[u8]) -> bool,
    /// The command before and behind the path.
    command: [&'static str; 2],
}

macro_rules! python {
    ($modules:literal, $program:expr) => {
        [concat!("python3 -c 'import sys, ", $modules, "; ", $program, "' "), ""]
    };
}
macro_rules! networkx {
    ($read:literal) => {
        python!(
            "networkx",
            concat!("networkx.to_pandas_edgelist(networkx.", $read, r#").to_csv("edges.csv", index=False)"#)
        )
    };
}

/// The known formats, the most particular first.
const FOREIGN: &[Foreign] = &[
    Foreign {
        name: "GraphML",
        endings: &["graphml"],
        is: |head| has(start(head), b"<graphml"),
        command: networkx!("read_graphml(sys.argv[1])"),
    },
    Foreign {
        name: "GEXF",
        endings: &["gexf"],
        is: |head| has(start(head), b"<gexf"),
        command: networkx!("read_gexf(sys.argv[1])"),
    },
    Foreign { name: "GML", endings: &["gml"], is: is_gml, command: networkx!(r#"read_gml(sys.argv[1], label="id")"#) },
    Foreign {
        name: "Pajek",
        endings: &["net", "paj"],
        is: |head| {
            let head = head.trim_ascii_start().to_ascii_lowercase();
            head.starts_with(b"*vertices") || head.starts_with(b"*network")
        },
        command: networkx!("read_pajek(sys.argv[1])"),
    },
    Foreign {
        name: "JSON lines",
        endings: &["jsonl", "ndjson"],
        is: |head| {
            let mut lines = head.trim_ascii_start().split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
            let is_object = |line: &[u8]| line.starts_with(b"{\"") && line.ends_with(b"}");
            lines.next().is_some_and(is_object) && lines.next().is_some_and(|line| line.starts_with(b"{\""))
        },
        command: python!("pandas", r#"pandas.read_json(sys.argv[1], lines=True).to_csv("edges.csv", index=False)"#),
    },
    Foreign {
        name: "JSON of pairs",
        endings: &[],
        is: |head| json(head) == Some([b'[', b'[']),
        command: [
            r#"python3 -c 'import json, sys; print(*(",".join(map(str, pair)) for pair in json.load(sys.stdin)), sep="\n")' < "#,
            " > edges.csv",
        ],
    },
    Foreign {
        name: "JSON of nodes and links",
        endings: &[],
        is: |head| {
            let is_key = |key| has(head, key);
            matches!(json(head), Some([b'{', _]))
                && (is_key(b"\"nodes\"") || is_key(b"\"links\"") || is_key(b"\"edges\""))
        },
        command: python!(
            "json, pandas",
            r#"d = json.load(open(sys.argv[1])); pandas.DataFrame(d.get("links") or d["edges"]).to_csv("edges.csv", index=False)"#
        ),
    },
    Foreign {
        name: "JSON",
        endings: &["json"],
        is: |head| json(head).is_some(),
        command: python!("pandas", r#"pandas.read_json(sys.argv[1]).to_csv("edges.csv", index=False)"#),
    },
    Foreign {
        name: "ORC",
        endings: &["orc"],
        is: |head| head.starts_with(b"ORC") && head.contains(&0),
        command: python!("pandas", r#"pandas.read_orc(sys.argv[1]).to_parquet("edges.parquet")"#),
    },
    Foreign {
        name: "DGL's graphs",
        endings: &[],
        is: |head| head.starts_with(&0xdd2e_4ff0_46b4_a13f_u64.to_le_bytes()),
        command: python!(
            "dgl, torch",
            r#"torch.save({"edge_index": torch.stack(dgl.load_graphs(sys.argv[1])[0][0].edges())}, "edges.pt")"#
        ),
    },
    Foreign {
        name: "a workbook of Excel",
        endings: &["xlsx", "xls"],
        is: |head| {
            let is_sheet = head.starts_with(b"PK\x03\x04") && has(head, b"[Content_Types].xml");
            is_sheet || head.starts_with(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
        },
        command: python!("pandas", r#"pandas.read_excel(sys.argv[1]).to_csv("edges.csv", index=False)"#),
    },
    Foreign {
        name: "HDF5",
        endings: &["h5", "hdf5", "hdf"],
        is: |head| head.starts_with(b"\x89HDF\r\n\x1a\n"),
        command: python!("pandas", r#"pandas.read_hdf(sys.argv[1]).to_parquet("edges.parquet")"#),
    },
    Foreign {
        name: "a database of SQLite",
        endings: &["sqlite", "sqlite3"],
        is: |head| head.starts_with(b"SQLite format 3\0"),
        command: ["sqlite3 -header -csv ", " 'select * from edges' > edges.csv"],
    },
    Foreign {
        name: "an object of R",
        endings: &["rds"],
        is: |head| head.starts_with(b"X\n\0\0\0"),
        command: [
            r#"Rscript -e 'x <- readRDS(commandArgs(TRUE)[1]); if (inherits(x, "igraph")) x <- igraph::as_data_frame(x); write.csv(x, "edges.csv", row.names = FALSE)' "#,
            "",
        ],
    },
    Foreign {
        name: "a workspace of R",
        endings: &["rdata", "rda"],
        is: |head| head.starts_with(b"RDX") || head.starts_with(b"RDA"),
        command: [
            r#"Rscript -e 'x <- get(load(commandArgs(TRUE)[1])[1]); if (inherits(x, "igraph")) x <- igraph::as_data_frame(x); write.csv(x, "edges.csv", row.names = FALSE)' "#,
            "",
        ],
    },
    Foreign {
        name: "RDF",
        endings: &["ttl", "rdf", "owl", "trig"],
        is: |head| has(start(head), b"<rdf:RDF") || start(head).trim_ascii_start().starts_with(b"@prefix"),
        command: python!(
            "csv, rdflib",
            r#"w = csv.writer(open("edges.csv", "w")); w.writerow(["source", "target"]); w.writerows((s, o) for s, _, o in rdflib.Graph().parse(sys.argv[1]) if not isinstance(o, rdflib.Literal))"#
        ),
    },
];

/// Asked for last: triples whose lines have as many words are read as a table.
const TRIPLES: Foreign = Foreign {
    name: "N-Triples of RDF",
    endings: &["nt", "nq"],
    is: |head| {
        let line = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.starts_with(b"#"));
        line.is_some_and(|line| (line.starts_with(b"<") || line.starts_with(b"_:")) && line.ends_with(b" ."))
    },
    command: [r#"awk 'BEGIN { print "source\ttarget" } $3 ~ /^[<_]/ { print $1 "\t" $3 }' "#, " > edges.tsv"],
};

/// Refuses what starts as a file of a known foreign format that no reader here could take for its own.
pub fn refuse_by_content(path: &Path, head: &[u8]) -> Result<()> {
    refuse(path, FOREIGN.iter().find(|foreign| (foreign.is)(head)))
}

/// Refuses a file that no reader knows, and that starts or is called as one of a known foreign format.
pub fn refuse_by_name(path: &Path, head: &[u8]) -> Result<()> {
    let name = path.to_string_lossy().to_lowercase();
    let ending = uncompressed(&name).rsplit_once('.').map_or("", |(_, ending)| ending);
    let all = || FOREIGN.iter().chain([&TRIPLES]);
    let by_content = all().find(|foreign| (foreign.is)(head));
    refuse(path, by_content.or_else(|| all().find(|foreign| foreign.endings.contains(&ending))))
}

fn refuse(path: &Path, foreign: Option<&Foreign>) -> Result<()> {
    let Some(Foreign { name, command: [before, behind], .. }) = foreign else { return Ok(()) };
    let text = path.to_string_lossy();
    let (unpack, unpacked) = match uncompressed(&text) {
        plain if plain.len() < text.len() => ("unpack it, ", path.with_extension("")),
        _ => ("", path.to_path_buf()),
    };
    let command = format!("{before}{}{behind}", shell_path(unpacked));
    let problem =
        format!("{name}, which is not read here: {unpack}run {command} and convert the file that this writes");
    Err(Error::input(path, problem))
}

/// Refuses an address of the web in place of a path.
pub fn refuse_address(path: &Path) -> Result<()> {
    let text = path.to_string_lossy();
    let fetched = match text.split_once("://") {
        Some(("http" | "https" | "ftp", _)) => format!("curl -fLO {}", shell_word(&*text)),
        Some(("s3", _)) => format!("aws s3 cp {} .", shell_word(&*text)),
        _ => return Ok(()),
    };
    Err(Error::Option(format!("{text}: an address, expected a file or folder: run {fetched} first")))
}

/// Whether `bytes` have `words` in them.
fn has(bytes: &[u8], words: &[u8]) -> bool {
    memchr::memmem::find(bytes, words).is_some()
}

/// First bytes of a document, without the mark of its encoding.
fn start(head: &[u8]) -> &[u8] {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    &head[..head.len().min(4096)]
}

/// First two bytes of a document of JSON that are no blanks.
fn json(head: &[u8]) -> Option<[u8; 2]> {
    let mut bytes = start(head).iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    let first_two = [bytes.next()?, bytes.next()?];
    matches!(first_two, [b'{' | b'[', b'"' | b'{' | b'[']).then_some(first_two)
}

/// Whether the first line that is no comment and no creator or version is `graph [`.
fn is_gml(head: &[u8]) -> bool {
    let lines = start(head).split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let is_about = |line: &&[u8]| {
        line.is_empty() || [&b"#"[..], b"Creator", b"Version", b"comment"].iter().any(|word| line.starts_with(word))
    };
    let text = lines.skip_while(is_about).take(2).collect::<Vec<_>>().concat();
    text.strip_prefix(b"graph").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"["))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::detect::detect;
    use crate::read::options::TextOptions;

    #[test]
    fn foreign_formats_are_named_with_a_command_for_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let dgl = 0xdd2e_4ff0_46b4_a13f_u64.to_le_bytes();
        let table: &[(&str, &[u8], &str, &str)] = &[
            ("a.xml", b"<?xml version=\"1.0\"?>\n<graphml xmlns=\"x\">\n", "GraphML", "networkx.read_graphml"),
            ("a.graphml", b"nothing\nof it\n", "GraphML", "a.graphml and convert"),
            ("it's a.gexf", b"<gexf version=\"1.2\">", "GEXF", r"/it'\''s a.gexf' and"),
            ("a.gml", b"Creator \"x\"\ngraph\n[\n  directed 0\n", "GML", "networkx.read_gml"),
            ("b.txt", b"graph [ node [ id 0 ] ]\n", "GML", "networkx.read_gml"),
            ("a.net", b"*Vertices 2\n1 \"a\"\n2 \"b\"\n", "Pajek", "networkx.read_pajek"),
            ("a.net.gz", b"*vertices 2\n", "Pajek", "unpack it, run python3"),
            ("a.json", b"{\"nodes\": [], \"links\": []}", "JSON of nodes and links", "\"links\""),
            ("a.txt", b"[[0, 1],\n[1, 2]]\n", "JSON of pairs", "a.txt > edges.csv"),
            ("b.json", b"[{\"source\": 0}]", "JSON", "pandas.read_json"),
            ("c.csv", b"{\"a\": 1, \"b\": 2}\n{\"a\": 1, \"b\": 2}\n", "JSON lines", "lines=True"),
            ("a.orc", b"ORC\0\x01", "ORC", "pandas.read_orc"),
            ("graph.bin", &dgl, "DGL's graphs", "dgl.load_graphs"),
            ("a.xlsx", b"PK\x03\x04....[Content_Types].xml", "a workbook of Excel", "pandas.read_excel"),
            ("a.h5", b"\x89HDF\r\n\x1a\n", "HDF5", "pandas.read_hdf"),
            ("a.db", b"SQLite format 3\0", "a database of SQLite", "sqlite3 -header"),
            ("a.rds", b"X\n\0\0\0\x03", "an object of R", "readRDS"),
            ("a.RData", b"RDX3\nX\n\0", "a workspace of R", "get(load("),
            ("a.ttl", b"@prefix a: <http://a/> .\na:b a:c a:d .\n", "RDF", "rdflib"),
            ("a.nt", b"<a> <b> <c> .\n<a> <b> <c> <d> .\n", "N-Triples of RDF", "awk"),
        ];
        for (name, content, format, part) in table {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            let message = detect(&path, TextOptions::default()).unwrap_err().to_string();
            let named = format!("{name}: {format}, which is not read here: ");
            assert!(message.contains(&named) && message.contains(part), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }

    #[test]
    fn texts_that_look_foreign_by_name_alone_are_read() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in
            [("a.net", "1 2\n2 3\n"), ("a.json", "1,2\n"), ("a.nt", "<a> <b> <c> .\n<d> <b> <c> .\n")]
        {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            detect(&path, TextOptions::default()).unwrap();
        }
    }

    #[test]
    fn addresses_are_to_be_fetched() {
        let refusal = |text: &str| refuse_address(Path::new(text)).err().map(|error| error.to_string());
        assert!(refusal("https://a.b/c?d=1&e").unwrap().ends_with("run curl -fLO 'https://a.b/c?d=1&e' first"));
        assert!(refusal("s3://a/b c").unwrap().ends_with("run aws s3 cp 's3://a/b c' . first"));
        assert_eq!(refusal("a://b").or(refusal("http/x")), None);
    }
}
