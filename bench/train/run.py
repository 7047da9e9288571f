#!/usr/bin/env python3
"""How long gsplit trains on a mini-batch, beside DGL 2.1.0 with its fused sampler.

Three layers, fanouts 15,10,5, hidden 256, mini-batches of 1024 seeds, dropout 0.5, Adam, f32, two threads; GraphSAGE-mean
and GAT with two heads; gsplit also with its products in bf16, which no other contender has. Every run is a fresh process on the same two
cores; rounds of all contenders follow one another. The same graph, features, split and number of seeds; each draws its own samples, whose
sizes must agree within one percent. Nothing is overlapped, but in "prefetch 1", gsplit's default, which prepares one mini-batch ahead.
gsplit's floor is the products of its own epoch by themselves, in the same sizes and number, computed by the process that trained
(trainer/examples/operators.rs --step). gsplit's first epoch is not timed, nor are DGL's first ten mini-batches; loading the
dataset is charged to neither. "tuned" runs have glibc keep what is freed and ask for huge pages, which helps DGL. Peak
memory is that of the whole process, with what is mapped of the dataset.

Ends with one JSON line: the least ratio over graphs and models of the faster DGL's milliseconds a mini-batch to
gsplit's (medians). ogbn-arxiv's topology is taken from ../shared/data, or DATA=folder, with its labels and
generated features, and left out where it is not there.
"""

import json
import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import NamedTuple, Optional

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import MIB, ROOT, WORK, BenchError  # noqa: E402

REAL = Path(os.environ.get("DATA") or ROOT.parent / "shared" / "data")
GRAPHS_PY = HERE.parent / "sampling" / "graphs.py"
OPERATORS = ROOT / "target" / "release" / "examples" / "operators"
HEADS = {"sage": [], "gat": ["--heads", 2]}
FANOUTS, BATCH_SIZE, HIDDEN, THREADS, ROUNDS = "15,10,5", 1024, 256, 2, 5
PEER = "DGL 2.1.0 fused"
CONTENDERS = {"gsplit": {}, "gsplit, prefetch 1": {}, "gsplit, bf16": {}, f"{PEER}, tuned": measure.TUNED, PEER: {}}


class Graph(NamedTuple):
    """A dataset: its name, the command that makes it, its split, and the models trained on it."""

    name: str
    make: tuple
    split: str
    models: tuple


GRAPHS = (
    Graph("ogbn-arxiv", (REAL / "ogbn_arxiv", 128), "0.3,0.1,0.1", ("sage",)),
    Graph("arxiv-like", (170_000, 1_160_000, 128), "0.3,0.1,0.1", ("sage", "gat")),
    Graph("products-like", (2_400_000, 62_000_000, 100), "0.02,0.01,0.01", ("sage",)),
)


