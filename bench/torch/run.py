#!/usr/bin/env python3
"""How long an epoch of training in PyTorch takes with gsplit's loaders, beside those of PyG and DGL.

Three layers of GraphSAGE-mean, hidden 256, fanouts 15,10,5, mini-batches of 1024 seeds, Adam, f32, as many threads as cores, at most
four: forward, backward and update included (peer.py). Every run is a fresh process, or one a rank; rounds of all contenders follow one
another. The seconds are those of a part of an epoch, after five mini-batches that are not timed; an epoch is as many times
longer as it has more mini-batches. Layers are PyG's or DGL's, the same for a peer and what is compared with it. Peers
load in the main process and with two workers; the fastest counts. All run with glibc settings that keep freed memory and
ask for huge pages, and with OMP_WAIT_POLICY=passive: without either all are slower on machines that others use too. "Held"
mini-batches lie in memory: this floor is the model alone.

The partition is gsplit's own, and rows exchanged between two ranks must be those that `gsplit evaluate` counts. The
environments are those of `make bench-loader`, and so is the graph: ogbn-arxiv with 128 generated features.

Ends with one JSON line: ratios of seconds, and of CPU seconds, by medians.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import TUNED, BenchError  # noqa: E402

FANOUTS, BATCH_SIZE, BATCHES, WARM_UP, ROUNDS, KEY = "15,10,5", 1024, 40, 5, 5, "bench-torch"
MOST_CORES = 4
SETTINGS = {**TUNED, "OMP_WAIT_POLICY": "passive", "PYTHONWARNINGS": "ignore"}


class Contender(NamedTuple):
    """A contender of peer.py: its environment, its worker processes, its ranks."""

    name: str
    environment: str
    workers: int = 0
    ranks: int = 1

    def __str__(self):
        workers = f", {self.workers} workers" if self.workers else ""
        ranks = f", {self.ranks} processes" if self.ranks > 1 else ""
        return f"{NAMES[self.name]}{workers}{ranks}"


NAMES = {
    "pyg": "PyG's loader and layers",
    "gsplit-pyg": "`NeighborLoader`, PyG's layers",
    "split": "`SplitLoader`, PyG's layers",
    "dgl": "DGL's loader and layers",
    "split-dgl": "`SplitLoader`, DGL's layers",
    "held-pyg": "held, PyG's layers on one graph",
    "held-split": "held, PyG's layers on bipartite graphs",
    "held-dgl": "held, DGL's layers",
}
SINGLE, WHOLE, FOR_DGL = Contender("split", "pyg"), Contender("gsplit-pyg", "pyg"), Contender("split-dgl", "dgl")
PEERS = {peer: [Contender(peer, peer, workers) for workers in (0, 2)] for peer in ("pyg", "dgl")}
FLOORS = {of: Contender(f"held-{name}", of.environment) for of, name in ((WHOLE, "pyg"), (SINGLE, "split"), (FOR_DGL, "dgl"))}


def split_over(ranks):
    return Contender("split", "pyg", ranks=ranks)


def contenders(ranks):
    several = [split_over(size) for size in ranks]
    return [*PEERS["pyg"], WHOLE, SINGLE, *several, *PEERS["dgl"], FOR_DGL, *FLOORS.values()]


class Run(NamedTuple):
    seconds: float
    cpu_seconds: float
    sections: dict
    edges: int
    rows_loaded: int
    rows_exchanged: int
    loss: float
    others_cpus: float


def prepare(gsplit, folder, ranks):
    """A presample and a partition for each number of ranks; they are reused."""
    shape = ["--fanouts", FANOUTS, "--batch-size", BATCH_SIZE]
    measure.run([gsplit, "presample", folder, *shape, "--key", KEY, "--quiet"])
    for parts in ranks:
        measure.run([gsplit, "partition", folder, "--parts", parts, "--presample", KEY, "--key", f"{KEY}-{parts}", "--quiet"])


def promised(gsplit, folder, parts, batches):
    """(edges, rows loaded, rows exchanged) that `gsplit evaluate` counts in the first mini-batches of seed 0."""
    options = ["--partition", f"{KEY}-{parts}", "--presample", KEY, "--batches", batches, "--seed", 0, "--json"]
    maps = json.loads(measure.run([gsplit, "evaluate", folder, *options]).output)["maps"]
    (found,) = (one for one in maps if one["key"] == f"{KEY}-{parts}")
    split = found["split_layers"][-1]
    edges = sum(layer["edges"] for layer in split["layers"])
    means = edges, split["rows_loaded"], found["all"]["rows_exchanged"]
    return tuple(round(mean * batches) for mean in means)


def one(contender, where, folder, batches):
    python, more = where
    threads = len(os.sched_getaffinity(0))
    words = [HERE / "peer.py", contender.name, folder, FANOUTS, BATCH_SIZE, batches, threads, contender.workers]
    if contender.ranks > 1:
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", contender.ranks, *words]
    child = measure.run([python, *words], PYTHONPATH=os.pathsep.join(map(str, more)), **SETTINGS)
    said = json.loads(child.output.splitlines()[-1])
    return Run(*(said[field] for field in Run._fields[:-1]), child.others_cpus)


def compare(where, folder, ranks, rounds, batches):
    """{contender: [Run]} of those whose environment is there."""
    runs = {}
    for number in range(rounds):
        for contender in contenders(ranks):
            if where[contender.environment][0] is not None:
                run = one(contender, where[contender.environment], folder, batches)
                runs.setdefault(contender, []).append(run)
                told = f"round {number + 1}: {contender}: {1e3 * run.seconds / batches:.0f} ms a mini-batch"
                print(told, file=sys.stderr, flush=True)
    return runs


def median(runs, field="seconds"):
    return statistics.median(getattr(run, field) for run in runs)


def fastest(runs, among, field="seconds"):
    return min((median(runs[each], field) for each in among if each in runs), default=None)


def show(runs, batches, epoch):
    """A row a contender; an epoch has `epoch` mini-batches."""
    print("| | epoch, s | range | CPU s of an epoch | ms a mini-batch on rank 0 | others' CPUs |")
    print("| --- | ---: | ---: | ---: | --- | ---: |")
    whole = epoch / batches
    for contender, found in runs.items():
        taken = [run.seconds * whole for run in found]
        middle = sorted(found, key=lambda run: run.seconds)[len(found) // 2]
        sections = ", ".join(
            f"{name} {1e3 * spent / batches:.0f}" for name, spent in middle.sections.items() if 1e3 * spent >= batches / 2
        )
        row = [str(contender), f"{statistics.median(taken):.1f}", f"{min(taken):.1f} to {max(taken):.1f}"]
        row += [f"{median(found, 'cpu_seconds') * whole:.1f}", sections, f"{median(found, 'others_cpus'):.2f}"]
        print("|", " | ".join(row), "|", flush=True)


def ratios(runs, ranks):
    """The measurements that have targets, by seconds and by CPU seconds; without unmeasured ones."""
    pairs = {
        "NeighborLoader / PyG": (WHOLE, PEERS["pyg"]),
        "SplitLoader / PyG": (SINGLE, PEERS["pyg"]),
        "SplitLoader / DGL": (FOR_DGL, PEERS["dgl"]),
        **{f"{size} ranks / 1": (split_over(size), [SINGLE]) for size in ranks},
        **{f"{NAMES[of.name]} / model alone": (of, [floor]) for of, floor in FLOORS.items()},
    }
    found = {}
    for name, (own, others) in pairs.items():
        for field, suffix in (("seconds", ""), ("cpu_seconds", ", CPU")):
            other = fastest(runs, others, field)
            if own in runs and other:
                found[name + suffix] = round(median(runs[own], field) / other, 2)
    return found


def check(gsplit, folder, runs, ranks, batches):
    """Fails where ranks learn or do another thing than one, or not what `gsplit evaluate` counts. Returns rows exchanged."""
    exchanged = {}
    for size in ranks:
        expected = promised(gsplit, folder, size, batches + WARM_UP)
        for run in runs.get(split_over(size), []):
            counts = run.edges, run.rows_loaded, run.rows_exchanged
            if counts != expected:
                raise BenchError(f"{size} ranks: edges, rows loaded and exchanged {counts}, evaluate counts {expected}")
            loss = runs[SINGLE][0].loss
            if abs(run.loss - loss) > 1e-3 * loss:
                raise BenchError(f"{size} ranks: loss {run.loss}, of one rank {loss}")
            exchanged[f"rows exchanged by {size} ranks, as evaluate counts"] = run.rows_exchanged
    return exchanged


def main():
    parser = argparse.ArgumentParser(description="Compare training in PyTorch with gsplit's loaders to PyG's and DGL's.")
    parser.add_argument("--quick", action="store_true", help="one round of ten mini-batches")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--batches", type=int, default=BATCHES, metavar="N", help="mini-batches that are timed in a run")
    args = parser.parse_args()
    rounds, batches = (1, 10) if args.quick else (args.rounds, args.batches)
    cores = sorted(os.sched_getaffinity(0))[:MOST_CORES]
    os.sched_setaffinity(0, cores)
    # Each rank has a core at least.
    ranks = [size for size in (2, 4) if size <= len(cores)]
    try:
        gsplit, loader = measure.binary(), measure.script("loader/run.py")
        where = loader.environments(loader.package())
        folder = loader.dataset(gsplit, loader.GRAPHS[0])
        if folder is None or where["pyg"][0] is None:
            raise BenchError("nothing to measure: the graph is missing, or PyG's environment could not be made")
        prepare(gsplit, folder, ranks)
        epoch = json.loads(measure.run([gsplit, "inspect", folder, "--json"]).output)["splits"]["train"] // BATCH_SIZE
        if WARM_UP + batches > epoch:
            raise BenchError(f"--batches {batches}: with {WARM_UP} that are not timed expected at most {epoch}, an epoch")
        with measure.alone():
            runs = compare(where, folder, ranks, rounds, batches)
        show(runs, batches, epoch)
        exchanged = check(gsplit, folder, runs, ranks, batches)
    except BenchError as error:
        sys.exit(f"error: {error}")
    print("\n" + json.dumps({"bench": "torch", **ratios(runs, ranks), **exchanged}))


if __name__ == "__main__":
    main()
