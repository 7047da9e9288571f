#!/usr/bin/env python3
"""How fast `gsplit convert` makes a dataset of 50 million lines, beside the tools that read them into memory.

Every run is a fresh process on the same two cores, with the input in the page cache; rounds of all contenders follow
one another, so that what else the machine does meets all alike. gsplit's seconds are those of its whole process, from
no dataset to one that is finished, checksummed and synced to the disk. A peer's seconds run from the first byte read to
the matrix in memory: not its imports. Peak memory is that of the process, with what it imported.

Ends with one JSON line: of the worst graph, the seconds of the fastest peer over gsplit's (medians).
"""

import argparse
import json
import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import MIB, ROOT, WORK, BenchError  # noqa: E402

DATASET = WORK / "work" / "dataset"
LINES, QUICK_LINES, ROUNDS = 50_000_000, 5_000_000, 5
THREADS = 2
SMALL_MEMORY = "256MiB"
GSPLIT, SMALL = "gsplit", f"gsplit --memory {SMALL_MEMORY}"
# Rounds of conversions that take long enough to be compared with fewer than ROUNDS.
FEW = {"pandas": 3, "dgl": 2, "graphbolt": 2, "zlib": 3}
TITLES = {
    "pyarrow": "pyarrow + scipy",
    "polars": "polars + scipy",
    "pandas": "pandas + scipy",
    "dgl": "DGL (pandas)",
    "graphbolt": "GraphBolt",
    "floor": "floor: read the text, write and sync the dataset's bytes",
    "zlib_ng": "floor: inflate with zlib-ng",
    "zlib": "floor: inflate with zlib",
    "gunzip": "floor: gunzip -c",
}
NEED_DGL = ("dgl", "graphbolt")
FLOORS = ("floor", "zlib_ng", "zlib", "gunzip")


class Graph(NamedTuple):
    """One input: what gsplit converts, the file that peers read, and who takes part."""

    name: str
    input: str
    file: str
    contenders: tuple


GRAPHS = [
    Graph("snap", "snap.txt", "snap.txt", (GSPLIT, SMALL, "floor", "pyarrow", "polars", "pandas", "dgl", "graphbolt")),
    Graph("snap-shuffled", "shuffled.txt", "shuffled.txt", (GSPLIT, SMALL, "floor", "pyarrow", "polars", "pandas")),
    Graph(
        "ogb-gz",
        "ogb",
        "ogb/raw/edge.csv.gz",
        (GSPLIT, SMALL, "zlib_ng", "zlib", "gunzip", "polars", "pandas"),
    ),
]


class Bench(NamedTuple):
    """What every run needs."""

    gsplit: Path
    python: Path
    dgl: Path
    data: Path
    counts: dict

    def convert(self, graph, contender):
        """Runs gsplit; its seconds are the process's."""
        shutil.rmtree(DATASET, ignore_errors=True)
        budget = ["--memory", SMALL_MEMORY] if contender == SMALL else []
        options = ["--out", DATASET, "--threads", THREADS, "--json", *budget]
        child = measure.run([self.gsplit, "convert", self.data / graph.input, *options])
        self.expect(contender, json.loads(child.output)["num_edges"])
        return child

    def peer(self, graph, contender):
        """Runs a peer; its seconds are the ones that it measured itself."""
        python = self.dgl if contender in NEED_DGL else self.python
        file = self.data / ("edge.csv" if contender == "graphbolt" else graph.file)
        folder = DATASET if contender == "check" else DATASET.with_name("scratch")
        size = measure.size_of(DATASET) if contender == "floor" else self.counts["vertices"]
        child = measure.run([python, HERE / "peers.py", contender, file, size, folder], PYTHONWARNINGS="ignore")
        said = json.loads(child.output.splitlines()[-1])
        if contender not in FLOORS:
            self.expect(contender, said["edges"])
        return child._replace(seconds=said["seconds"])

    def expect(self, contender, edges):
        if edges != self.counts["edges"]:
            raise BenchError(f"{contender} found {edges} edges, expected {self.counts['edges']}")

    def one(self, graph, contender):
        warm(self.data / graph.file)
        if contender in (GSPLIT, SMALL):
            return self.convert(graph, contender)
        if contender == "gunzip":
            return measure.run(["sh", "-c", 'gunzip -c "$1" > /dev/null', "sh", self.data / graph.file])
        return self.peer(graph, contender)


