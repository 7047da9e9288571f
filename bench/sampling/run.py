#!/usr/bin/env python3
"""How many edges a second gsplit samples, beside DGL 2.1.0's fused sampler.

Fanouts 15,15,15, mini-batches of 1024 seeds, two threads and one. Every run is a fresh process on the same two cores;
rounds of all contenders follow one another. Seconds are those of the sampling alone: drawing, de-duplicating,
renumbering and the CSC of every layer, after ten mini-batches that are not timed. Neither is charged for loading.
"tuned" runs have glibc keep what is freed and ask for huge pages, which helps DGL; gsplit, which keeps its memory
itself, is measured both ways, and its plain run is the one that is compared. Both must have sampled equally many edges
a mini-batch, within one percent. Edges a CPU second say what is left of a difference where other work held the cores.

Ends with one JSON line: the least ratio over the graphs of gsplit's edges a second to those of the faster DGL, with
two threads (medians). ogbn-arxiv is taken from ../shared/data, or DATA=folder, and left out where it is not there.
"""

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
from measure import ROOT, TUNED, WORK, BenchError  # noqa: E402

REAL = Path(os.environ.get("DATA") or ROOT.parent / "shared" / "data")
SAMPLER = ROOT / "target" / "release" / "examples" / "sampling"
FANOUTS, BATCH_SIZE, THREADS, ROUNDS = "15,15,15", 1024, (2, 1), 5
PEER = "DGL 2.1.0 fused"
CONTENDERS = {"gsplit": {}, "gsplit, tuned": TUNED, f"{PEER}, tuned": TUNED, PEER: {}}


class Graph(NamedTuple):
    """A dataset: its name, the command that makes it, its split, and the number of timed mini-batches."""

    name: str
    make: tuple
    batches: int


GRAPHS = (
    Graph("ogbn-arxiv", ("convert", REAL / "ogbn_arxiv", "--symmetrise"), 60),
    Graph("arxiv-like", (170_000, 1_160_000), 60),
    Graph("rmat-21", ("generate", "rmat", "--vertices", 1 << 21, "--edges", 1 << 25), 20),
    Graph("products-like", (2_400_000, 62_000_000), 20),
)


def dataset(gsplit, python, graph):
    """The dataset of `graph`, made where it is not there; None without its input."""
    folder = WORK / "data" / f"sampling-{graph.name}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    make = graph.make
    if make[0] == "convert" and not make[1].exists():
        print(f"{graph.name}: {make[1]} is not there: left out", file=sys.stderr, flush=True)
        return None
    if isinstance(make[0], int):
        raw = folder.with_name(f"{graph.name}-raw")
        if not (folder / "dataset.json").is_file():
            print(f"making {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
            measure.run([python, HERE / "graphs.py", raw, *make])
            command = ["convert", raw, "--symmetrise", "--random-split", "0.2,0.05,0.05"]
            measure.run([gsplit, *command, "--out", folder, "--quiet"])
            shutil.rmtree(raw)
        return folder
    measure.run([gsplit, *make, "--out", folder, "--quiet"])
    return folder


class Run(NamedTuple):
    edges_a_second: float
    edges_a_batch: float
    milliseconds: float
    edges_a_cpu_second: float
    others_cpus: float


def one(contender, dgl, folder, batches, threads):
    command = [dgl, HERE / "peer.py"] if contender.startswith(PEER) else [SAMPLER]
    sizes = [FANOUTS, BATCH_SIZE, batches, threads]
    child = measure.run([*command, folder, *sizes], PYTHONWARNINGS="ignore", **CONTENDERS[contender])
    said = json.loads(child.output.splitlines()[-1])
    edges, seconds = said["edges"], said["seconds"]
    milliseconds = 1e3 * seconds / batches
    return Run(edges / seconds, edges / batches, milliseconds, edges / said["cpu_seconds"], child.others_cpus)


def compare(dgl, graph, folder, rounds):
    """{(contender, threads): [Run]}; fails where a contender samples more or fewer edges than another."""
    runs = {}
    for _ in range(rounds):
        for threads in THREADS:
            for contender in CONTENDERS:
                if contender.startswith(PEER) and dgl is None:
                    continue
                run = one(contender, dgl, folder, graph.batches, threads)
                runs.setdefault((contender, threads), []).append(run)
                said = f"{graph.name}: {contender}, {threads} threads: {run.edges_a_second / 1e6:.1f} million edges/s"
                print(said, file=sys.stderr, flush=True)
    sizes = [run.edges_a_batch for found in runs.values() for run in found]
    if max(sizes) > 1.01 * min(sizes):
        raise BenchError(f"{graph.name}: from {min(sizes):.0f} to {max(sizes):.0f} edges a mini-batch were sampled")
    return runs


def median(runs, field="edges_a_second"):
    return statistics.median(getattr(run, field) for run in runs)


def show(graph, runs):
    """A row a contender. Returns gsplit's speed over that of the fastest peer, and its name; None without peers."""
    with_all = {contender: found for (contender, threads), found in runs.items() if threads == THREADS[0]}
    peers = {contender: median(found) for contender, found in with_all.items() if contender.startswith(PEER)}
    for (contender, threads), found in runs.items():
        speed, speeds = median(found), [run.edges_a_second / 1e6 for run in found]
        tuned = runs.get((f"{PEER}, tuned", threads))
        row = [graph.name, contender, str(threads), f"{speed / 1e6:.1f}", f"{min(speeds):.1f} to {max(speeds):.1f}"]
        row += [f"{median(found, 'milliseconds'):.1f}", f"{speed / median(tuned):.2f}" if tuned else ""]
        row += [f"{median(found, 'edges_a_cpu_second') / 1e6:.1f}", f"{median(found, 'others_cpus'):.2f}"]
        print("|", " | ".join(row), "|", flush=True)
    if not peers:
        return None
    fastest = max(peers, key=peers.get)
    return median(with_all["gsplit"]) / peers[fastest], fastest


def main():
    args = measure.arguments("Compare the time of gsplit's sampler with DGL's.", "one round", GRAPHS)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: max(THREADS)])
    found = []
    try:
        if not os.access(SAMPLER, os.X_OK):
            raise BenchError(f"{SAMPLER} is not there: run `make bench-sampling`, which builds it")
        gsplit, python, dgl = measure.binary(), measure.environment(), measure.dgl_environment()
        with measure.alone():
            columns = ["graph", "", "threads", "million edges/s", "range", "ms a mini-batch", "/ tuned DGL"]
            print("|", " | ".join([*columns, "million edges/CPU s", "others' CPUs"]), "|")
            print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
            for graph in GRAPHS:
                folder = None if args.graph and graph.name not in args.graph else dataset(gsplit, python, graph)
                if folder is None:
                    continue
                runs = compare(dgl, graph, folder, 1 if args.quick else ROUNDS)
                ratio = show(graph, runs)
                if ratio is not None:
                    found.append((*ratio, graph.name))
    except BenchError as error:
        sys.exit(f"error: {error}")
    if not found:
        sys.exit("error: DGL was not measured: its environment could not be made, or the graph is missing")
    ratio, peer, graph = min(found)
    print("\n" + json.dumps({"bench": "sampling", "ratio": round(ratio, 3), "peer": peer, "graph": graph}))


if __name__ == "__main__":
    main()
