"""Time of a mini-batch of training, compared with DGL 2.1.0 and its fused sampler.

Three layers, fanouts 15,10,5, hidden 256, mini-batches of 1024 seeds, dropout 0.5, Adam, two
threads; GraphSAGE-mean, and GAT with two heads. All train on the same graph, features and split;
each draws its own samples, whose sizes must agree within one percent. Nothing overlaps except in
"prefetch 1", gsplit's default, which prepares one mini-batch ahead. gsplit's floor is the products
of its own epoch by themselves (trainer/examples/operators.rs --step). Not timed: the loading of the
dataset, gsplit's first epoch, DGL's first ten mini-batches. "tuned" runs have glibc keep freed
memory and ask for huge pages. Peak memory is the whole process's, with mapped files.
"""

import harness
from harness import MIB, PEERS, REAL, TUNED

ROUNDS, EXAMPLES = 5, (("gsplit-trainer", "operators"),)
FANOUTS, BATCH_SIZE, HIDDEN, THREADS = "15,10,5", 1024, 256, 2
PEER = "DGL 2.1.0 fused"
CONTENDERS = {"gsplit": {}, "gsplit, prefetch 1": {}, "gsplit, bf16": {}, f"{PEER}, tuned": TUNED, PEER: {}}
SPLIT = ("convert", "--symmetrise", "--random-split")
# The models, and how the graph is made. Other benchmarks train on these graphs too.
GRAPHS = {
    "ogbn-arxiv": (("sage",), "ogb", REAL / "ogbn_arxiv", 128, *SPLIT, "0.3,0.1,0.1"),
    "arxiv-like": (("sage", "gat"), "arrays", 170_000, 1_160_000, 128, *SPLIT, "0.3,0.1,0.1"),
    "products-like": (("sage",), "arrays", 2_400_000, 62_000_000, 100, *SPLIT, "0.02,0.01,0.01"),
}


def dataset(name):
    return harness.dataset(f"train-{name}", *GRAPHS[name][1:])


def contender(dgl, folder, model):
    """A function that runs a contender."""
    seeds = harness.gsplit("inspect", folder, "--json").json()["splits"]["train"]

    def once(name):
        if name.startswith(PEER):
            # Only full mini-batches.
            batches = seeds // BATCH_SIZE
            words = [dgl, PEERS / "train.py", "time", folder, model, HIDDEN, FANOUTS, BATCH_SIZE, batches, THREADS]
            child = harness.run(words, PYTHONWARNINGS="ignore", **CONTENDERS[name])
            said = child.json()
            phases, products = said["phases"], None
        else:
            batches = seeds / BATCH_SIZE
            shape = ["--model", model, "--hidden", HIDDEN, *(["--heads", 2] if model == "gat" else []), "--fanouts", FANOUTS]
            options = ["--dtype", "bf16" if name.endswith("bf16") else "f32", "--prefetch", int(name.endswith("prefetch 1"))]
            words = [folder, *shape, "--batch-size", BATCH_SIZE, "--parallelism", "single", *options, "--epochs", 2, "--eval-every", 0]
            child = harness.gsplit("train", *words, "--threads", THREADS, "--json")
            said = child.json()["summary"]["epochs"][-1]
            phases = {phase: said[f"{phase}_s"] for phase in ("sample", "load", "compute")}
            products = harness.run([harness.EXAMPLES / "operators", "--step", *words]).json()["times_products"]
        ms = {phase: 1e3 * seconds / batches for phase, seconds in phases.items()}
        cost = {"peak_mib": child.peak_bytes / MIB, "others_cpus": child.others_cpus, "times_products": products}
        return {"ms": 1e3 * said["seconds"] / batches, "edges": said["edges"] / batches, "loss": said["loss"], "phases": ms, **cost}

    return once


def measure(bench):
    dgl = harness.dgl_environment()
    for name in bench.graphs:
        folder = dataset(name)
        for model in GRAPHS[name][0] if folder else ():
            table = harness.Table(
                f"{name}, {model}", "contender", "ms a mini-batch", "range", "/ gsplit", "/ its products", "phases, ms", "peak MiB", "others' CPUs"
            )
            runs = table.interleave(CONTENDERS, bench.rounds, contender(dgl, folder, model))
            runs.alike("edges", 0.01)
            for who, found in runs.items():
                ms, peak, others = (runs.median(who, field) for field in ("ms", "peak_mib", "others_cpus"))
                middle = sorted(found, key=lambda run: run["ms"])[len(found) // 2]
                phases = ", ".join(f"{phase} {spent:.0f}" for phase, spent in middle["phases"].items())
                products = None if middle["times_products"] is None else runs.median(who, "times_products")
                table.add(who, ms, runs.span(who, "ms"), ms / runs.median("gsplit", "ms"), products, phases, peak, others)
            bench.keep(table)