def warm(path):
    with path.open("rb", buffering=0) as file:
        while file.read(MIB):
            pass


def measured(bench, graph, rounds):
    """{contender: [Child]} of all rounds."""
    samples = {}
    for turn in range(rounds):
        for contender in graph.contenders:
            if (contender in NEED_DGL and bench.dgl is None) or turn >= FEW.get(contender, rounds):
                continue
            child = bench.one(graph, contender)
            samples.setdefault(contender, []).append(child)
            print(f"{graph.name}: {contender}: {child.seconds:.2f} s", file=sys.stderr, flush=True)
    if graph.file.endswith(".txt"):
        bench.peer(graph, "check")
    measure.run([bench.gsplit, "verify", DATASET])
    return samples


def median(children, field="seconds"):
    return statistics.median(getattr(child, field) for child in children)


def show(graph, samples):
    """One table, a row a contender."""
    ours = median(samples[GSPLIT])
    print(f"\n{graph.name}\n")
    print("| contender | seconds | fastest | seconds / gsplit's | peak MiB | own CPU s | others' CPUs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for contender, children in samples.items():
        seconds, fastest = median(children), min(child.seconds for child in children)
        peak = max(child.peak_bytes for child in children) / MIB
        own, others = median(children, "cpu_seconds"), median(children, "others_cpus")
        row = [TITLES.get(contender, contender), f"{seconds:.2f}", f"{fastest:.2f}", f"{seconds / ours:.2f}"]
        print("|", " | ".join([*row, f"{peak:.0f}", f"{own:.2f}", f"{others:.2f}"]), "|")
    floor, least = min((median(samples[name]), name) for name in FLOORS if name in samples)
    print(f"\ngsplit takes {ours / floor:.2f} times {TITLES[least]}", flush=True)


def toughest(samples):
    """(seconds of the fastest peer over gsplit's, its name)."""
    peers = {name: median(children) for name, children in samples.items() if name not in (GSPLIT, SMALL, *FLOORS)}
    name = min(peers, key=peers.get)
    return peers[name] / median(samples[GSPLIT]), TITLES[name]


def inputs(python, lines):
    """The folder of inputs, made where it is not there or its maker changed."""
    folder, maker = WORK / "data" / str(lines), HERE / "inputs.py"
    stamp = folder / "made-by"
    if not stamp.is_file() or stamp.read_bytes() != maker.read_bytes():
        print(f"making {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
        measure.need_disk(WORK, lines * 75)
        measure.run([python, maker, folder, lines])
        stamp.write_bytes(maker.read_bytes())
    return folder


def main():
    parser = argparse.ArgumentParser(description="Time gsplit convert and its peers.")
    parser.add_argument("--quick", action="store_true", help="5 million lines, one round: whether all of it runs")
    args = parser.parse_args()
    lines, rounds = (QUICK_LINES, 1) if args.quick else (LINES, ROUNDS)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    try:
        gsplit, python, dgl = measure.binary(), measure.environment(), measure.dgl_environment()
        DATASET.with_name("scratch").mkdir(parents=True, exist_ok=True)
        with measure.alone():
            data = inputs(python, lines)
            bench = Bench(gsplit, python, dgl, data, json.loads((data / "counts.json").read_text()))
            found = []
            for graph in GRAPHS:
                samples = measured(bench, graph, rounds)
                show(graph, samples)
                found.append((*toughest(samples), graph.name))
    except BenchError as error:
        sys.exit(f"error: {error}")
    finally:
        shutil.rmtree(DATASET.parent, ignore_errors=True)
    ratio, peer, graph = min(found)
    print("\n" + json.dumps({"bench": "convert", "ratio": round(ratio, 3), "peer": peer, "graph": graph}))


if __name__ == "__main__":
    main()
