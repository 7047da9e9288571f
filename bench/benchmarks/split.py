"""Time of an epoch of one rank, data, split and owned parallelism, on the same two cores.

Split parallelism is in whole or in part. Three layers of GraphSAGE-mean, fanouts 15,10,5, hidden
256, mini-batches of 1024 seeds, dropout 0.5, Adam, f32; 2 and 4 ranks, which are threads, with maps
of gsplit's partitioner and the weights of ten presampled epochs. A run trains two epochs, of which
the second counts. Losses must agree up to rounding. The graphs are those of the benchmark `train`.

With owned seeds a rank computes the neighbourhoods of the seeds of its part, and nothing is
exchanged; `split 1` and `split 2` do so above the lowest 1 and 2 layers, which are split.
"""

import harness

ROUNDS, GRAPHS = 5, ("ogbn-arxiv", "arxiv-like", "products-like")
SHAPE = ["--fanouts", "15,10,5", "--batch-size", 1024]
CONTENDERS = (
    *(("single", 1), ("data", 2), ("data", 4), ("split", 2), ("split", 4)),
    *(("split 2", 4), ("split 1", 4), ("owned", 2), ("owned", 4)),
)
FIELDS = ("seconds", "compute_s", "exchange_s", "wait_s", "edges", "rows_loaded", "rows_exchanged", "loss")


def measure(bench):
    train = bench.load("train")
    for name in bench.graphs:
        folder = train.dataset(name)
        if folder is None:
            continue
        harness.gsplit("presample", folder, *SHAPE, "--key", "bench-split", "--quiet")
        for ranks in (2, 4):
            harness.gsplit("partition", folder, "--parts", ranks, "--presample", "bench-split", "--key", f"bench-split-{ranks}", "--quiet")

        def once(contender):
            (parallelism, *layers), ranks = contender[0].split(), contender[1]
            words = ["--model", "sage", "--layers", 3, "--hidden", 256, *SHAPE, "--parallelism", parallelism]
            words += ["--ranks", ranks] if ranks > 1 else []
            words += ["--partition", f"bench-split-{ranks}"] if parallelism in ("split", "owned") else []
            words += ["--split-layers", *layers] if layers else []
            words += ["--epochs", 2, "--eval-every", 0, "--threads", 2, "--prefetch", 0, "--json"]
            epoch = harness.gsplit("train", folder, *words).json()["summary"]["epochs"][-1]
            return {field: epoch[field] for field in FIELDS}

        columns = ("parallelism", "ranks", "s an epoch", "/ single", "compute", "exchange", "of that, waiting", "edges / single")
        table = harness.Table(name, *columns, "rows loaded / single", "rows exchanged / edges")
        runs = table.interleave(CONTENDERS, bench.rounds, once)
        runs.alike("loss", 1e-3)
        single = {field: runs.median(("single", 1), field) for field in FIELDS}
        for who in runs:
            found = {field: runs.median(who, field) for field in FIELDS}
            shares = [found[field] / single[field] for field in ("edges", "rows_loaded")]
            seconds = [found["seconds"], found["seconds"] / single["seconds"], *(found[field] for field in FIELDS[1:4])]
            table.add(*who, *seconds, *shares, found["rows_exchanged"] / single["edges"])
        bench.keep(table)
