"""Time of a mini-batch of R-SAGE on several types of vertices, compared with PyG's HeteroConv.

Graphs of ogbn-mag's shape; two layers, fanouts 10,10 for each relation, hidden 64, mini-batches of
1024 seeds, Adam, two threads. Types without features have learnt rows, which PyG keeps in an
Embedding with sparse gradients and SparseAdam. PyG's loader needs torch-sparse, which is compiled
once (see torch.py); without pyg-lib, PyG computes the rows of all sampled vertices in each layer.
Not timed: the loading of the dataset, gsplit's first epoch, PyG's first mini-batches. Peak memory is
the whole process's, without its workers.
"""

import harness
from harness import MIB, PEERS, ROOT, TUNED

ROUNDS = 3
GRAPHS = {"mag-quarter": 0.25, "mag": 1}
OPTIONS = {"--batches": {"type": int, "default": 20, "metavar": "N", "help": "timed mini-batches of a run [default: 20]"}}
FANOUTS, BATCH_SIZE, HIDDEN, THREADS = "10,10", 1024, 64, 2
CONTENDERS = {"gsplit": None, "PyG's HeteroConv": 0, "PyG's HeteroConv, 2 workers": 2}


def contender(bench, folder, python, more):
    """A function that runs a contender."""
    batches = 3 if bench.quick else bench.args.batches

    def once(name):
        workers = CONTENDERS[name]
        if workers is None:
            shape = ["--model", "sage", "--hidden", HIDDEN, "--fanouts", FANOUTS, "--batch-size", BATCH_SIZE]
            options = ["--parallelism", "single", "--epochs", 2, "--trial", batches, "--eval-every", 0, "--threads", THREADS]
            child = harness.gsplit("train", folder, *shape, *options, "--json")
            epoch = child.json()["summary"]["epochs"][-1]
            said = {"ms": 1e3 * epoch["seconds"] / batches, "edges": epoch["edges"] / batches, "loss": epoch["loss"]}
        elif python is None:
            return None
        else:
            words = [python, PEERS / "typed.py", folder, FANOUTS, BATCH_SIZE, batches, HIDDEN, THREADS, workers]
            path = ":".join(map(str, [ROOT / "python" / "src", *more]))
            child = harness.run(words, PYTHONPATH=path, PYTHONWARNINGS="ignore", OMP_WAIT_POLICY="passive", **TUNED)
            said = child.json()
        return said | {"peak_mib": child.peak_bytes / MIB, "others_cpus": child.others_cpus}

    return once


def measure(bench):
    (pyg,) = harness.peer_environments("pyg")
    python, more = bench.load("torch").with_sampler(pyg) if pyg else (None, [])
    for name in bench.graphs:
        folder = harness.dataset(f"typed-{name}", "generate", "typed", "--shape", "ogbn-mag", "--scale", GRAPHS[name])
        table = harness.Table(name, "contender", "ms a mini-batch", "range", "/ gsplit", "edges", "peak MiB", "others' CPUs")
        runs = table.interleave(CONTENDERS, bench.rounds, contender(bench, folder, python, more))
        runs.alike("edges", 0.1)
        for who in runs:
            ms, edges, peak, others = (runs.median(who, field) for field in ("ms", "edges", "peak_mib", "others_cpus"))
            table.add(who, ms, runs.span(who, "ms"), ms / runs.median("gsplit", "ms"), edges, peak, others)
        bench.keep(table)
