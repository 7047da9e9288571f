#!/usr/bin/env python3
"""Writes one graph of 6 vertices in every raw format that gsplit reads. Standard library only; the same bytes every time.

Vertex 2 is unlabelled, 3 has a self-loop, and the edge 0 -> 1 is listed twice.
"""

import gzip
import struct
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
EDGES = [(0, 1), (0, 2), (1, 2), (2, 0), (2, 3), (3, 3), (3, 4), (4, 5), (5, 4), (0, 1)]
FEATURES = [[vertex + column / 4 for column in range(3)] for vertex in range(6)]
LABELS = [0, 1, None, 2, 1, 0]
SPLITS = {"train": [3, 0], "valid": [1], "test": [4, 5]}


def write(name, content):
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_csv(name, rows):
    text = "".join(",".join(str(value) for value in row) + "\n" for row in rows)
    write(name + ".csv.gz", gzip.compress(text.encode(), mtime=0))


def write_splits(folder):
    for split, vertices in SPLITS.items():
        write_csv(f"{folder}/split/only/{split}", [[vertex] for vertex in vertices])


def npy(descr, shape, values):
    """An array in the .npy format, version 1."""
    header = f"{{'descr': '<{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    code = {"i8": "q", "f4": "f"}[descr]
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}{code}", *values)


def write_npz(name, compression, **members):
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, content in members.items():
            info = zipfile.ZipInfo(member + ".npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(info, content, compress_type=compression)


def ogb_csv():
    write_csv("ogb-csv/raw/num-node-list", [[6]])
    write_csv("ogb-csv/raw/num-edge-list", [[len(EDGES)]])
    write_csv("ogb-csv/raw/edge", EDGES)
    write_csv("ogb-csv/raw/node-feat", FEATURES)
    write_csv("ogb-csv/raw/node-label", [["nan" if label is None else label] for label in LABELS])
    write_splits("ogb-csv")


def ogb_npz():
    sources, targets = zip(*EDGES)
    write_npz(
        "ogb-npz/raw/data.npz",
        zipfile.ZIP_STORED,
        edge_index=npy("i8", (2, len(EDGES)), sources + targets),
        node_feat=npy("f4", (6, 3), sum(FEATURES, [])),
        num_nodes_list=npy("i8", "(1,)", [6]),
        num_edges_list=npy("i8", "(1,)", [len(EDGES)]),
    )
    labels = [float("nan") if label is None else float(label) for label in LABELS]
    write_npz("ogb-npz/raw/node-label.npz", zipfile.ZIP_DEFLATED, node_label=npy("f4", (6, 1), labels))
    write_splits("ogb-npz")


def snap():
    lines = [f"{source}\t{target}" for source, target in EDGES]
    header = ["# Directed graph", f"# Nodes: 6 Edges: {len(EDGES)}", "# FromNodeId\tToNodeId"]
    write("snap/edges.txt", "".join(line + "\r\n" for line in header + lines).encode())
    # The same with gaps between the ids, two gzip members, blanks, and no header.
    lines = [f"{source * source + 10} {target * target + 10}\n".encode() for source, target in EDGES]
    members = [gzip.compress(b"".join(part), mtime=0) for part in (lines[:4], lines[4:])]
    write("snap/gaps.txt.gz", b"".join(members))


if __name__ == "__main__":
    ogb_csv()
    ogb_npz()
    snap()
