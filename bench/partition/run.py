#!/usr/bin/env python3
"""How fast, in how much memory and how well gsplit partitions, beside METIS 5.2.1 and KaMinPar.

k = 4 and 8, an imbalance of 3 %, two threads. Seconds are those of the partitioning alone: METIS (called by gsplit, which
hands it the symmetrised graph) is not charged for symmetrising, nor KaMinPar for loading. gsplit's seconds begin with the
mapped topology. Memory is the peak beyond the mapped input; for KaMinPar, whose input is loaded, beyond the loaded graph.
Weighted cuts count 1 + the pre-sampled counters of both directions for every pair, which is what all three minimise.
Median of several seeds, fewer where a run takes long. Real graphs are taken from ../shared/data, or DATA=folder, and left out
where they are not there.

Ends with one JSON line: the least ratio of METIS's seconds over gsplit's among the graphs above 10 million edges.
"""

import json
import os
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import MIB, ROOT, WORK, BenchError  # noqa: E402

REAL = Path(os.environ.get("DATA") or ROOT.parent / "shared" / "data")
THREADS, PARTS = 2, (4, 8)
LARGE_EDGES = 10_000_000
KEY = "bench"


class Graph(NamedTuple):
    """A dataset: its name, the command that makes it, the weights that are balanced and cut, and the number of seeds of each contender."""

    name: str
    make: tuple
    weights: tuple
    seeds: int
    presample: tuple = ("--fanouts", "15,10,5", "--epochs", "3")


def generated(kind, vertices, edges):
    few_features = ("--feature-dim", "4") if kind == "community" else ()
    return ("generate", kind, "--vertices", str(vertices), "--edges", str(edges), *few_features)


def real(*path):
    """A small real graph, which has no training split to presample."""
    return Graph(path[-1].split(".")[0], ("convert", REAL.joinpath(*path), "--symmetrise"), ("unit",), 2)


BOTH = ("unit", "presampled")
DBLP_SPLIT = ("--random-split", "0.1,0.05,0.05")
SMALL = (
    *(("soc-Slashdot0902", "soc-Slashdot0902.txt.gz"), ("bv-cnr-2000-java",), ("flickr_graphsaint",), ("ogb-binary-amazon-computers",)),
    *(("wiki-Vote", "wiki-Vote.txt"), ("p2p-Gnutella31", "p2p-Gnutella31.txt"), ("ogb-layout-tolokers",)),
    *(("facebook_combined", "facebook_combined.txt.gz"), ("metis-graphs", "4elt.graph"), ("metis-graphs", "wing.graph")),
    ("email-Eu-core", "email-Eu-core.txt"),
)
GRAPHS = (
    Graph("ogbn-arxiv", ("convert", REAL / "ogbn_arxiv", "--symmetrise"), BOTH, 3),
    Graph("com-dblp", ("convert", REAL / "com-dblp" / "dblp.csv.gz", "--symmetrise", *DBLP_SPLIT), BOTH, 3),
    *(real(*path) for path in SMALL),
    Graph("community-15M", generated("community", 1_000_000, 15_000_000), BOTH, 1),
    # Unit weights leave an R-MAT graph no good cut.
    Graph("rmat-16M", generated("rmat", 1 << 20, 16_000_000), ("presampled",), 1),
    Graph("community-100M", generated("community", 4_000_000, 100_000_000), ("unit",), 1),
)
CONTENDERS = ("gsplit", "gsplit high", "METIS", "KaMinPar")


class Run(NamedTuple):
    seconds: float
    cut: int
    peak_mib: float


