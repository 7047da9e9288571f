#!/usr/bin/env python3
"""Measures the tables of REPRODUCTION.md, all or the named ones: reproduce.py [TABLE ...] [--quick]
[--keep].

Tables are printed, and written with their commands to bench/results/reproduce-PAPER.json. Graphs
are made under target/bench/data if they are missing. Two are generated. Two are made of real ones
in ../shared/data, or DATA=folder, and left out if they are missing. GSPLIT=path measures a gsplit
that is there. All of it takes two hours on two cores. --quick and --keep are for the tables plan-*:
graphs sixteen times as small, written to target/bench/results; and generated graphs that are kept.
"""

import argparse
import json
import shlex
import statistics
import sys

import harness
import predict
from harness import BENCH, MIB, REAL, WORK, BenchError

# How each graph is made.
GRAPHS = {
    "arxiv": ("convert", REAL / "ogbn_arxiv", "--symmetrise", "--features", "fastrp:128"),
    "amazon-computers": ("convert", REAL / "ogb-binary-amazon-computers", "--symmetrise"),
    "rmat": ("generate", "rmat", "--vertices", 1_000_000, "--edges", 16_000_000, "--random-split", "0.1,0.05,0.05"),
    "products-like": (
        *("generate", "community", "--vertices", 2_400_000, "--edges", 31_000_000, "--classes", 47, "--feature-dim", 100),
        *("--random-split", "0.08,0.02,0.05"),
    ),
}
PARTS, DEEP = 4, ("--layers", 3, "--fanouts", "15,10,5", "--batch-size", 1024)
TRAIN = ("--epochs", 1, "--eval-every", 0)


class Table(harness.Table):
    """A table that gsplit measures."""

    def __init__(self, *columns):
        super().__init__("", *columns)

    def run(self, *words, show=True):
        """The JSON of `gsplit WORDS`, a list if there are several lines; and the process."""
        words = [str(word) for word in words]
        harness.say(shlex.join(["gsplit", *words]))
        child = harness.gsplit(*(place(word) for word in words), "--json", "--quiet")
        if show:
            self.commands.append(shlex.join(["gsplit", *words]))
        said = [json.loads(line) for line in child.output.splitlines()]
        return (said[0] if len(said) == 1 else said), child

    def train(self, graph, *words, show=True):
        """The last epoch of a training run, and the process."""
        said, child = self.run("train", graph, *words, show=show)
        return said["summary"]["epochs"][-1], child


def place(word):
    """The folder of a graph, by its name."""
    return harness.DATA / f"reproduce-{word}" if word in GRAPHS else word


def each(table, names, rows):
    """Calls `rows` with each of the graphs that are there, or can be made."""
    for name in names:
        if harness.dataset(place(name).name, *GRAPHS[name]) is None:
            table.notes.append(f"Left out: {name}, whose raw files are missing.")
        else:
            rows(name)
    return table


def presample(table, name, fanouts, epochs):
    key = f"reproduce-{fanouts.replace(',', '-')}-{epochs}"
    table.run("presample", name, "--fanouts", fanouts, "--batch-size", 1024, "--epochs", epochs, "--key", key)
    return key


def partition(table, name, key, *words, show=True):
    """A map into parts, made anew: one of that key may be of another presample."""
    return table.run("partition", name, "--parts", PARTS, *words, "--key", key, "--force", show=show)[0]


def gsplit_table1():
    table = Table("graph", "edges, 4 micro-batches", "edges, 1 mini-batch", "ratio", "rows, 4 micro-batches", "rows, 1 mini-batch", "ratio")

    def rows(name):
        partition(table, name, "reproduce-random", "--partitioner", "random", show=False)
        shape = ["--partition", "reproduce-random", "--fanouts", "15,15,15", "--batch-size", 1024, "--batches", 20]
        said = table.run("evaluate", name, *shape)[0]["maps"][0]
        data, split = said["data"], said["split_layers"][-1]
        edges = [sum(layer["edges"] for layer in work["layers"]) for work in (data, split)]
        loaded = [data["rows_loaded"], split["rows_loaded"]]
        table.add(name, *edges, edges[0] / edges[1], *loaded, loaded[0] / loaded[1])

    return each(table, ("arxiv", "rmat", "products-like"), rows)


