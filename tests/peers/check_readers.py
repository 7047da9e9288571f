#!/usr/bin/env python3
"""Graphs as networkx, SciPy and pandas write them, and real files, come out of `gsplit convert` equal to an independent parse:
check_readers.py GSPLIT FOLDER [DATA]. DATA has real graphs (email-Eu-core/, wiki-Vote/, mtx/ ...); what it lacks is skipped.
"""

import gzip
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse
from dataset import Dataset, check, skip

REAL_LISTS = [
    "email-Eu-core/email-Eu-core.txt",
    "email-Eu-core/email-Eu-core.txt.gz",
    "wiki-Vote/wiki-Vote.txt",
    "p2p-Gnutella31/p2p-Gnutella31.txt",
    "facebook_combined/facebook_combined.txt.gz",
    "soc-Slashdot0902/soc-Slashdot0902.txt.gz",
    "com-dblp/dblp.csv.gz",
]
REAL_MATRICES = ["mtx/bayer10.mtx", "mtx/bcspwr10.mtx"]
REAL_METIS = ["metis-graphs/4elt.graph", "metis-graphs/wing.graph"]


def text(path):
    return gzip.open(path, "rt") if path.suffix == ".gz" else open(path)


def edges_of_list(path):
    graph = nx.read_edgelist(text_lines(path), nodetype=int, create_using=nx.DiGraph, data=False)
    return set(graph.edges())


def text_lines(path):
    """The lines without comments, and without a first line that counts vertices and edges, as gapbs' and Gnutella's has."""
    with text(path) as lines:
        lines = [line.encode() for line in lines if not line.startswith("#")]
    first = lines[0].split()
    is_header = len(first) == 2 and first[1] == str(len(lines) - 1).encode()
    return lines[1:] if is_header else lines


def edges_of_matrix(path):
    matrix = scipy.io.mmread(path).tocoo()
    return set(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True))


def edges_of_metis(path):
    with open(path) as lines:
        rows = [line.split() for line in lines if not line.startswith("%")]
    return {(u, int(v) - 1) for u, row in enumerate(rows[1:]) for v in row}


def convert(binary, path, out, options):
    subprocess.run([binary, "--quiet", "convert", path, "--out", out, *options], check=True, stdout=subprocess.DEVNULL)
    dataset = Dataset(out)
    ids = dataset.original_ids() or list(range(dataset.n))
    ends = zip(dataset.indices.tolist(), dataset.targets.tolist(), strict=True)
    return dataset, {(ids[u], ids[v]) for u, v in ends}, ids


def compare(binary, path, folder, expected, options=(), isolated=()):
    name = "-".join(path.parts[-2:]) + "".join(options).replace("/", "_")
    _, found, ids = convert(binary, path, folder / f"{name}-ds", options)
    differing = sorted(map(str, found ^ expected))[:3]
    check(f"reads   {name} {differing or ''}".rstrip(), (len(found ^ expected), 0), (set(isolated) <= set(ids), True))


def check_real(binary, folder, data):
    parsers = [(REAL_LISTS, edges_of_list), (REAL_MATRICES, edges_of_matrix), (REAL_METIS, edges_of_metis)]
    for names, parse in parsers:
        for name in names:
            path = data / name if data else None
            if path is None or not path.exists():
                skip(f"reads {name}", "no such file among the data")
                continue
            compare(binary, path, folder, parse(path))


def graphs():
    """Graphs that networkx makes: directed, undirected, with vertices without edges."""
    yield "karate", nx.karate_club_graph()
    yield "directed", nx.gnp_random_graph(300, 0.02, seed=3, directed=True)
    lonely = nx.gnm_random_graph(200, 150, seed=5, directed=True)
    yield "lonely", lonely


def check_written(binary, folder):
    for name, graph in graphs():
        place = folder / name
        place.mkdir()
        directed = set(graph.edges()) if graph.is_directed() else set(graph.edges()) | {(v, u) for u, v in graph.edges()}
        as_listed = set(graph.edges())
        both = () if graph.is_directed() else ("--symmetrise",)
        alone = [v for v, degree in graph.degree() if degree == 0]

        nx.write_edgelist(graph, place / "edges.txt", data=False)
        compare(binary, place / "edges.txt", folder, directed, both)
        nx.write_edgelist(graph, place / "edges.csv", delimiter=",", data=False)
        compare(binary, place / "edges.csv", folder, directed, both)
        nx.write_adjlist(graph, place / "graph.adjlist")
        compare(binary, place / "graph.adjlist", folder, directed, both, isolated=alone)
        scipy.io.mmwrite(place / "graph.mtx", nx.to_scipy_sparse_array(graph, nodelist=sorted(graph)).astype(float), symmetry="general")
        compare(binary, place / "graph.mtx", folder, directed, ("--edge-columns", "none"))
        scipy.sparse.save_npz(place / "graph.npz", nx.to_scipy_sparse_array(graph, nodelist=sorted(graph), format="csr"))
        compare(binary, place / "graph.npz", folder, directed)

        table = pd.DataFrame(sorted(as_listed), columns=["source", "target"])
        table["since"] = pd.Timestamp("2020-01-31") + pd.to_timedelta(np.arange(len(table)), unit="D")
        table["amount"] = np.arange(len(table)) + 0.5
        writers = {
            "index.csv": lambda path, table=table: table.to_csv(path),
            "plain.csv": lambda path, table=table: table.to_csv(path, index=False),
            "german.csv": lambda path, table=table: table.to_csv(path, index=False, sep=";", decimal=","),
            "tabs.tsv.gz": lambda path, table=table: table.to_csv(path, index=False, sep="\t"),
            "plain.parquet": lambda path, table=table: table.to_parquet(path),
            "floats.parquet": lambda path, table=table: table.astype({"source": float, "target": float}).to_parquet(path),
            "floats.csv": lambda path, table=table: table.astype({"source": float, "target": float}).to_csv(path, index=False),
        }
        for file, write in writers.items():
            write(place / file)
            compare(binary, place / file, folder, directed, both)
            dataset = Dataset(folder / f"{name}-{file}{''.join(both)}-ds")
            check(f"columns {name}-{file}", (sorted(dataset.edge_columns), ["amount", "since"]))
            if graph.is_directed():
                order = {edge: row for row, edge in enumerate(sorted(as_listed))}
                ids = dataset.original_ids() or list(range(dataset.n))
                rows = [order[ids[u], ids[v]] for u, v in zip(dataset.indices.tolist(), dataset.targets.tolist(), strict=True)]
                check(
                    f"values  {name}-{file}",
                    (dataset.edge_columns["amount"], table["amount"].to_numpy()[rows]),
                    (dataset.edge_columns["since"], 18292.0 + np.asarray(rows, dtype=float)),
                )
        words = table[["source", "target"]].map(lambda v: f"v{v}")
        words.to_csv(place / "words.csv", index=False, header=False)
        named = {(f"v{u}", f"v{v}") for u, v in directed}
        compare(binary, place / "words.csv", folder, named, ("--schema", "header=no", *both))


def main(binary, folder, data=None):
    folder = Path(folder)
    folder.mkdir(parents=True)
    check_real(binary, folder, Path(data) if data else None)
    check_written(binary, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
