#!/usr/bin/env python3
"""Graphs like ogbn-products, as text or as arrays.

    edges.py FOLDER text LINES                      the inputs of the benchmark `convert`
    edges.py FOLDER wide ROWS                       its tables: wide.csv, wide.parquet, counts.json
    edges.py FOLDER arrays VERTICES EDGES FEATURES  edge_index.npy; label.npy and feat.npy if
                                                    FEATURES is not 0
    edges.py FOLDER ogb RAW FEATURES                the same arrays, with edges and labels of an OGB
                                                    folder

Degree-corrected communities (47 classes, of communities of 400 vertices each), distinct undirected
edges u < v, ids permuted so that neighbours are far apart. `text` has 48 vertices for 1000 edges,
and writes

    snap.txt                  u<TAB>v below a `#` header, ordered by u and v: as SNAP's files are
    shuffled.txt              the same lines in random order
    edge.csv                  u,v
    ogb/raw/edge.csv.gz       the same by gzip -6, with OGB's num-node-list.csv.gz and
                              num-edge-list.csv.gz
    counts.json               {"vertices": n, "edges": LINES}

`wide` has 20 columns: the ends of random edges, ten columns of normal numbers to four decimals, six
of whole numbers of one to six digits, and two of four words.

Features are float32, each class around a centre of its own. The same bytes every time; about 60
bytes of memory per edge, and one minute for 50 million lines, most of it for gzip.
"""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

CLASSES, COMMUNITY = 47, 400
WITHIN_COMMUNITY, WITHIN_CLASS = 0.45, 0.36
CHUNK, FEATURE_CHUNK = 1 << 23, 1 << 16


def shape(n, rng):
    """The expected degrees of `n` vertices, up to a factor, and where each class begins."""
    weight = np.minimum(rng.pareto(1.6, n) + 1, 600)
    share = rng.pareto(1.2, CLASSES) + 0.15
    classes = np.concatenate(([0], (np.cumsum(share / share.sum()) * n).astype(np.int64)))
    classes[-1] = n
    return weight, classes


def draw(weight, classes, count, rng):
    """About `count` pairs, duplicates and loops included; a community has consecutive ids."""
    n = len(weight)
    total = np.concatenate(([0], np.cumsum(weight)))
    communities = np.unique(np.concatenate((np.arange(0, n, COMMUNITY), classes)))
    every = np.repeat(np.arange(n), rng.poisson(weight * (count / total[-1])))
    for first in range(0, len(every), CHUNK):
        u = every[first : first + CHUNK]
        kind = rng.random(len(u))
        low, high = np.zeros(len(u), np.int64), np.full(len(u), n)
        parts = ((communities, kind < WITHIN_COMMUNITY), (classes, kind >= 1 - WITHIN_CLASS))
        for bounds, chosen in parts:
            at = np.searchsorted(bounds, u[chosen], side="right")
            low[chosen], high[chosen] = bounds[at - 1], bounds[at]
        point = total[low] + rng.random(len(u)) * (total[high] - total[low])
        yield u, np.minimum(np.searchsorted(total, point, side="right") - 1, n - 1)


def graph(n, lines, rng):
    """`lines` distinct edges u < v in order, as int32, and the class of each vertex, as int32."""
    ids = rng.permutation(n)
    weight, classes = shape(n, rng)
    keys = []
    for u, v in draw(weight, classes, lines * 1.25, rng):
        u, v = ids[u], ids[v]
        keys.append((np.minimum(u, v) * n + np.maximum(u, v))[u != v])
    key = np.concatenate(keys)
    keys.clear()
    key.sort()
    key = key[np.concatenate(([True], key[1:] != key[:-1]))]
    if len(key) < lines:
        sys.exit(f"error: {len(key)} distinct edges were drawn, {lines} are needed: draw more")
    keep = np.ones(len(key), bool)
    keep[rng.choice(len(key), len(key) - lines, replace=False, shuffle=False)] = False
    u, v = np.divmod(key[keep], n)
    label = np.empty(n, np.int32)
    label[ids] = np.repeat(np.arange(CLASSES, dtype=np.int32), np.diff(classes))
    return u.astype(np.int32), v.astype(np.int32), label