def gsplit_figure5():
    table = Table("graph", "map", "cross edges, %", "imbalance at the seeds", "at layer 2", "at the input layer", "all layers")

    def rows(name):
        key = presample(table, name, "15,15,15", 3 if name == "arxiv" else 1)
        maps = {"GSplit": "presampled", "Node": "vertex", "Edge": "degree"}
        keys = []
        for weights in maps.values():
            keys += [f"reproduce-{weights}-k{PARTS}"]
            partition(table, name, keys[-1], "--weights", weights, "--presample", key)
        named = [word for key in keys for word in ("--partition", key)]
        said = table.run("evaluate", name, *named, "--presample", key, "--batches", 50)[0]
        for label, found in zip([*maps, "Rand"], said["maps"], strict=True):
            layers = [layer["edge_imbalance"] for layer in [*found["layers"], found["all"]]]
            table.add(name, label, 100 * found["all"]["cross_share"], *layers)

    return each(table, ("arxiv", "rmat"), rows)


def gsplit_table3():
    table = Table("graph", "system", "sample", "load", "forward, backward", "seconds an epoch", "/ GSplit", "edges", "rows loaded")

    def rows(name):
        shape = ["--ranks", PARTS, *DEEP, "--hidden", 256, "--epochs", 1]
        for row in table.run("compare", name, *shape)[0]["systems"]:
            phases, work = row["timings"], row["work"]
            numbers = [phases["sample_s"], phases["load_s"], phases["compute_s"] + phases["exchange_s"]]
            table.add(name, row["system"], *numbers, row["seconds"], row["times_gsplit"], work["edges"], work["rows_loaded"])

    return each(table, ("arxiv",), rows)


def gsplit_figure6():
    table = Table("over", "value", "edges: DGL", "GSplit", "ratio", "rows: DGL", "GSplit", "ratio", "GSplit sends, MB")

    def rows(name):
        sweeps = {"ranks": "1,2,4,8", "groups": "1,2", "batch-size": "256,1024,4096", "layers": "2,3"}
        for over, values in sweeps.items():
            # Of the counts, only the bytes depend on the hidden size.
            shape = ["--systems", "dgl,gsplit", "--fanouts", "15,10,5", "--hidden", 16, "--presample-epochs", 2, "--epochs", 1]
            said = table.run("compare", name, "--over", f"{over}={values}", *shape)[0]
            found = {(at["value"], row["system"]): row["work"] for at in said["tables"] for row in at["systems"]}
            for value in map(int, values.split(",")):
                data, split = found[(value, "DGL")], found[(value, "GSplit")]
                pairs = [(data[key], split[key], data[key] / split[key]) for key in ("edges", "rows_loaded")]
                table.add(over, value, *pairs[0], *pairs[1], split["bytes_sent"] / 1e6)

    return each(table, ("arxiv",), rows)


def sent(work, phase=None):
    """Bytes and messages of a phase, or of all."""
    of = [entry for entry in work["sent"] if phase in (None, entry["phase"])]
    return sum(entry["bytes"] for entry in of), sum(entry["messages"] for entry in of)


def seeds(table, name):
    return table.run("inspect", name, show=False)[0]["splits"]["train"]


def p3_bytes():
    columns = ("what a rank moves for 1,000 targets", "rows", "values a row", "MiB")
    table = Table("graph", *columns)

    def rows(name):
        # Each of 4 ranks has 1,000 targets.
        shape = [*("--ranks", PARTS, "--layers", 2, "--fanouts", "25,10", "--hidden", 16, "--batch-size", 1000 * PARTS), *TRAIN]
        shares = seeds(table, name) / 1000
        data = table.train(name, "--parallelism", "data", *shape)[0]
        p3 = table.train(name, "--parallelism", "push-pull", *shape)[0]
        loaded = data["rows_loaded"] / shares
        table.add(name, "data parallelism: feature rows", loaded, 100, loaded * 400 / MIB)
        pulled = sent(p3, "forward")[0] / shares
        table.add(name, "P3: partial sums pulled", pulled / 64, 16, pulled / MIB)
        for phase, what in (("sample", "edges pushed"), ("load", "edges pushed"), ("backward", "gradients of the sums")):
            if found := sent(p3, phase)[0]:
                table.add(name, f"P3: {what}", "", "", found / shares / MIB)

    return each(table, ("products-like",), rows)


