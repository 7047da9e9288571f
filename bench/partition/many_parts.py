#!/usr/bin/env python3
"""How fast and how well gsplit cuts into many parts, and thin shapes, beside METIS 5.2.1 and KaMinPar.

k = 4 to 16,384 on ogbn-arxiv, com-DBLP, a grid and roads, and 8 to 1,000 on a path and a random tree; an imbalance of 3 %, unit
weights, two threads (METIS has one). KaMinPar by its default preset and by `largek`, the better cut of which counts, with its seconds.
Medians of interleaved seeds. Real graphs are taken from ../shared/data, or DATA=folder, and left out where they are not there.
"""

import random
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import WORK, BenchError  # noqa: E402

run = measure.script("partition/run.py")

SEEDS = 3
MANY, THIN = (4, 64, 256, 1024, 4096, 16384), (8, 256, 1000)
PRESETS = ("default", "largek")


def grid(side, kept, draw):
    """Pairs of a grid, of which a portion is kept."""
    for v in range(side * side):
        if v % side and draw.random() < kept:
            yield v - 1, v
        if v >= side and draw.random() < kept:
            yield v - side, v


def generated(name, vertices, pairs):
    """A graph from METIS's format, its vertices in random order."""
    file = WORK / "data" / f"{name}.graph"
    file.parent.mkdir(parents=True, exist_ok=True)
    order = list(range(vertices))
    random.Random(1).shuffle(order)
    rows = [[] for _ in range(vertices)]
    for u, v in pairs:
        rows[order[u]].append(order[v] + 1)
        rows[order[v]].append(order[u] + 1)
    lines = [f"{vertices} {sum(map(len, rows)) // 2}", *(" ".join(map(str, row)) for row in rows)]
    file.write_text("\n".join(lines) + "\n")
    return run.Graph(name, ("convert", file), ("unit",), SEEDS)


def graphs():
    draw = random.Random(2)
    yield run.GRAPHS[0]._replace(weights=("unit",)), MANY
    yield run.GRAPHS[1]._replace(weights=("unit",)), MANY
    yield generated("grid", 400 * 400, grid(400, 1, draw)), MANY
    yield generated("roads", 500 * 500, grid(500, 0.7, draw)), MANY
    yield generated("path", 150_001, ((v - 1, v) for v in range(1, 150_001))), THIN
    yield generated("tree", 150_000, ((draw.randrange(v), v) for v in range(1, 150_000))), THIN


def kaminpar(bench, file, parts, seed):
    """The run of the preset whose cut is less."""
    found = []
    for preset in PRESETS:
        command = [bench.python, HERE / "peer.py", "partition", file, parts, seed, preset]
        said = run.json.loads(measure.run(command).output.splitlines()[-1])
        found.append(run.Run(said["seconds"], said["cut"], 0.0))
    return min(found, key=lambda one: one.cut)


def compare(bench, graph, all_parts, seeds):
    folder = bench.dataset(graph)
    if folder is None:
        return
    bench.write_peer_file(folder, "unit")
    for parts in all_parts:
        found = {"gsplit": [], "METIS": [], "KaMinPar": []}
        for seed in range(seeds):
            for name in ("gsplit", "METIS"):
                found[name].append(bench.one(name, folder, "unit", parts, seed))
            found["KaMinPar"].append(kaminpar(bench, run.peer_file(folder, "unit"), parts, seed))
        seconds = {name: statistics.median(one.seconds for one in runs) for name, runs in found.items()}
        cuts = {name: statistics.median(one.cut for one in runs) for name, runs in found.items()}
        row = [f"{graph.name}, {parts:,}", *(f"{value:.2f}" for value in seconds.values())]
        row += [f"{value:,.0f}" for value in cuts.values()]
        row.append(f"{cuts['gsplit'] / min(cuts['METIS'], cuts['KaMinPar']):.3f}")
        print("|", " | ".join(row), "|", flush=True)


def main():
    parser = measure.argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed")
    args = parser.parse_args()
    try:
        bench = run.Bench(measure.binary(), measure.environment())
        with measure.alone():
            print("| graph, k | gsplit, s | METIS, s | KaMinPar, s | gsplit, cut | METIS, cut | KaMinPar, cut | gsplit / less of both |")
            print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
            for graph, all_parts in graphs():
                compare(bench, graph, all_parts, 1 if args.quick else SEEDS)
    except BenchError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