def write(path, u, v, delimiter, header=""):
    with path.open("wb") as file:
        file.write(header.encode())
        options = pyarrow.csv.WriteOptions(include_header=False, delimiter=delimiter)
        pyarrow.csv.write_csv(pa.table({"u": u, "v": v}), file, options)


def write_text(folder, lines):
    shutil.rmtree(folder, ignore_errors=True)
    raw = folder / "ogb" / "raw"
    raw.mkdir(parents=True)
    n = lines * 48 // 1000
    rng = np.random.default_rng(1)
    u, v, _ = graph(n, lines, rng)
    present = np.zeros(n, bool)
    present[u] = present[v] = True
    if not present.all():
        sys.exit("error: some vertex has no edge, which the header of SNAP's files does not count: draw more")
    title = f"# Undirected graph: products-like\n# Nodes: {n} Edges: {lines}\n# FromNodeId\tToNodeId\n"
    write(folder / "edge.csv", u, v, ",")
    with (raw / "edge.csv.gz").open("wb") as file:
        packing = subprocess.Popen(["gzip", "-6", "-n", "-c", folder / "edge.csv"], stdout=file)
    for name, count in (("num-node-list", n), ("num-edge-list", lines)):
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(f"{count}\n".encode(), mtime=0))
    write(folder / "snap.txt", u, v, "\t", title)
    order = rng.permutation(lines)
    write(folder / "shuffled.txt", u[order], v[order], "\t", title)
    if packing.wait() != 0:
        sys.exit("error: gzip failed")
    (folder / "counts.json").write_text(json.dumps({"vertices": n, "edges": lines}))


def write_wide(folder, rows):
    import pyarrow.parquet

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    n = rows // 10
    columns = {name: rng.integers(0, n, rows) for name in ("src", "dst")}
    edges = len(np.unique(columns["src"] * n + columns["dst"]))
    columns |= {f"f{at}": np.round(rng.normal(size=rows), 4) for at in range(10)}
    columns |= {f"i{at}": rng.integers(0, 10 ** (at + 1), rows) for at in range(6)}
    words = np.array(["red", "green", "blue", "black"])
    columns |= {f"c{at}": words[rng.integers(0, 4, rows)] for at in range(2)}
    table = pa.table(columns)
    pyarrow.csv.write_csv(table, folder / "wide.csv")
    pyarrow.parquet.write_table(table, folder / "wide.parquet")
    (folder / "counts.json").write_text(json.dumps({"vertices": n, "edges": edges}))


def write_features(file, label, width, rng):
    """Normal noise around a centre for each class, so near that one vertex hardly shows its class."""
    centres = rng.normal(scale=0.15, size=(label.max() + 1, width)).astype(np.float32)
    rows = np.lib.format.open_memmap(file, "w+", np.float32, (len(label), width))
    for first in range(0, len(label), FEATURE_CHUNK):
        of = label[first : first + FEATURE_CHUNK]
        rows[first : first + FEATURE_CHUNK] = centres[of] + rng.standard_normal((len(of), width), dtype=np.float32)
    rows.flush()


def write_arrays(folder, edges, label, width, rng):
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "edge_index.npy", edges)
    if width:
        np.save(folder / "label.npy", label)
        write_features(folder / "feat.npy", label, width, rng)


def main(folder, kind, *words):
    rng = np.random.default_rng(1)
    if kind == "text":
        write_text(folder, int(words[0]))
    elif kind == "wide":
        write_wide(folder, int(words[0]))
    elif kind == "ogb":
        files = (Path(words[0]) / "raw" / f"{name}.csv.gz" for name in ("edge", "node-label"))
        edges, label = (np.loadtxt(file, np.int32, delimiter=",") for file in files)
        write_arrays(folder, edges.T, label, int(words[1]), rng)
    else:
        u, v, label = graph(int(words[0]), int(words[1]), rng)
        write_arrays(folder, np.stack((u, v)), label, int(words[2]), rng)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
