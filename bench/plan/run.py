#!/usr/bin/env python3
"""How well `gsplit plan` predicts this machine: every system it ranks is trained, on five graphs.

The profile is measured once. Of each graph the plan ranks the systems on two ranks, by 20 simulated mini-batches; then each is trained, those
that stand apart too, as the plan's own options say, in a fresh process of two epochs, of which the second counts; rounds of all follow one another. Three
layers of GraphSAGE-mean, fanouts 15,10,5, hidden 128, mini-batches of 512 seeds, f32.

Printed are predicted and measured seconds, their rank correlation (Spearman), the mean error of a prediction, and how much slower the
first of the plan is than the fastest measured of those on the same mini-batches. Ends with one JSON line: the least ratio over graphs of the fastest's seconds to those of
the one that was picked.
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

SHAPE = ["--model", "sage", "--layers", 3, "--hidden", 128]
DRAWN = ["--fanouts", "15,10,5", "--batch-size", 512]
THREADS, ROUNDS, EPOCHS = 2, 2, 2


class Graph(NamedTuple):
    name: str
    options: tuple


# Few edges cross, most cross, degrees are skewed, rows are wide, in-neighbours are many.
GRAPHS = (
    Graph("near", ("--vertices", 100_000, "--edges", 600_000, "--mixing", 0.05, "--feature-dim", 128)),
    Graph("far", ("--vertices", 60_000, "--edges", 600_000, "--mixing", 0.9, "--feature-dim", 128)),
    Graph("skewed", ("--vertices", 100_000, "--edges", 600_000, "--exponent", 2.1, "--feature-dim", 128)),
    Graph("wide", ("--vertices", 40_000, "--edges", 240_000, "--feature-dim", 600)),
    Graph("dense", ("--vertices", 30_000, "--edges", 1_500_000, "--feature-dim", 100)),
)
DATA = measure.WORK / "data"


def dataset(gsplit, graph):
    """The dataset of `graph`, made where it is not there."""
    folder = DATA / f"plan-{graph.name}"
    if not (folder / "dataset.json").is_file():
        options = ["--random-split", "0.3,0.1,0.1", "--out", folder, "--quiet"]
        measure.run([gsplit, "generate", "community", *graph.options, *options])
    return folder


def plan(gsplit, folder, profile):
    child = measure.run([gsplit, "plan", folder, *SHAPE, *DRAWN, "--profile", profile, "--ranks", "2", "--threads", THREADS, "--json"])
    said = json.loads(child.output.splitlines()[-1])
    return said["plans"], said["apart"]


def seconds(gsplit, folder, options):
    words = [word for option in options for word in option.split()]
    run = ["--epochs", EPOCHS, "--eval-every", 0, "--threads", THREADS, "--json"]
    child = measure.run([gsplit, "train", folder, *words, *run])
    return json.loads(child.output.splitlines()[-1])["summary"]["epochs"][-1]["seconds"]


def ranks_of(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(at) for at in range(len(values))]


def spearman(one, other):
    a, b = ranks_of(one), ranks_of(other)
    n = len(a)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b)) / (n * (n * n - 1)) if n > 1 else 1.0


def check(gsplit, name, folder, profile, rounds):
    """Prints a row per system. Returns the cost of the pick over the best, the correlation, and the mean error."""
    ranked, apart = plan(gsplit, folder, profile)
    plans = ranked + apart
    measured = {}
    for _ in range(rounds):
        for at, row in enumerate(plans):
            measured.setdefault(at, []).append(seconds(gsplit, folder, row["options"]))
    middle = [statistics.median(measured[at]) for at in range(len(plans))]
    predicted = [row["epoch_s"] for row in plans]
    for row, ours, theirs in zip(plans, predicted, middle):
        print(f"| {name} | {row['name']} | {row['ranks']} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} | {row['bound']} |", flush=True)
    error = statistics.mean(abs(ours - theirs) / theirs for ours, theirs in zip(predicted, middle))
    alike = middle[: len(ranked)]
    return min(alike) / alike[0], spearman(predicted, middle), error, alike[0] == max(alike)


def main():
    args = measure.arguments("Train every system that gsplit plan ranks, and compare.", "one round", GRAPHS)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    found = []
    try:
        gsplit = measure.binary()
        with measure.alone():
            profile = DATA / "plan-profile.toml"
            profile.parent.mkdir(parents=True, exist_ok=True)
            profile.unlink(missing_ok=True)
            measure.run([gsplit, "doctor", "--profile", profile, "--threads", THREADS])
            print("| graph | system | ranks | predicted (s) | measured (s) | predicted / measured | bound by |\n| --- | --- " + "| ---: " * 4 + "| --- |")
            for graph in GRAPHS:
                if not args.graph or graph.name in args.graph:
                    folder = dataset(gsplit, graph)
                    found.append((graph.name, *check(gsplit, graph.name, folder, profile, 1 if args.quick else ROUNDS)))
    except BenchError as error:
        sys.exit(f"error: {error}")
    print()
    for name, ratio, correlation, error, worst in found:
        note = ", which is the slowest" if worst else ""
        print(f"{name}: best / picked {ratio:.2f}{note}; rank correlation {correlation:.2f}; mean error {100 * error:.0f} %")
    ratio, graph = min((ratio, name) for name, ratio, *_ in found)
    print("\n" + json.dumps({"bench": "plan", "ratio": round(ratio, 3), "graph": graph}))


if __name__ == "__main__":
    main()
