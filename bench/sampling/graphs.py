#!/usr/bin/env python3
"""A graph for `make bench-sampling`: graphs.py FILE VERTICES EDGES.

The graph of bench/convert/inputs.py with other sizes: degree-corrected communities within classes, ids permuted so that
neighbours lie far apart. FILE becomes an int32 (2, EDGES) array of distinct undirected edges, which `gsplit convert
--symmetrise` stores in both directions. The same bytes every time; about 60 bytes of memory an edge.
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np

CONVERT = Path(__file__).resolve().parent.parent / "convert" / "inputs.py"


def main(file, vertices, edges):
    spec = importlib.util.spec_from_file_location("inputs", CONVERT)
    inputs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(inputs)
    u, v = inputs.graph(vertices, edges, np.random.default_rng(1))
    np.save(file, np.stack((u, v)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
