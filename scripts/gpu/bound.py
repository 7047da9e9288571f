#!/usr/bin/env python3
"""The least time that a training step can take on a GPU, and which targets it leaves out of reach.

    bound.py [DATASET] [--profile FILE] [--measured FILE --batch-size N]

A mini-batch is counted on DATASET (or on a generated graph of ogbn-products' shape) by `gsplit plan`, at the peaks of a profile: bytes by
memory, products, edges that are drawn. Beside these stand what the host does: launches, and waits for the GPU. The GPU's memory is shared by
sampling, loading and computing, its tensor cores work beside it, and two threads of the host launch. A step takes at least the longest
of these. --measured is a log of `gsplit train --log` with --prefetch 1: its step stands beside the bound.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
# A mini-batch of three layers of GraphSAGE on one rank, by trainer/src/tests/waits.rs: gsplit's own launches and copies.
COMPUTING, AHEAD, WAITS = 13, 25, 2
# Launches of torch in such a step: an estimate from reading the calls of a step.
TORCH = 155
# Seconds of the host at least, assumed: a launch on a fast processor, and a round trip over PCIe.
LAUNCH, WAIT = 2e-6, 5e-6
# Three layers as run.sh trains them.
SHAPE = ("--model", "sage", "--layers", "3", "--hidden", "256", "--fanouts", "15,15,15", "--batches", "5", "--systems", "dgl", "--ranks", "2")
GRAPH = ("--vertices", "2400000", "--edges", "62000000", "--feature-dim", "100", "--feature-dtype", "f16", "--classes", "47")
PRODUCTS, MEMORY = ("products",), ("aggregation", "element-wise operations", "update")


class Step(NamedTuple):
    """The least seconds of each resource."""

    drawing: float
    loading: float
    memory: float
    products: float
    edges: float
    steps: int

    def computing(self):
        """Of the stream that computes."""
        return max(self.memory + self.products, LAUNCH * (COMPUTING + TORCH))

    def ahead(self):
        """Of the stream that makes mini-batches."""
        return max(self.drawing + self.loading, LAUNCH * AHEAD + WAIT * WAITS)

    def bound(self):
        return max(self.computing(), self.ahead(), self.drawing + self.loading + self.memory)


def gsplit():
    places = (os.environ.get("GSPLIT"), HERE / "gsplit", HERE.parent.parent / "target" / "release" / "gsplit")
    found = [place for place in places if place and os.access(place, os.X_OK)]
    return str(found[0]) if found else sys.exit("error: no gsplit: run `make build`, or set GSPLIT")


def counted(dataset, profile, batch_size, *more):
    """Draws a mini-batch of `seeds` seeds."""
    words = ["plan", dataset, *SHAPE, "--batch-size", str(batch_size), "--profile", profile, *more, "--json", "--quiet"]
    said = json.loads(subprocess.run([gsplit(), *words], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    row = next(row for row in said["plans"] if row["name"] == "one rank")
    seconds = {piece["what"]: piece["seconds"] for piece in row["cost"]["pieces"]}
    loading = sum(taken for what, taken in seconds.items() if what.startswith("feature rows"))
    memory, products = (sum(seconds[what] for what in names) for names in (MEMORY, PRODUCTS))
    edges = sum(layer["edges"] for layer in row["work"]["layers"])
    return Step(seconds["drawing"], loading, memory, products, edges, row["steps"])


def table(steps, bandwidth):
    """Of {(type of numbers, seeds): Step}."""
    print("| seeds | drawing | loading | memory of computing | products | host, computing | host, ahead | a step at least | bound by | GB moved |")
    print("| --- " + "| ---: " * 7 + "| --- | ---: |")
    host = (LAUNCH * (COMPUTING + TORCH), LAUNCH * AHEAD + WAIT * WAITS)
    for (dtype, seeds), step in steps.items():
        device = step.drawing + step.loading + step.memory
        cells = (step.drawing, step.loading, step.memory, step.products, *host, step.bound())
        by = "launches" if step.bound() == host[0] else "memory" if step.bound() == device else "computing"
        times = " | ".join(f"{1e3 * seconds:.3f}" for seconds in cells)
        print(f"| {dtype}, {seeds:,} | {times} | {by} | {device * bandwidth / 1e9:.1f} |")


def targets(steps, narrow):
    """Each target, and whether the bound leaves room for it."""
    small, large = min(steps), max(steps)
    drawn = steps[large].edges / steps[large].ahead()
    busy = [steps[seeds].memory + steps[seeds].products for seeds in (small, large)]
    both = steps[large]
    shared = both.bound() / max(both.computing(), both.ahead())
    yield f"1.5 billion sampled edges/s, {large:,} seeds", drawn >= 1.5e9, f"{drawn / 1e9:.1f} billion at most"
    idle = LAUNCH * (COMPUTING + TORCH)
    yield f"no gap on the stream that computes, {small:,} seeds", busy[0] >= idle, f"{1e3 * busy[0]:.2f} ms of work, {1e3 * idle:.2f} ms to launch it"
    yield f"the same, {large:,} seeds", busy[1] >= idle, f"{1e3 * busy[1]:.2f} ms of work, {1e3 * idle:.2f} ms to launch it"
    yield f"--prefetch 1: the longer of both and a tenth, {large:,} seeds", shared <= 1.1, f"{shared:.2f} times the longer: both read the same memory"
    for seeds in (small, large):
        ratio = narrow[seeds].computing() / steps[seeds].computing()
        yield f"--dtype bf16: 0.6 of the time of compute, {seeds:,} seeds", ratio <= 0.6, f"{ratio:.2f} at least"


def main():
    parser = argparse.ArgumentParser(description="The least time that a training step can take on a GPU.")
    parser.add_argument("dataset", nargs="?", help="a dataset with features and a training split [default: one is generated]")
    parser.add_argument("--profile", default=str(HERE / "h200.toml"), help="the GPU, at its peaks [default: one H200]")
    parser.add_argument("--measured", help="a log of gsplit train --log with three layers of 256")
    parser.add_argument("--batch-size", type=int, default=4096, help="its seeds of a mini-batch [default: 4096]")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dataset = args.dataset or f"{folder}/products"
        if not args.dataset:
            words = ["generate", "community", *GRAPH, "--random-split", "0.08,0.02,0.02", "--out", dataset, "--quiet"]
            subprocess.run([gsplit(), *words], check=True)
        steps, narrow = {}, {}
        for seeds in sorted({1024, args.batch_size, 8192}):
            steps[seeds] = counted(dataset, args.profile, seeds)
            narrow[seeds] = counted(dataset, args.profile, seeds, "--dtype", "bf16")
    print("milliseconds of a step, each at least")
    bandwidth = tomllib.loads(Path(args.profile).read_text())["rows"]
    table({(dtype, seeds): step for dtype, of in (("f32", steps), ("bf16", narrow)) for seeds, step in of.items()}, bandwidth)
    if args.measured:
        epochs = [json.loads(line) for line in Path(args.measured).read_text().splitlines() if '"seconds"' in line]
        step = steps[args.batch_size]
        taken = epochs[-1]["seconds"] / step.steps
        print(f"measured, {args.batch_size:,} seeds: {1e3 * taken:.3f} ms, {taken / step.bound():.2f} times the bound")
    for target, can, why in targets(steps, narrow):
        print(f"{'can be met' if can else 'CANNOT be met'}: {target}: {why}")


if __name__ == "__main__":
    main()
