"""Accuracy of GraphSAGE after equal epochs, compared with DGL 2.1.0.

ogbn-arxiv's topology and labels with generated features (the graph of the benchmark `train`). Three
layers, fanouts 15,10,5, hidden 256, mini-batches of 1024 seeds, dropout 0.5, Adam at 0.003, five
epochs; a round is another seed. Each contender draws its own samples, and initial weights of the
same distribution; after each epoch both infer with all neighbours. This is no measurement of speed.
"""

import statistics

import harness
from harness import PEERS, TUNED, BenchError

ROUNDS, CORES = 3, None
GRAPH, MODEL, HIDDEN, FANOUTS, BATCH_SIZE, THREADS = "ogbn-arxiv", "sage", 256, "15,10,5", 1024, 2
LEARNING_RATE, EPOCHS = 0.003, 5
PEER = "DGL 2.1.0"


def measure(bench):
    dgl, folder = harness.dgl_environment(), bench.load("train").dataset(GRAPH)
    if folder is None:
        raise BenchError("the graph is missing: set DATA to the folder that has ogbn_arxiv")
    epochs, seeds = (2 if bench.quick else EPOCHS), {}

    def once(name):
        seed = seeds[name] = seeds.get(name, -1) + 1
        if name == PEER:
            words = [dgl, PEERS / "train.py", "score", folder, MODEL, HIDDEN, FANOUTS, BATCH_SIZE, epochs, THREADS, LEARNING_RATE, seed]
            found = harness.run(words, PYTHONWARNINGS="ignore", **TUNED).json()["epochs"]
        else:
            shape = ["--model", MODEL, "--layers", 3, "--hidden", HIDDEN, "--fanouts", FANOUTS, "--batch-size", BATCH_SIZE]
            run = ["--parallelism", "single", "--lr", LEARNING_RATE, "--epochs", epochs, "--seed", seed, "--threads", THREADS]
            found = harness.gsplit("train", folder, *shape, *run, "--json").json()["summary"]["epochs"]
        best = max(found, key=lambda epoch: epoch["valid"])["test"]
        return {"test": best, "last": found[-1]["test"], "loss": found[-1]["loss"]}

    table = harness.Table("five epochs", "contender", "test at the best valid", "mean", "standard deviation", "test after the last epoch", "its loss")
    runs = table.interleave(("gsplit", PEER), bench.rounds, once)
    for who in runs:
        best, last, loss = (runs.column(who, field) for field in ("test", "last", "loss"))
        spread = statistics.stdev(best) if len(best) > 1 else 0.0
        shown = [", ".join(f"{value:.4f}" for value in values) for values in (best, last, loss)]
        table.add(who, shown[0], f"{statistics.mean(best):.4f}", f"{spread:.4f}", *shown[1:])
    bench.keep(table)
