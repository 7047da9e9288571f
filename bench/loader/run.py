#!/usr/bin/env python3
"""How fast `gsplit.NeighborLoader` gives mini-batches, beside the loaders of PyG, DGL and GraphBolt.

Fanouts 15,10,5, mini-batches of 1024 seeds, two cores. A mini-batch has its sampled edges, the feature rows of all its
vertices and its labels. Every run is a fresh process; rounds of all contenders follow one another. The seconds are those in which
the loop over the loader gives mini-batches and does nothing else, after ten that are not timed. Loaders differ in what they sample,
so each form of gsplit's is compared with those that sample the same: `form="pyg"` with PyG's, which expands a vertex once;
`form="blocks"` with DGL's and GraphBolt's, whose layers expand all that was reached. Their edges a mini-batch agree within
two percent. Peers run in the main process and with two worker processes, as the C library comes and "tuned": glibc keeps what is freed
and asks for huge pages. The fastest of these counts. gsplit runs as it comes.

PyG's loader needs torch-sparse or pyg-lib, of which PyPI has no wheels: torch-sparse is compiled, once, for about ten minutes.
PyG runs on PyTorch 2.11, DGL 2.1.0 (the last on PyPI) on PyTorch 2.2; gsplit runs in the environment of the peer that it is
compared with.

Ends with one JSON line: the least ratio, over graphs and forms, of gsplit's mini-batches a second to those of the fastest peer
(medians). ogbn-arxiv is taken from ../shared/data, or DATA=folder; --dataset measures a dataset that is there.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import ROOT, TUNED, WORK, BenchError  # noqa: E402

REAL = Path(os.environ.get("DATA") or ROOT.parent / "shared" / "data")
WHEELS = ROOT / "target" / "wheel"
FANOUTS, BATCH_SIZE, THREADS, ROUNDS = "15,10,5", 1024, 2, 5
SAMPLER = ("torch-scatter==2.1.2", "torch-sparse==0.6.18")


class Contender(NamedTuple):
    """A loader: its name in peer.py, whose environment it runs in, its worker processes, and whether the C library is tuned."""

    loader: str
    environment: str
    workers: int = 0
    tuned: bool = False

    def __str__(self):
        workers = f", {self.workers} workers" if self.workers else ""
        return f"{NAMES[self.loader]}{workers}{', tuned' if self.tuned else ''}"


NAMES = {
    "gsplit-pyg": "gsplit, PyG's form",
    "gsplit-blocks": "gsplit, blocks",
    "pyg": "PyG",
    "dgl": "DGL",
    "graphbolt": "GraphBolt",
}


def peers(loader, environment):
    return [Contender(loader, environment, workers, tuned) for workers in (0, 2) for tuned in (False, True)]


FORMS = {
    Contender("gsplit-pyg", "pyg"): peers("pyg", "pyg"),
    Contender("gsplit-blocks", "dgl"): [*peers("dgl", "dgl"), *peers("graphbolt", "dgl")],
}


class Graph(NamedTuple):
    """A dataset: its name, the command that makes it, and the number of timed mini-batches."""

    name: str
    make: tuple
    batches: int


COMMUNITY = ("generate", "community", "--vertices", 1 << 20, "--edges", 1 << 24, "--feature-dim", 128)
GRAPHS = (
    Graph("ogbn-arxiv", ("convert", REAL / "ogbn_arxiv", "--symmetrise", "--features", "random:128"), 40),
    Graph("community-20", COMMUNITY, 40),
)


def dataset(gsplit, graph):
    """The dataset of `graph`, made where it is not there; None without its input."""
    make = graph.make
    if make[0] == "convert" and not make[1].exists():
        print(f"{graph.name}: {make[1]} is not there: left out", file=sys.stderr, flush=True)
        return None
    folder = WORK / "data" / f"loader-{graph.name}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    measure.run([gsplit, *make, "--out", folder, "--quiet"])
    return folder


def package():
    """The package of the newest wheel, unpacked: one for all environments."""
    wheels = sorted(WHEELS.glob("gsplit-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels:
        raise BenchError(f"{WHEELS} has no wheel: run `make wheel`")
    folder = WORK / "loader-gsplit"
    shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(folder)
    return folder


def environments(package):
    """{environment: (its Python or None, folders of further packages)}, with the folder `package`."""
    # In a process of its own: making one takes memory, which would show in every later child's peak.
    names = ("dgl", "pyg")
    make = "import run; print(*[run.environment(name) for name in %r], sep='\\n')" % (names,)
    output = measure.run([sys.executable, "-c", make], PYTHONPATH=str(ROOT / "tests" / "peers")).output
    pythons = [None if line == "None" else Path(line) for line in output.splitlines()[-2:]]
    found = {name: (python, [package]) for name, python in zip(names, pythons)}
    if found["pyg"][0] is not None:
        python, more = with_sampler(found["pyg"][0])
        found["pyg"] = (python, [package, *more])
    return found


def with_sampler(python):
    """PyG's environment with torch-sparse, which samples for it; (None, []) where it cannot be compiled."""
    folder = WORK / "loader-pyg"
    can = [python, "-c", "import torch_geometric.typing as t; exit(not (t.WITH_PYG_LIB or t.WITH_TORCH_SPARSE))"]
    path = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}
    if subprocess.run(can, env=path, check=False).returncode != 0:
        print("compiling torch-sparse, which PyPI has no wheel of, for PyG", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-binary", ":all:"]
        words = [python, "-m", "pip", "install", *options, "--target", folder, *SAMPLER]
        done = subprocess.run(words, env={**os.environ, "FORCE_ONLY_CPU": "1", "CFLAGS": "-g0"}, check=False)
        if done.returncode != 0 or subprocess.run(can, env=path, check=False).returncode != 0:
            print("PyG is left out: its loader needs torch-sparse or pyg-lib", file=sys.stderr, flush=True)
            return None, []
    return python, [folder]


class Run(NamedTuple):
    batches_a_second: float
    edges_a_batch: float
    vertices_a_batch: float
    others_cpus: float


def one(contender, where, folder, batches):
    python, more = where
    words = [python, HERE / "peer.py", contender.loader, folder, FANOUTS, BATCH_SIZE, batches, THREADS, contender.workers]
    settings = TUNED if contender.tuned else {}
    child = measure.run(words, PYTHONPATH=os.pathsep.join(map(str, more)), PYTHONWARNINGS="ignore", **settings)
    said = json.loads(child.output.splitlines()[-1])
    return Run(batches / said["seconds"], said["edges"] / batches, said["vertices"] / batches, child.others_cpus)


def compare(where, graph, folder, rounds):
    """{contender: [Run]} of those whose environment is there."""
    runs = {}
    for _ in range(rounds):
        for contender in [each for own, others in FORMS.items() for each in (own, *others)]:
            if where[contender.environment][0] is None:
                continue
            run = one(contender, where[contender.environment], folder, graph.batches)
            runs.setdefault(contender, []).append(run)
            print(f"{graph.name}: {contender}: {run.batches_a_second:.1f} mini-batches/s", file=sys.stderr, flush=True)
    return runs


def median(runs, field="batches_a_second"):
    return statistics.median(getattr(run, field) for run in runs)


def show(graph, runs):
    """A row a contender. Returns [(ratio to the fastest peer, its name, form)]."""
    found = []
    for own, others in FORMS.items():
        others = [other for other in others if other in runs]
        if own not in runs:
            continue
        for contender in (own, *others):
            speeds = [run.batches_a_second for run in runs[contender]]
            ratio = median(runs[own]) / median(runs[contender])
            row = [graph.name, str(contender), f"{median(runs[contender]):.1f}", f"{min(speeds):.1f} to {max(speeds):.1f}"]
            edges, vertices = (median(runs[contender], f"{what}_a_batch") for what in ("edges", "vertices"))
            row += [f"{edges:,.0f}", f"{vertices:,.0f}", f"{ratio:.2f}", f"{median(runs[contender], 'others_cpus'):.2f}"]
            print("|", " | ".join(row), "|", flush=True)
        edges = [run.edges_a_batch for contender in (own, *others) for run in runs[contender]]
        if max(edges) > 1.02 * min(edges):
            raise BenchError(f"{graph.name}: from {min(edges):.0f} to {max(edges):.0f} edges a mini-batch were sampled")
        if others:
            fastest = max(others, key=lambda contender: median(runs[contender]))
            found.append((median(runs[own]) / median(runs[fastest]), str(fastest), str(own), graph.name))
    return found


def main():
    parser = argparse.ArgumentParser(description="Compare the time of gsplit's loader with PyG's, DGL's and GraphBolt's.")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--graph", action="append", choices=[graph.name for graph in GRAPHS], help="only this graph")
    parser.add_argument("--dataset", type=Path, metavar="DIR", help="measure this dataset, which has features and labels")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    found = []
    try:
        where = environments(package())
        with measure.alone():
            print("| graph | loader | mini-batches/s | range | edges | vertices | gsplit / this | others' CPUs |")
            print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
            if args.dataset:
                made = [(Graph(args.dataset.name, (), GRAPHS[0].batches), args.dataset.resolve())]
            else:
                wanted = [graph for graph in GRAPHS if graph.name in (args.graph or [graph.name])]
                made = [(graph, dataset(measure.binary(), graph)) for graph in wanted]
            for graph, folder in made:
                if folder is not None:
                    found += show(graph, compare(where, graph, folder, 1 if args.quick else args.rounds))
    except BenchError as error:
        sys.exit(f"error: {error}")
    if not found:
        sys.exit("error: no peer was measured: no environment could be made, or the graph is missing")
    ratio, peer, form, graph = min(found)
    print("\n" + json.dumps({"bench": "loader", "ratio": round(ratio, 3), "peer": peer, "form": form, "graph": graph}))


if __name__ == "__main__":
    main()