def p3_staleness():
    table = Table("graph", "epochs", "seed", "test, staleness 0", "test, staleness 3", "loss, staleness 0", "loss, staleness 3")

    def rows(name):
        epochs, tries = (120, range(2)) if name == "amazon-computers" else (15, range(1))
        shape = ["--ranks", 2, "--layers", 2, "--fanouts", "25,10", "--hidden", 32, "--batch-size", 1000]
        shape += ["--norm", "batch", "--lr", 0.001, "--schedule", "cosine"]
        found = []
        for seed in tries:
            words = [*shape, "--epochs", epochs, "--eval-every", epochs, "--seed", seed]
            runs = [table.train(name, "--parallelism", "push-pull", *words, "--staleness", late, show=seed == 0)[0] for late in (0, 3)]
            found.append([run[key] for key in ("test", "loss") for run in runs])
            table.add(name, epochs, str(seed), *(f"{value:.4f}" for value in found[-1]))
        if len(found) > 1:
            table.add(name, epochs, "mean", *(f"{statistics.mean(values):.4f}" for values in zip(*found, strict=True)))

    return each(table, ("amazon-computers", "arxiv"), rows)


def granndis_partition(table, name):
    partition(table, name, "reproduce-servers", "--servers", 2, "--weights", "degree")
    return ["--partition", "reproduce-servers", "--parallelism", "cooperative", "--ranks", PARTS, "--groups", 2]


def granndis_memory():
    table = Table("graph", "layers", "R", "rows of a mini-batch", "edges an epoch", "peak memory, MiB", "seconds an epoch")

    def rows(name):
        base = [*granndis_partition(table, name), "--model", "resgcn", "--hidden", 64, "--norm", "batch", *TRAIN]
        thrifty = ["--checkpoint-activations"]
        runs = [(3, 1, []), (3, 4, []), (3, 16, []), (7, 1, []), (14, 1, []), (28, 1, []), *((deep, 1, thrifty) for deep in (28, 56, 112))]
        for layers, batches, more in runs:
            words = ["--layers", layers, "--batches-per-epoch", batches, *more]
            found, child = table.train(name, *base, *words, show=(layers, batches) in ((3, 1), (56, 1)))
            loaded = found["rows_loaded"] / batches
            table.add(name, f"{layers}, checkpointed" if more else layers, batches, loaded, found["edges"], child.peak_bytes / MIB, found["seconds"])

    return each(table, ("arxiv",), rows)


def granndis_accuracy():
    table = Table("graph", "epochs", "test, full graph", "test, 1 hop of 15", "edges, full graph", "edges, 1 hop of 15")

    def rows(name):
        epochs = 100 if name == "amazon-computers" else 30
        settings = ["--model", "resgcn", "--layers", 3, "--hidden", 64, "--norm", "batch", "--lr", 0.01, "--dropout", 0.5]
        words = [*granndis_partition(table, name), *settings, "--epochs", epochs, "--eval-every", epochs]
        full = table.train(name, *words, "--expansion-hops", 3, "--expansion-fanout", "all")[0]
        near = table.train(name, *words, "--expansion-hops", 1, "--expansion-fanout", 15)[0]
        table.add(name, epochs, *(f"{run['test']:.4f}" for run in (full, near)), full["edges"], near["edges"])

    return each(table, ("amazon-computers", "arxiv"), rows)


