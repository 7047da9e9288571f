#!/usr/bin/env python3
"""How accurate gsplit's GraphSAGE becomes, beside that of DGL 2.1.0, after equal epochs.

ogbn-arxiv's topology and labels with generated features (the graph of `make bench-train`): the same rows, edges and split
for both. Three layers, fanouts 15,10,5, hidden 256, mini-batches of 1024 seeds, dropout 0.5, Adam at 0.003, five epochs,
seeds 0, 1 and 2; each draws its own samples, and initial weights from the same distribution.
After every epoch both infer with all neighbours. Told are the test accuracy of the epoch with the best valid
accuracy, and that of the last epoch.

Ends with one JSON line: gsplit's mean test accuracy over DGL's. It is no measurement of speed: other work may go on.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import BenchError  # noqa: E402

GRAPH, MODEL, HIDDEN, FANOUTS, BATCH_SIZE, THREADS = "ogbn-arxiv", "sage", 256, "15,10,5", 1024, 2
LEARNING_RATE, EPOCHS, SEEDS = 0.003, 5, (0, 1, 2)
PEER = "DGL 2.1.0"


def ours(folder, seed, epochs):
    shape = ["--model", MODEL, "--layers", 3, "--hidden", HIDDEN, "--fanouts", FANOUTS, "--batch-size", BATCH_SIZE]
    run = ["--parallelism", "single", "--lr", LEARNING_RATE, "--epochs", epochs, "--seed", seed, "--threads", THREADS]
    child = measure.run([measure.binary(), "train", folder, *shape, *run, "--json"])
    return json.loads(child.output.splitlines()[-1])["summary"]["epochs"]


def theirs(dgl, folder, seed, epochs):
    words = [MODEL, HIDDEN, FANOUTS, BATCH_SIZE, epochs, LEARNING_RATE, seed, THREADS]
    child = measure.run([dgl, HERE / "peer.py", folder, *words], PYTHONWARNINGS="ignore", **measure.TUNED)
    return json.loads(child.output.splitlines()[-1])["epochs"]


def show(contender, runs):
    """A row: the scores of each seed. Returns the mean of the first."""
    best = [max(epochs, key=lambda epoch: epoch["valid"])["test"] for epochs in runs]
    cells = [best, [epochs[-1]["test"] for epochs in runs], [epochs[-1]["loss"] for epochs in runs]]
    spread = statistics.stdev(best) if len(best) > 1 else 0.0
    first, *others = (", ".join(f"{score:.4f}" for score in scores) for scores in cells)
    row = [contender, first, f"{statistics.mean(best):.4f} ± {spread:.4f}", *others]
    print("|", " | ".join(row), "|", flush=True)
    return statistics.mean(best)


def main():
    parser = argparse.ArgumentParser(description="Compare accuracies with DGL's.")
    parser.add_argument("--quick", action="store_true", help="one seed, two epochs")
    args = parser.parse_args()
    seeds, epochs = (SEEDS[:1], 2) if args.quick else (SEEDS, EPOCHS)
    try:
        train = measure.script("train/run.py")
        gsplit, python, dgl = measure.binary(), measure.environment(), measure.dgl_environment()
        if dgl is None:
            raise BenchError("the environment of DGL could not be made: there is nothing to compare with")
        (graph,) = (graph for graph in train.GRAPHS if graph.name == GRAPH)
        folder = train.dataset(gsplit, python, graph)
        if folder is None:
            raise BenchError(f"the graph is missing: set DATA to the folder that holds {graph.make[0].name}")
        runs = {"gsplit": [], PEER: []}
        for seed in seeds:
            runs["gsplit"].append(ours(folder, seed, epochs))
            runs[PEER].append(theirs(dgl, folder, seed, epochs))
            told = ", ".join(f"{name} {found[-1][-1]['test']:.4f}" for name, found in runs.items())
            print(f"seed {seed}: test accuracy after epoch {epochs}: {told}", file=sys.stderr, flush=True)
    except BenchError as error:
        sys.exit(f"error: {error}")
    print("| | test at the best valid | mean ± standard deviation | test after the last epoch | its loss |")
    print("| --- | --- | --- | --- | --- |")
    means = [show(contender, found) for contender, found in runs.items()]
    ratio = round(means[0] / means[1], 4)
    print("\n" + json.dumps({"bench": "accuracy", "ratio": ratio, "peer": PEER, "graph": GRAPH}))


if __name__ == "__main__":
    main()