class Bench(NamedTuple):
    gsplit: Path
    python: Path

    def dataset(self, graph):
        """The dataset of `graph` with its presample, made where it is not there; None without its input."""
        if graph.make[0] == "convert" and not graph.make[1].exists():
            print(f"{graph.name}: {graph.make[1]} is not there: left out", file=sys.stderr, flush=True)
            return None
        folder = WORK / "data" / f"partition-{graph.name}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        measure.run([self.gsplit, *graph.make, "--out", folder, "--quiet"])
        if "presampled" in graph.weights:
            measure.run([self.gsplit, "presample", folder, *graph.presample, "--key", KEY, "--quiet"])
        return folder

    def gsplit_run(self, folder, weights, parts, seed, options, stage=None):
        command = [self.gsplit, "partition", folder, "--parts", parts, "--weights", weights, "--threads", THREADS]
        said = measure.run([*command, "--seed", seed, "--key", KEY, "--force", "--json", *options]).output
        said = json.loads(said)
        cut = said["cut"] + (said["weighted_cut"] if weights == "presampled" else 0)
        seconds = said["seconds"]
        if stage is not None:
            seconds = sum(found["seconds"] for found in said["stages"] if found["name"] == stage)
        return Run(seconds, cut, said["peak_rss_mb"] * 1e6 / MIB - mapped_bytes(folder, weights) / MIB)

    def one(self, contender, folder, weights, parts, seed):
        if contender == "KaMinPar":
            command = [self.python, HERE / "peer.py", "partition", peer_file(folder, weights), parts, seed]
            said = json.loads(measure.run(command).output.splitlines()[-1])
            return Run(said["seconds"], said["cut"], said["extra_bytes"] / MIB)
        if contender == "METIS":
            return self.gsplit_run(folder, weights, parts, seed, ("--partitioner", "metis"), "metis")
        quality = ("--quality", "high") if contender == "gsplit high" else ()
        return self.gsplit_run(folder, weights, parts, seed, quality)

    def write_peer_file(self, folder, weights):
        file = peer_file(folder, weights)
        presample = [KEY] if weights == "presampled" else []
        measure.run([self.python, HERE / "peer.py", "write", folder, file, *presample])


def peer_file(folder, weights):
    return folder.with_name(f"{folder.name}-{weights}.parhip")


def mapped_bytes(folder, weights):
    files = ["topology/indptr.npy", "topology/indices.npy"]
    if weights == "presampled":
        files += [f"presample/{KEY}/{name}.npy" for name in ("edge", "work", "input")]
    return sum((folder / name).stat().st_size for name in files)


def compare(bench, graph, seeds, contenders):
    """Yields (weights, parts, {contender: median Run})."""
    folder = bench.dataset(graph)
    if folder is None:
        return
    for weights in graph.weights:
        if "KaMinPar" in contenders:
            bench.write_peer_file(folder, weights)
        for parts in PARTS:
            runs = {contender: [] for contender in contenders}
            for seed in range(seeds):
                for contender in contenders:
                    run = bench.one(contender, folder, weights, parts, seed)
                    runs[contender].append(run)
                    print(f"{graph.name} {weights} k={parts} {contender}: {run}", file=sys.stderr, flush=True)
            fields = {name: [list(map(field, found)) for field in FIELDS] for name, found in runs.items()}
            yield weights, parts, {name: Run(*map(statistics.median, found)) for name, found in fields.items()}
        peer_file(folder, weights).unlink(missing_ok=True)


FIELDS = (lambda run: run.seconds, lambda run: run.cut, lambda run: run.peak_mib)


def show(graph, weights, parts, found):
    metis, ours = found["METIS"], found["gsplit"]
    for name, run in found.items():
        row = [f"{graph.name}, {weights}, k = {parts}", name, f"{run.seconds:.2f}", f"{metis.seconds / run.seconds:.1f}"]
        row += [f"{run.cut:,.0f}", f"{run.cut / metis.cut:.3f}", f"{run.peak_mib:.0f}"]
        row.append(f"{run.peak_mib / metis.peak_mib:.2f}")
        print("|", " | ".join(row), "|", flush=True)
    return metis.seconds / ours.seconds


def main():
    args = measure.arguments("Compare the time of gsplit partition with METIS's and KaMinPar's.", "the graphs below 10 million edges, one seed", GRAPHS)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    ratios = []
    try:
        bench = Bench(measure.binary(), measure.environment())
        with measure.alone():
            print("| graph | | seconds | METIS's / its | cut | / METIS's | MiB | / METIS's |")
            print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
            for graph in GRAPHS:
                large = any(word.isdigit() and int(word) > LARGE_EDGES for word in map(str, graph.make))
                if (args.quick and large) or (args.graph and graph.name not in args.graph):
                    continue
                for weights, parts, found in compare(bench, graph, 1 if args.quick else graph.seeds, CONTENDERS):
                    ratio = show(graph, weights, parts, found)
                    if large or args.quick:
                        ratios.append((ratio, f"{graph.name}, {weights}, k = {parts}"))
    except BenchError as error:
        sys.exit(f"error: {error}")
    if ratios:
        ratio, graph = min(ratios)
        print("\n" + json.dumps({"bench": "partition", "ratio": round(ratio, 3), "peer": "METIS 5.2.1", "graph": graph}))


if __name__ == "__main__":
    main()
