#!/usr/bin/env python3
"""How fast and how well `gsplit partition --quality high` cuts beside Mt-KaHyPar's default preset.

k = 4, 8 and 64 on the real graphs of ../shared/data, or DATA=folder; an imbalance of 3 %, unit weights, two threads. Medians of the seconds and
means of the cuts of interleaved seeds: Mt-KaHyPar's cuts differ by up to a half from run to run.
"""

import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import BenchError  # noqa: E402

run = measure.script("partition/run.py")

SEEDS, PARTS = 3, (4, 8, 64)
REAL = [graph for graph in run.GRAPHS if graph.make[0] == "convert"]


def compare(bench, graph, seeds):
    """Prints a row for each number of parts; yields the ratios of seconds and of cuts."""
    folder = bench.dataset(graph._replace(weights=("unit",)))
    if folder is None:
        return
    bench.write_peer_file(folder, "unit")
    file = run.peer_file(folder, "unit")
    for parts in PARTS:
        ours, theirs = [], []
        for seed in range(seeds):
            found = bench.one("gsplit high", folder, "unit", parts, seed)
            ours.append((found.seconds, found.cut))
            said = run.json.loads(measure.run([bench.python, HERE / "peer.py", "hypar", file, parts, seed]).output.splitlines()[-1])
            theirs.append((said["seconds"], said["cut"]))
        seconds = [statistics.median(one[0] for one in runs) for runs in (ours, theirs)]
        cuts = [statistics.mean(one[1] for one in runs) for runs in (ours, theirs)]
        row = [f"{graph.name}, {parts}", *(f"{value:.2f}" for value in seconds), *(f"{value:,.0f}" for value in cuts)]
        print("|", " | ".join([*row, f"{cuts[0] / cuts[1]:.3f}"]), "|", flush=True)
        yield seconds[0] / seconds[1], cuts[0] / cuts[1]
    file.unlink()


def main():
    args = measure.arguments("Compare the time of gsplit partition --quality high with Mt-KaHyPar's.", "one seed", REAL)
    ratios = []
    try:
        bench = run.Bench(measure.binary(), measure.environment())
        with measure.alone():
            print("| graph, k | gsplit `high`, s | Mt-KaHyPar, s | gsplit `high`, cut | Mt-KaHyPar, cut | gsplit / its |")
            print("| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
            for graph in REAL:
                if not args.graph or graph.name in args.graph:
                    ratios += compare(bench, graph, 1 if args.quick else SEEDS)
    except BenchError as error:
        sys.exit(f"error: {error}")
    if ratios:
        of_seconds, of_cuts = (statistics.geometric_mean(column) for column in zip(*ratios, strict=True))
        print(f"\nGeometric means of {len(ratios)} rows: seconds {of_seconds:.2f}, cut {of_cuts:.3f} of Mt-KaHyPar's.")


if __name__ == "__main__":
    main()