def intel_rounds():
    table = Table("graph", "system", "phase", "rounds a mini-batch", "MB an epoch")

    def rows(name):
        shape = ["--ranks", PARTS, *DEEP, "--hidden", 16, *TRAIN, "--partition", "reproduce-degree"]
        partition(table, name, "reproduce-degree", "--weights", "degree")
        batches = -(-seeds(table, name) // 1024)
        for system, choice in (("Intel", ["--split-layers", 1]), ("GSplit's split", [])):
            work = table.train(name, "--parallelism", "split", *choice, *shape)[0]
            for phase in dict.fromkeys(entry["phase"] for entry in work["sent"]):
                num_bytes, messages = sent(work, phase)
                # Every rank sends to every other in a round.
                table.add(name, system, phase, messages / batches / (PARTS * (PARTS - 1)), num_bytes / 1e6)

    return each(table, ("arxiv",), rows)


# The paper's baselines: each device keeps the hottest rows of its part by one of these maps.
BASELINES = {"naive (ranges of ids)": "range", "random": "random", "METIS": "metis"}
RULES = {"PaGraph (replicated)": "replicated", "Quiver (peer)": "peer", "Algorithm 1": "song-jiang", "optimised": "optimised"}


def song_jiang_placement():
    columns = ("placement", "own", "peers", "host", "cost", "random / it", "seconds to make")
    table = Table("graph", *columns)

    def rows(name):
        fanouts, epochs = ("15,15,15", 3) if name == "arxiv" else ("15,10,5", 1)
        key = presample(table, name, fanouts, epochs)
        found = {}
        for label, partitioner in BASELINES.items():
            weights = ["--weights", "unit"] if partitioner != "random" else []
            made = partition(table, name, f"reproduce-{partitioner}", "--partitioner", partitioner, *weights)
            words = ["--cache", "20%", "--partition", f"reproduce-{partitioner}", "--presample", key, "--parallelism", "data"]
            said = table.run("place", name, *words, "--key", "reproduce-place", "--force")[0]
            placements = next(point for point in said["curve"] if point["asked"])["placements"]
            found[label] = (placements["partitioned"], made["seconds"])
        # These rules do not go by a map.
        found |= {label: (placements[rule], said["seconds"] if rule == "optimised" else "") for label, rule in RULES.items()}
        for label, (loads, seconds) in found.items():
            sources = [loads[key] for key in ("local", "peer", "host")]
            table.add(name, label, *sources, loads["cost"], found["random"][0]["cost"] / loads["cost"], seconds)

    return each(table, ("arxiv", "products-like"), rows)


def song_jiang_locality():
    table = Table("graph", "draws", "own", "peers", "host", "moved, uniform / it", "loss", "test")

    def rows(name):
        partition(table, name, "reproduce-degree", "--weights", "degree")
        key = presample(table, name, "10,5", 3)
        shape = ["--cache", "20%", "--partition", "reproduce-degree", "--presample", key, "--parallelism", "data"]
        table.run("place", name, *shape, "--rule", "song-jiang", "--key", "reproduce-locality", "--force")
        words = ["--parallelism", "data", "--ranks", PARTS, "--placement", "reproduce-locality", "--cache", "20%"]
        words += ["--layers", 2, "--fanouts", "10,5", "--hidden", 64, "--batch-size", 1024, "--lr", 0.003]
        words += ["--epochs", 20, "--eval-every", 20]
        uniform = None
        for factor in (1, 2, 4, 8):
            last = table.train(name, *words, "--draw", "locality", "--draw-factor", factor, show=factor == 2)[0]
            peers, own = last["rows_from_peers"], last["rows_cached"]
            host = last["rows_loaded"] - own - peers
            uniform = peers + host if factor == 1 else uniform
            label = "uniform" if factor == 1 else f"factor {factor}"
            table.add(name, label, own, peers, host, uniform / (peers + host), f"{last['loss']:.4f}", f"{last['test']:.4f}")

    return each(table, ("amazon-computers", "arxiv"), rows)


MEASURED = (
    *(gsplit_table1, gsplit_figure5, gsplit_table3, gsplit_figure6, p3_bytes, p3_staleness),
    *(granndis_memory, granndis_accuracy, intel_rounds, song_jiang_placement, song_jiang_locality),
)
TABLES = {**{function.__name__.replace("_", "-"): function for function in MEASURED}, **predict.TABLES}
PAPERS = ("gsplit", "p3", "granndis", "intel", "song-jiang")


def main():
    parser = argparse.ArgumentParser(description="Measure the tables of REPRODUCTION.md again.")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"one of {', '.join(TABLES)}; all without any")
    parser.add_argument("--quick", action="store_true", help="of plan-*: graphs sixteen times as small, written to target/bench/results")
    parser.add_argument("--keep", action="store_true", help="of plan-*: keep the generated graphs")
    args = parser.parse_args()
    for name in args.tables:
        if name not in TABLES:
            parser.error(f"{name}: expected one of {', '.join(TABLES)}")
    try:
        with harness.alone():
            for name in args.tables or TABLES:
                (paper,) = (paper for paper in PAPERS if name.removeprefix("plan-").startswith(paper))
                folder = WORK / "results" if args.quick else BENCH / "results"
                results = harness.Results(f"reproduce-{paper}", f"make reproduce TABLE={name}", folder)
                found = TABLES[name](args) if name in predict.TABLES else {name: TABLES[name]()}
                for title, table in found.items():
                    table.title = title
                    if table.rows:
                        results.keep(table)
    except BenchError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
