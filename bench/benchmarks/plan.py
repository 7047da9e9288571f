"""Accuracy of `gsplit plan` on this machine: every system that it ranks is trained, on five graphs.

The profile is measured once. The plan ranks the systems on two ranks, by 20 simulated mini-batches;
then each is trained, including those that are listed apart, with the options of the plan, for two
epochs, of which the second counts. Three layers of GraphSAGE-mean, fanouts 15,10,5, hidden 128,
mini-batches of 512 seeds, f32. The summary has the seconds of the fastest system over the seconds
of the first of the plan, both among the systems on the same mini-batches, the rank correlation
(Spearman), and the mean error of a prediction.

    --part systems   as above [default]
    --part memory    the memory that the plan of two ranks predicts, over the largest resident set
                     of training, less that of the same command on a graph of 400 vertices: three
                     layers of 256, mini-batches of 2048 seeds, no evaluation
"""

import statistics

import harness
from harness import DATA, MIB

ROUNDS, THREADS = 2, 2
SHAPE = ["--model", "sage", "--layers", 3, "--hidden", 128, "--fanouts", "15,10,5", "--batch-size", 512]
# Few edges cross, most cross, degrees are skewed, rows are wide, in-neighbours are many.
GRAPHS = {
    "near": ("--vertices", 100_000, "--edges", 600_000, "--mixing", 0.05, "--feature-dim", 128),
    "far": ("--vertices", 60_000, "--edges", 600_000, "--mixing", 0.9, "--feature-dim", 128),
    "skewed": ("--vertices", 100_000, "--edges", 600_000, "--exponent", 2.1, "--feature-dim", 128),
    "wide": ("--vertices", 40_000, "--edges", 240_000, "--feature-dim", 600),
    "dense": ("--vertices", 30_000, "--edges", 1_500_000, "--feature-dim", 100),
}


# Models, and the systems whose memory is compared.
MEMORY = {
    "sage": ("one rank", "DGL", "Owned", "GSplit", "P3", "GraNNDis", "GraNNDis, 4 batches"),
    "gcn": ("one rank", "DGL", "GSplit"),
    "gat": ("one rank", "GSplit"),
}
PARTS = ("systems", "memory")


def memory(bench):
    made = ("generate", "community", "--random-split", "0.1,0.01,0.01")
    graph = harness.dataset("plan-memory", *made, "--vertices", 100_000, "--edges", 1_000_000, "--feature-dim", 128)
    empty = harness.dataset("plan-empty", *made, "--vertices", 400, "--edges", 400, "--feature-dim", 4)
    harness.gsplit("partition", empty, "--parts", 2, "--weights", "degree", "--key", "empty", "--quiet")

    def peak(folder, options):
        run = ["--epochs", 1, "--eval-every", 0, "--threads", THREADS, "--json"]
        return harness.gsplit("train", folder, *options, *run).peak_bytes / MIB

    table = harness.Table("memory", "model", "system", "planned, MiB", "measured, MiB", "planned / measured")
    for model, systems in MEMORY.items():
        words = ["--model", model, "--layers", 3, "--hidden", 256, "--fanouts", "15,10,5", "--batch-size", 2048]
        said = harness.gsplit("plan", graph, *words, "--profile", "cpu-2", "--ranks", 2, "--batches", 5, "--json").json()
        for row in (row for row in (*said["plans"], *said["apart"]) if row["name"] in systems):
            options = " ".join(row["options"]).split()
            alike = list(options)
            if row["partition"]:
                alike[alike.index("--partition") + 1] = "empty"
            measured, planned = peak(graph, options) - peak(empty, alike), row["memory"] / MIB
            table.add(model, row["name"], planned, measured, planned / measured)
    bench.keep(table)


def measure(bench):
    if bench.args.part == "memory":
        return memory(bench)
    profile = DATA / "plan-profile.toml"
    DATA.mkdir(parents=True, exist_ok=True)
    profile.unlink(missing_ok=True)
    harness.gsplit("doctor", "--profile", profile, "--threads", THREADS)
    summary = harness.Table("the pick", "graph", "fastest / picked", "rank correlation", "mean error of a prediction, %", "the pick is the slowest")
    for name in bench.graphs:
        folder = harness.dataset(f"plan-{name}", "generate", "community", *GRAPHS[name], "--random-split", "0.3,0.1,0.1")
        words = ["plan", folder, *SHAPE, "--profile", profile, "--ranks", 2, "--threads", THREADS, "--json"]
        said = harness.gsplit(*words).json()
        plans = {f"{row['name']}, {row['ranks']} ranks": row for row in (*said["plans"], *said["apart"])}

        def once(system):
            options = [word for option in plans[system]["options"] for word in option.split()]
            run = ["--epochs", 2, "--eval-every", 0, "--threads", THREADS, "--json"]
            epoch = harness.gsplit("train", folder, *options, *run).json()["summary"]["epochs"][-1]
            return {"seconds": epoch["seconds"]}

        table = harness.Table(name, "system", "predicted, s", "measured, s", "predicted / measured", "bound by")
        runs = table.interleave(plans, bench.rounds, once)
        measured = [runs.median(system, "seconds") for system in plans]
        predicted = [row["epoch_s"] for row in plans.values()]
        for (system, row), ours, theirs in zip(plans.items(), predicted, measured):
            table.add(system, ours, theirs, ours / theirs, row["bound"])
        bench.keep(table)
        error = statistics.mean(abs(ours - theirs) / theirs for ours, theirs in zip(predicted, measured))
        alike = measured[: len(said["plans"])]
        summary.add(name, min(alike) / alike[0], harness.spearman(predicted[: len(alike)], alike), 100 * error, str(alike[0] == max(alike)))
    bench.keep(summary)