def dataset(gsplit, python, graph):
    """The dataset of `graph`, made where it is not there; None without its input."""
    folder = WORK / "data" / f"train-{graph.name}"
    if isinstance(graph.make[0], Path) and not graph.make[0].exists():
        print(f"{graph.name}: {graph.make[0]} is not there: left out", file=sys.stderr, flush=True)
        return None
    if not (folder / "dataset.json").is_file():
        print(f"making {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
        raw = folder.with_name(f"{folder.name}-raw")
        measure.run([python, GRAPHS_PY, raw, *graph.make])
        options = ["--symmetrise", "--random-split", graph.split]
        measure.run([gsplit, "convert", raw, *options, "--out", folder, "--quiet"])
        shutil.rmtree(raw)
    return folder


class Run(NamedTuple):
    milliseconds: float
    phases: dict
    edges: float
    peak_mib: float
    others_cpus: float
    loss: float
    times_products: Optional[float]


def one(contender, dgl, folder, model, seeds):
    """One run; `seeds` is the size of the training split."""
    whole = seeds // BATCH_SIZE
    if contender.startswith(PEER):
        words = [folder, model, HIDDEN, FANOUTS, BATCH_SIZE, whole, THREADS]
        child = measure.run([dgl, HERE / "peer.py", *words], PYTHONWARNINGS="ignore", **CONTENDERS[contender])
        said = json.loads(child.output.splitlines()[-1])
        batches, seconds, phases = whole, said["seconds"], said["phases"]
        edges, loss, times_products = said["edges"], said["loss"], None
    else:
        shape = ["--model", model, "--hidden", HIDDEN, *HEADS[model], "--fanouts", FANOUTS, "--batch-size", BATCH_SIZE]
        dtype = "bf16" if contender.endswith("bf16") else "f32"
        prefetch = int(contender.endswith("prefetch 1"))
        run = ["--dtype", dtype, "--parallelism", "single", "--prefetch", prefetch, "--epochs", 2, "--eval-every", 0]
        words = ["train", folder, *shape, *run, "--threads", THREADS, "--json"]
        child = measure.run([measure.binary(), *words], **CONTENDERS[contender])
        said = json.loads(child.output.splitlines()[-1])["summary"]["epochs"][-1]
        floor = measure.run([OPERATORS, "--step", folder, *shape, *run])
        times_products = json.loads(floor.output.splitlines()[-1])["times_products"]
        # The last mini-batch is a part of one.
        batches, seconds, edges, loss = seeds / BATCH_SIZE, said["seconds"], said["edges"], said["loss"]
        phases = {name: said[f"{name}_s"] for name in ("sample", "load", "compute")}
    milliseconds = {name: 1e3 * taken / batches for name, taken in phases.items()}
    return Run(
        1e3 * seconds / batches,
        milliseconds,
        edges / batches,
        child.peak_bytes / MIB,
        child.others_cpus,
        loss,
        times_products,
    )


def compare(dgl, graph, model, folder, rounds):
    """{contender: [Run]}; fails where a contender samples more or fewer edges than another."""
    runs = {}
    seeds = json.loads(measure.run([measure.binary(), "inspect", folder, "--json"]).output)["splits"]["train"]
    for _ in range(rounds):
        for contender in CONTENDERS:
            run = one(contender, dgl, folder, model, seeds)
            runs.setdefault(contender, []).append(run)
            said = f"{graph.name} {model}: {contender}: {run.milliseconds:.0f} ms a mini-batch"
            print(said, file=sys.stderr, flush=True)
    sizes = [run.edges for found in runs.values() for run in found]
    if max(sizes) > 1.01 * min(sizes):
        raise BenchError(f"{graph.name}: from {min(sizes):.0f} to {max(sizes):.0f} edges a mini-batch were sampled")
    return runs


def median(runs, field):
    return statistics.median(getattr(run, field) for run in runs)


def show(graph, model, runs):
    """A row a contender. Returns the faster DGL's time over gsplit's, and its name."""
    ours = median(runs["gsplit"], "milliseconds")
    for contender, found in runs.items():
        taken = [run.milliseconds for run in found]
        middle = sorted(found, key=lambda run: run.milliseconds)[len(found) // 2]
        phases = ", ".join(f"{name} {spent:.0f}" for name, spent in middle.phases.items())
        row = [f"{graph.name}, {model}", contender, f"{median(found, 'milliseconds'):.0f}"]
        row += [f"{min(taken):.0f} to {max(taken):.0f}", f"{median(found, 'milliseconds') / ours:.2f}"]
        row += ["" if found[0].times_products is None else f"{median(found, 'times_products'):.2f}", phases]
        row += [f"{median(found, 'peak_mib'):.0f}", f"{median(found, 'others_cpus'):.2f}"]
        print("|", " | ".join(row), "|", flush=True)
    peers = {name: median(found, "milliseconds") for name, found in runs.items() if name.startswith(PEER)}
    fastest = min(peers, key=peers.get)
    return peers[fastest] / ours, fastest


def main():
    args = measure.arguments("Compare the time of gsplit's training with DGL's.", "one round", GRAPHS)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    found = []
    try:
        gsplit, python, dgl = measure.binary(), measure.environment(), measure.dgl_environment()
        if dgl is None:
            raise BenchError("the environment of DGL could not be made: there is nothing to compare with")
        with measure.alone():
            columns = ["graph, model", "", "ms a mini-batch", "range", "/ gsplit", "/ its products", "phases, ms", "peak MiB"]
            print("|", " | ".join([*columns, "others' CPUs"]), "|")
            print("| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |", flush=True)
            for graph in GRAPHS:
                folder = None if args.graph and graph.name not in args.graph else dataset(gsplit, python, graph)
                for model in graph.models if folder else ():
                    runs = compare(dgl, graph, model, folder, 1 if args.quick else ROUNDS)
                    found.append((*show(graph, model, runs), f"{graph.name}, {model}"))
    except BenchError as error:
        sys.exit(f"error: {error}")
    if not found:
        sys.exit("error: nothing was measured: the graph is missing")
    ratio, peer, graph = min(found)
    print("\n" + json.dumps({"bench": "train", "ratio": round(ratio, 3), "peer": peer, "graph": graph}))


if __name__ == "__main__":
    main()
