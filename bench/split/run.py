#!/usr/bin/env python3
"""How long an epoch takes with one rank, data-parallel, split-parallel in whole or in part, and with owned seeds, on the same two cores.

Three layers of GraphSAGE-mean, fanouts 15,10,5, hidden 256, mini-batches of 1024 seeds, dropout 0.5, Adam, f32; 2 and 4 ranks,
which are threads, with maps of gsplit's partitioner and the weights of ten presampled epochs. Every run is a fresh process that
trains two epochs, of which the second counts; rounds of all contenders follow one another. Losses must agree up to rounding.
The graphs are those of `make bench-train`.

Split parallelism does less work than data parallelism, so it is to take less time; beside one rank, which exchanges nothing, it is
to lose little. With owned seeds a rank computes the neighbourhoods of the seeds of its part, and nothing is exchanged; `split 1` and
`split 2` do so above the lowest 1 and 2 layers, which are split.
Ends with one JSON line: the least ratio over graphs and ranks of data's seconds to split's (medians).
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
from measure import BenchError  # noqa: E402

SHAPE = ["--model", "sage", "--layers", 3, "--fanouts", "15,10,5", "--hidden", 256, "--batch-size", 1024]
THREADS, ROUNDS, EPOCHS = 2, 5, 2
CONTENDERS = (
    *(("single", 1), ("data", 2), ("data", 4), ("split", 2), ("split", 4)),
    *(("split 2", 4), ("split 1", 4), ("owned", 2), ("owned", 4)),
)


class Run(NamedTuple):
    seconds: float
    compute_s: float
    exchange_s: float
    wait_s: float
    edges: int
    rows_loaded: int
    rows_exchanged: int
    loss: float


def prepare(gsplit, folder):
    """Presample and maps, where they are not there; they are reused."""
    presample = [gsplit, "presample", folder, "--fanouts", "15,10,5", "--batch-size", 1024, "--key", "bench-split", "--quiet"]
    measure.run(presample)
    for ranks in sorted({ranks for _, ranks in CONTENDERS if ranks > 1}):
        options = ["--presample", "bench-split", "--key", f"bench-split-{ranks}", "--quiet"]
        measure.run([gsplit, "partition", folder, "--parts", ranks, *options])


def one(gsplit, folder, sharing, ranks):
    parallelism, *split_layers = sharing.split()
    run = ["--parallelism", parallelism, "--epochs", EPOCHS, "--eval-every", 0, "--threads", THREADS, "--prefetch", 0]
    if ranks > 1:
        run += ["--ranks", ranks]
    if parallelism in ("split", "owned"):
        run += ["--partition", f"bench-split-{ranks}"]
    if split_layers:
        run += ["--split-layers", *split_layers]
    child = measure.run([gsplit, "train", folder, *SHAPE, *run, "--json"])
    said = json.loads(child.output.splitlines()[-1])["summary"]["epochs"][-1]
    return Run(*(said[field] for field in Run._fields))


def compare(gsplit, name, folder, rounds):
    """{contender: [Run]}; fails where losses differ."""
    runs = {}
    for _ in range(rounds):
        for contender in CONTENDERS:
            run = one(gsplit, folder, *contender)
            runs.setdefault(contender, []).append(run)
            print(f"{name}: {' '.join(map(str, contender))}: {run.seconds:.1f} s", file=sys.stderr, flush=True)
    losses = [run.loss for found in runs.values() for run in found]
    if max(losses) - min(losses) > 1e-3 * max(losses):
        raise BenchError(f"{name}: losses from {min(losses)} to {max(losses)}")
    return runs


def show(name, runs):
    """A row a contender. Returns the ratios of data's time to split's."""
    middle = {who: {field: statistics.median(getattr(run, field) for run in found) for field in Run._fields} for who, found in runs.items()}
    single = middle[("single", 1)]
    for (parallelism, ranks), found in middle.items():
        row = [name, parallelism, ranks, f"{found['seconds']:.1f}", f"{found['seconds'] / single['seconds']:.2f}"]
        row += [f"{found[field]:.1f}" for field in ("compute_s", "exchange_s", "wait_s")]
        row += [f"{found[field] / single[field]:.2f}" for field in ("edges", "rows_loaded")]
        row += [f"{found['rows_exchanged'] / single['edges']:.3f}"]
        print("|", " | ".join(map(str, row)), "|", flush=True)
    return [(middle[("data", ranks)]["seconds"] / found["seconds"], name, ranks) for (who, ranks), found in middle.items() if who == "split"]


def main():
    train = measure.script("train/run.py")
    args = measure.arguments("Compare the time of split parallelism with data parallelism and one rank.", "one round", train.GRAPHS)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    found = []
    try:
        gsplit, python = measure.binary(), measure.environment()
        with measure.alone():
            columns = ["graph", "", "ranks", "s an epoch", "/ single", "compute", "exchange", "of that, waiting", "edges / single", "rows loaded / single"]
            print("|", " | ".join([*columns, "rows exchanged / edges"]), "|")
            print("| --- | --- |" + " ---: |" * 9, flush=True)
            for graph in train.GRAPHS:
                folder = None if args.graph and graph.name not in args.graph else train.dataset(gsplit, python, graph)
                if folder:
                    prepare(gsplit, folder)
                    found += show(graph.name, compare(gsplit, graph.name, folder, 1 if args.quick else ROUNDS))
    except BenchError as error:
        sys.exit(f"error: {error}")
    if not found:
        sys.exit("error: nothing was measured: the graph is missing")
    ratio, graph, ranks = min(found)
    print("\n" + json.dumps({"bench": "split", "ratio": round(ratio, 3), "graph": graph, "ranks": ranks}))


if __name__ == "__main__":
    main()
