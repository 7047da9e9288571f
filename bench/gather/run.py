#!/usr/bin/env python3
"""How fast gsplit gathers feature rows, beside PyTorch's index_select.

300,000 distinct rows at random of the products-like graph's 2.4 million, 400 bytes each, two threads; a dozen rounds in one
process of each, five times in turn. gsplit's rows come from the mapped file and from memory (`train --load-features`).
"tuned" runs have glibc keep what is freed and ask for huge pages. The graph is that of `make bench-train`.

Ends with one JSON line: the ratio of gsplit's GB/s from memory to those of the fastest peer (medians).
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
from measure import ROOT, TUNED, BenchError  # noqa: E402

GATHER = ROOT / "target" / "release" / "examples" / "gather"
GRAPH, ROWS, ROUNDS, THREADS, TURNS = "products-like", 300_000, 12, 2, 5
PEER = "PyTorch 2.2.1"


def main():
    argparse.ArgumentParser(description="Compare the time of gathering feature rows with PyTorch's.").parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    speeds = {}
    try:
        if not os.access(GATHER, os.X_OK):
            raise BenchError(f"{GATHER} is not there: run `make bench-gather`, which builds it")
        gsplit, python, peer = measure.binary(), measure.environment(), measure.dgl_environment()
        if peer is None:
            raise BenchError("the environment with PyTorch could not be made: there is nothing to compare with")
        train = measure.script("train/run.py")
        (graph,) = (graph for graph in train.GRAPHS if graph.name == GRAPH)
        with measure.alone():
            folder = train.dataset(gsplit, python, graph)
            libraries = {"LD_LIBRARY_PATH": str(ROOT / "libtorch" / "lib"), "RAYON_NUM_THREADS": str(THREADS)}
            for _ in range(TURNS):
                runs = {"gsplit": measure.run([GATHER, folder, ROWS, ROUNDS], **libraries)}
                for name, settings in ((f"{PEER}, tuned", TUNED), (PEER, {})):
                    runs[name] = measure.run([peer, HERE / "peer.py", folder, ROWS, ROUNDS, THREADS], **settings)
                for name, child in runs.items():
                    for way, found in json.loads(child.output.splitlines()[-1]).items():
                        speeds.setdefault((name, way), []).append(statistics.median(found))
    except BenchError as error:
        sys.exit(f"error: {error}")
    ours = statistics.median(speeds["gsplit", "memory"])
    print("| | | GB/s of rows | range | / gsplit's from memory |")
    print("| --- | --- | ---: | ---: | ---: |")
    for (name, way), found in speeds.items():
        middle = statistics.median(found)
        print(f"| {name} | {way} | {middle:.1f} | {min(found):.1f} to {max(found):.1f} | {middle / ours:.2f} |")
    peers = {key: statistics.median(found) for key, found in speeds.items() if key[0] != "gsplit"}
    fastest = max(peers, key=peers.get)
    said = {"bench": "gather", "ratio": round(ours / peers[fastest], 3), "peer": ", ".join(fastest), "graph": GRAPH}
    print("\n" + json.dumps(said))


if __name__ == "__main__":
    main()
