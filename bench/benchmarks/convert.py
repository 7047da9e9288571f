"""Time of `gsplit convert` on 50 million lines and on a table of 10 million rows and 20 columns,
compared with the tools that read them into memory.

The input is in the page cache. gsplit's seconds are those of its whole process, up to a finished,
checksummed and synced dataset. A peer's run from the first byte to the matrix in memory, without
its imports. Peak memory is the process's, with its imports.
"""

import json
import shutil

import harness
from harness import DATA, INPUTS, MIB, PEERS, WORK, BenchError

LINES, WIDE_ROWS, QUICK, ROUNDS = 50_000_000, 10_000_000, 10, 5
DATASET = WORK / "convert" / "dataset"
GSPLIT, SMALL = "gsplit", "gsplit --memory 256MiB"
# The input of gsplit, the file that peers read, and who takes part.
GRAPHS = {
    "snap": ("snap.txt", "snap.txt", (GSPLIT, SMALL, "floor", "pyarrow", "polars", "dgl")),
    "snap-shuffled": ("shuffled.txt", "shuffled.txt", (GSPLIT, SMALL, "floor", "pyarrow", "polars")),
    "ogb-gz": ("ogb", "ogb/raw/edge.csv.gz", (GSPLIT, SMALL, "zlib_ng", "polars")),
    "wide-csv": ("wide.csv", "wide.csv", (GSPLIT, "floor", "polars_table")),
    "wide-parquet": ("wide.parquet", "wide.parquet", (GSPLIT, "floor", "pyarrow_table")),
}
TITLES = {
    **{"pyarrow": "pyarrow + SciPy", "polars": "polars + SciPy", "dgl": "DGL (pandas)"},
    **{"polars_table": "polars: columns, no graph", "pyarrow_table": "pyarrow: columns, no graph"},
    **{"floor": "floor: read the text, write and sync the dataset's bytes", "zlib_ng": "floor: inflate with zlib-ng"},
}


def inputs(python, kind, lines):
    """The folder of inputs of a kind, made if it is missing or its maker changed."""
    folder, maker = DATA / f"convert-{kind}-{lines}", INPUTS / "edges.py"
    stamp = folder / "made-by"
    if not stamp.is_file() or stamp.read_bytes() != maker.read_bytes():
        harness.say(f"making {folder.name}")
        harness.need_disk(WORK, lines * (75 if kind == "text" else 250))
        harness.run([python, maker, folder, kind, lines])
        stamp.write_bytes(maker.read_bytes())
    return folder


def warm(path):
    with path.open("rb", buffering=0) as file:
        while file.read(MIB):
            pass


def contender(graph, data, counts, python, dgl):
    """A function that runs a contender on the graph."""
    raw, file, _ = GRAPHS[graph]

    def once(name):
        if name == "dgl" and dgl is None:
            return None
        warm(data / file)
        if name in (GSPLIT, SMALL):
            shutil.rmtree(DATASET, ignore_errors=True)
            child = harness.gsplit("convert", data / raw, "--out", DATASET, "--threads", 2, "--json", *name.split()[1:])
            seconds, edges = child.seconds, child.json()["num_edges"]
        else:
            size = harness.size_of(DATASET) if name == "floor" else counts["vertices"]
            folder = DATASET if name == "check" else DATASET.with_name("scratch")
            words = [dgl if name == "dgl" else python, PEERS / "convert.py", name, data / file, size, folder]
            child = harness.run(words, PYTHONWARNINGS="ignore")
            seconds, edges = child.json()["seconds"], child.json()["edges"] or counts["edges"]
        if edges != counts["edges"]:
            raise BenchError(f"{name} found {edges} edges, expected {counts['edges']}")
        cost = {"cpu_seconds": child.cpu_seconds, "others_cpus": child.others_cpus}
        return {"seconds": seconds, "peak_mib": child.peak_bytes / MIB, **cost}

    return once


def measure(bench):
    python, (dgl,) = harness.environment(), harness.peer_environments("dgl")
    DATASET.with_name("scratch").mkdir(parents=True, exist_ok=True)
    try:
        for graph in bench.graphs:
            kind, lines = ("wide", WIDE_ROWS) if graph.startswith("wide") else ("text", LINES)
            data = inputs(python, kind, lines // QUICK if bench.quick else lines)
            counts = json.loads((data / "counts.json").read_text())
            once = contender(graph, data, counts, python, dgl)
            table = harness.Table(graph, "contender", "seconds", "range", "/ gsplit's", "peak MiB", "own CPU s", "others' CPUs")
            runs = table.interleave(GRAPHS[graph][2], bench.rounds, once)
            if "snap" in graph:
                once("check")
            harness.gsplit("verify", DATASET)
            for name in runs:
                seconds, *rest = (runs.median(name, field) for field in ("seconds", "peak_mib", "cpu_seconds", "others_cpus"))
                table.add(TITLES.get(name, name), seconds, runs.span(name, "seconds"), seconds / runs.median(GSPLIT, "seconds"), *rest)
            bench.keep(table)
    finally:
        shutil.rmtree(DATASET.parent, ignore_errors=True)
