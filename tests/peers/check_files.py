"""scipy, METIS, pyarrow, DuckDB and pandas open the other formats: check_files.py DATASET FOLDER_OF_EXPORTS"""

import sys
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse
from dataset import Dataset, check


def adjacency(ours, values):
    """Row = source, column = target; parallel edges add up."""
    return scipy.sparse.coo_array((values, (ours.indices, ours.targets)), shape=(ours.n, ours.n)).tocsr()


def check_mtx(ours, file):
    found = scipy.io.mmread(file).tocoo()
    weights = ours.edge_columns.get("weight", np.ones(ours.m))
    ends = (found.row.astype(np.int64), ours.indices), (found.col.astype(np.int64), ours.targets)
    # The text is the shortest that reads back to the weight in its own type.
    values = found.data.astype(weights.dtype), weights
    check(f"scipy {scipy.__version__} mmread, {ours.path.name}", (found.shape, (ours.n, ours.n)), *ends, values)


def check_metis(ours, file):
    import pymetis

    lines = Path(file).read_text().split("\n")
    assert lines.pop() == "", "the last line ends"
    # A comment says by which number small weights are multiplied.
    factor = int(lines.pop(0).split()[-1]) if lines[0].startswith("%") else 1
    head = lines[0].split()
    n, m, weighted = int(head[0]), int(head[1]), head[2:] == ["001"]
    assert len(lines) == n + 1 and head[2:] in ([], ["001"])
    rows = [np.array(line.split(), dtype=np.int64) for line in lines[1:]]
    neighbours = [row[::2] - 1 if weighted else row - 1 for row in rows]
    weights = np.concatenate([row[1::2] if weighted else np.ones(len(row), np.int64) for row in rows])
    xadj = np.concatenate([[0], np.cumsum([len(row) for row in neighbours])])
    adjncy = np.concatenate(neighbours)
    values = ours.edge_columns.get("weight", np.ones(ours.m)).astype(np.float64)
    union = adjacency(ours, values)
    directed = (adjacency(ours, np.ones(ours.m)) > 0).astype(np.float64)
    # Where both directions are there, their mean.
    halves = directed.multiply(directed.T) * -0.5
    union = union + union.T
    union = (union + union.multiply(halves)).tolil()
    union.setdiag(0)
    pattern = adjacency(ours, np.ones(ours.m))
    pattern = (pattern + pattern.T).tolil()
    pattern.setdiag(0)
    pattern = pattern.tocsr()
    pattern.eliminate_zeros()
    pattern.sort_indices()
    check(f"metis file, {ours.path.name}: header", ((n, m), (ours.n, pattern.nnz // 2)))
    check(f"metis file, {ours.path.name}: lists", (xadj, pattern.indptr), (adjncy, pattern.indices))
    sums = np.asarray(union.tocsr()[pattern.nonzero()]).ravel()
    expected = np.maximum(sums * factor, 1) if weighted else np.ones(len(weights))
    # Half-way sums may be rounded either way, as their order of addition has it.
    near = bool((np.abs(weights - expected) <= 0.5 + 1e-9).all())
    check(f"metis file, {ours.path.name}: weights", (near, True))
    cut, parts = pymetis.part_graph(3, xadj=xadj.tolist(), adjncy=adjncy.tolist(), eweights=weights.tolist())
    owner = np.array(parts)
    ends = np.repeat(np.arange(n), np.diff(xadj))
    check(f"pymetis partitions {ours.path.name}", (cut, weights[owner[ends] != owner[adjncy]].sum() // 2))


def column(table, name):
    values = table[name].combine_chunks()
    if hasattr(values, "flatten") and values.type.num_fields:
        return np.asarray(values.flatten()).reshape(len(values), -1)
    return values.to_numpy(zero_copy_only=False)


def check_parquet(ours, folder):
    import duckdb
    import pyarrow
    import pyarrow.parquet as pq

    edges, nodes = pq.read_table(folder / "edges"), pq.read_table(folder / "nodes")
    peer = f"pyarrow {pyarrow.__version__}, {ours.path.name}"
    check(f"{peer}: edges", (column(edges, "src"), ours.indices), (column(edges, "dst"), ours.targets))
    for name, values in ours.edge_columns.items():
        check(f"{peer}: edge column {name}", (column(edges, name), values))
    check(f"{peer}: ids", (column(nodes, "id"), np.arange(ours.n)))
    for name, values in {"feat": ours.features(), **ours.columns}.items():
        if values is not None:
            check(f"{peer}: {name}", (column(nodes, name), values))
    labels = ours.labels()
    if labels is not None and labels.ndim == 1:
        check(f"{peer}: labels", (nodes["label"].fill_null(-1).to_numpy().astype(np.int64), labels))
    elif labels is not None:
        check(f"{peer}: labels", (column(nodes, "label").astype(np.float32), labels))
    for name in ("train", "valid", "test"):
        if ours.split(name) is not None:
            members = [i for i, split in enumerate(nodes["split"].to_pylist()) if split == name]
            check(f"{peer}: {name} split", (np.array(members, np.int64), ours.split(name)))
    if ours.original_ids():
        check(f"{peer}: original ids", (nodes["original_id"].to_pylist(), ours.original_ids()))
    query = "select dst, count(*), sum(src) from read_parquet(?) group by dst order by dst"
    found = np.array(duckdb.execute(query, [str(folder / "edges/*.parquet")]).fetchall(), dtype=np.int64)
    degrees, sums = np.diff(ours.indptr), np.bincount(ours.targets, ours.indices, minlength=ours.n).astype(np.int64)
    some = np.flatnonzero(degrees)
    check(f"duckdb {duckdb.__version__}, {ours.path.name}: edges by target", (found.T, [some, degrees[some], sums[some]]))
    if ours.features() is not None:
        query = "select list_sum(feat) from read_parquet(?) order by id"
        found = np.array(duckdb.execute(query, [str(folder / "nodes/*.parquet")]).fetchall()).ravel()
        close = np.allclose(found, ours.features().astype(np.float64).sum(axis=1), rtol=1e-4, atol=1e-3)
        check(f"duckdb, {ours.path.name}: sums of the features", (close, True))


def check_snap(ours, file):
    import pandas

    table = pandas.read_csv(file, sep="\t", comment="#", header=None, names=["u", "v"])
    peer = f"pandas {pandas.__version__}, {file.name}, {ours.path.name}"
    check(peer, (table.u.to_numpy(), ours.indices), (table.v.to_numpy(), ours.targets))


def main(path, exports):
    ours, exports = Dataset(path), Path(exports)
    check_mtx(ours, exports / "graph.mtx")
    check_metis(ours, exports / "metis.graph")
    check_parquet(ours, exports / "parquet")
    check_snap(ours, exports / "edges.txt")
    check_snap(ours, exports / "edges.txt.gz")


if __name__ == "__main__":
    main(*sys.argv[1:])
