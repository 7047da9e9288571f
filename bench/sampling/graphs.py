#!/usr/bin/env python3
"""A graph for `make bench-sampling` and `make bench-train`: graphs.py FOLDER VERTICES EDGES [FEATURES],
or graphs.py FOLDER OGB FEATURES.

The graph of bench/convert/inputs.py with other sizes: degree-corrected communities within classes, ids permuted so that
neighbours lie far apart. FOLDER gets `edge_index.npy`, an int32 (2, EDGES) array of distinct undirected edges, which
`gsplit convert --symmetrise` stores in both directions; with a number of FEATURES also `label.npy` and `feat.npy`,
float32, each class around a centre of its own. With a folder of OGB's, edges and labels are
those of its CSV files. The same bytes every time; about 60 bytes of memory an edge.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import measure  # noqa: E402

CHUNK = 1 << 16


def write_features(file, label, width, rng):
    """Normal noise around a centre for each class, at a distance where a single vertex's features hardly show its class."""
    centres = rng.normal(scale=0.15, size=(label.max() + 1, width)).astype(np.float32)
    rows = np.lib.format.open_memmap(file, "w+", np.float32, (len(label), width))
    for first in range(0, len(label), CHUNK):
        of = label[first : first + CHUNK]
        rows[first : first + CHUNK] = centres[of] + rng.standard_normal((len(of), width), dtype=np.float32)
    rows.flush()


def generated(vertices, edges, rng):
    """Edges and classes of a generated graph."""
    u, v, label = measure.script("convert/inputs.py").graph(vertices, edges, rng)
    return np.stack((u, v)), label


def stored(raw):
    """Edges and classes of a folder of OGB's."""
    edges, label = (np.loadtxt(raw / f"{name}.csv.gz", np.int32, delimiter=",") for name in ("edge", "node-label"))
    return edges.T, label


def main(folder, source, width):
    rng = np.random.default_rng(1)
    edges, label = stored(*source) if len(source) == 1 else generated(*map(int, source), rng)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "edge_index.npy", edges)
    if width:
        np.save(folder / "label.npy", label)
        write_features(folder / "feat.npy", label, width, rng)


if __name__ == "__main__":
    if Path(sys.argv[2]).is_dir():
        main(Path(sys.argv[1]), [Path(sys.argv[2]) / "raw"], int(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), sys.argv[2:4], int(sys.argv[4]) if len(sys.argv) > 4 else 0)
