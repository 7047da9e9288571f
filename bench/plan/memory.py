#!/usr/bin/env python3
"""How well `gsplit plan` predicts memory: systems and models are planned on two ranks, then trained, and their peaks compared.

The graph has 100,000 vertices and 128 features; three layers of 256, fanouts 15,10,5, mini-batches of 2048 seeds; no evaluation. Measured is the
largest resident set of a process, as `/usr/bin/time -v` has it, less that of the same command on a graph of 400 vertices. Ends with
one JSON line: the least and the largest of planned over measured.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import BenchError  # noqa: E402

DATA = measure.WORK / "data"
SHAPE = ("--layers", 3, "--hidden", 256)
DRAWN = ("--fanouts", "15,10,5", "--batch-size", 2048)
WANTED = {
    "sage": ("one rank", "DGL", "Owned", "GSplit", "P3", "GraNNDis", "GraNNDis, 4 batches"),
    "gcn": ("one rank", "DGL", "GSplit"),
    "gat": ("one rank", "GSplit"),
}


def dataset(gsplit, name, *options):
    folder = DATA / f"plan-memory-{name}"
    if not (folder / "dataset.json").is_file():
        measure.run([gsplit, "generate", "community", *options, "--random-split", "0.1,0.01,0.01", "--out", folder, "--quiet"])
    return folder


def peak(gsplit, folder, options):
    words = [gsplit, "train", folder, *options, "--epochs", 1, "--eval-every", 0, "--threads", 2, "--json"]
    return measure.run(words).peak_bytes


def main():
    gsplit = measure.binary()
    graph = dataset(gsplit, "large", "--vertices", 100_000, "--edges", 1_000_000, "--feature-dim", 128)
    empty = dataset(gsplit, "empty", "--vertices", 400, "--edges", 400, "--feature-dim", 4)
    measure.run([gsplit, "partition", empty, "--parts", 2, "--weights", "degree", "--key", "empty", "--quiet"])
    ratios = []
    print(f"{'model':6} {'system':20} {'planned':>8} {'measured':>8}  ratio   (MiB)")
    for model, systems in WANTED.items():
        words = [gsplit, "plan", graph, "--model", model, *SHAPE, *DRAWN, "--profile", "cpu-2", "--ranks", 2, "--batches", 5, "--json"]
        said = json.loads(measure.run(words).output.splitlines()[-1])
        for row in said["plans"] + said["apart"]:
            if row["name"] not in systems:
                continue
            options = " ".join(row["options"]).split()
            alike = list(options)
            if row["partition"]:
                alike[alike.index("--partition") + 1] = "empty"
            measured = peak(gsplit, graph, options) - peak(gsplit, empty, alike)
            ratios.append(row["memory"] / measured)
            print(f"{model:6} {row['name']:20} {row['memory'] / 2**20:8.0f} {measured / 2**20:8.0f}  {ratios[-1]:5.2f}", flush=True)
    print(json.dumps({"least": round(min(ratios), 2), "largest": round(max(ratios), 2)}))


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"error: {error}")
