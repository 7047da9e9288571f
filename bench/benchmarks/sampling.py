"""Edges that gsplit samples per second, compared with the fused sampler of DGL 2.1.0.

Fanouts 15,15,15, mini-batches of 1024 seeds, two threads and one. Drawing, removing duplicates,
numbering and the CSC of each layer are timed, after ten mini-batches that are not; nobody is
charged for loading. "tuned" runs have glibc keep freed memory and ask for huge pages. Contenders
must sample equally many edges per mini-batch, within one percent.
"""

import harness
from harness import PEERS, REAL, TUNED

ROUNDS, EXAMPLES = 5, (("gsplit-kernels", "sampling"),)
FANOUTS, BATCH_SIZE, THREADS = "15,15,15", 1024, (2, 1)
PEER = "DGL 2.1.0 fused"
CONTENDERS = {"gsplit": {}, "gsplit, tuned": TUNED, f"{PEER}, tuned": TUNED, PEER: {}}
SPLIT = ("convert", "--symmetrise", "--random-split", "0.2,0.05,0.05")
# How a graph is made, and its timed mini-batches.
GRAPHS = {
    "ogbn-arxiv": (60, "convert", REAL / "ogbn_arxiv", "--symmetrise"),
    "arxiv-like": (60, "arrays", 170_000, 1_160_000, 0, *SPLIT),
    "rmat-21": (20, "generate", "rmat", "--vertices", 1 << 21, "--edges", 1 << 25),
    "products-like": (20, "arrays", 2_400_000, 62_000_000, 0, *SPLIT),
}


def measure(bench):
    dgl = harness.dgl_environment()
    for name in bench.graphs:
        batches, *make = GRAPHS[name]
        folder = harness.dataset(f"sampling-{name}", *make)
        if folder is None:
            continue

        def once(contender):
            who, threads = contender
            program = [dgl, PEERS / "sampling.py"] if who.startswith(PEER) else [harness.EXAMPLES / "sampling"]
            words = [*program, folder, FANOUTS, BATCH_SIZE, batches, threads]
            child = harness.run(words, PYTHONWARNINGS="ignore", **CONTENDERS[who])
            said = child.json()
            rates = {"million edges/s": said["edges"] / said["seconds"] / 1e6, "ms": 1e3 * said["seconds"] / batches}
            cpu = {"million edges/CPU s": said["edges"] / said["cpu_seconds"] / 1e6, "others_cpus": child.others_cpus}
            return {**rates, "edges": said["edges"] / batches, **cpu}

        columns = ("contender", "threads", "million edges/s", "range", "ms a mini-batch", "/ tuned DGL", "million edges/CPU s", "others' CPUs")
        table = harness.Table(name, *columns)
        runs = table.interleave([(who, threads) for threads in THREADS for who in CONTENDERS], bench.rounds, once)
        runs.alike("edges", 0.01)
        for who, threads in runs:
            rate, ms, cpu, others = (runs.median((who, threads), field) for field in ("million edges/s", "ms", "million edges/CPU s", "others_cpus"))
            tuned = runs.median((f"{PEER}, tuned", threads), "million edges/s")
            table.add(who, threads, rate, runs.span((who, threads), "million edges/s"), ms, rate / tuned, cpu, others)
        bench.keep(table)
