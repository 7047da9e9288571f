#!/usr/bin/env python3
"""One peer reads a list of edges into a CSR or CSC: convert.py PEER FILE VERTICES [FOLDER].

Prints {"seconds", "edges"}: from the first byte read to the finished matrix in memory. Imports are
not counted, and the peers are given the number of vertices. `floor` reads FILE once and writes
VERTICES bytes into FOLDER; `zlib_ng` inflates FILE and drops the output; `check` compares FILE with
the dataset FOLDER. `polars_table` and `pyarrow_table` read all columns of a table, and build no matrix.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

THREADS = 2
STEP = 1 << 20


def scipy_csr(sources, targets, n):
    import scipy.sparse

    ones = np.ones(len(sources), np.int8)
    return scipy.sparse.coo_matrix((ones, (sources, targets)), shape=(n, n)).tocsr()


def separator(path):
    return "\t" if path.suffix == ".txt" else ","


def pyarrow(path, n, _folder):
    import pyarrow
    import pyarrow.csv as csv
    import scipy.sparse  # noqa: F401

    pyarrow.set_cpu_count(THREADS)
    yield
    read = csv.ReadOptions(skip_rows=3, column_names=["u", "v"])
    types = csv.ConvertOptions(column_types={"u": pyarrow.int32(), "v": pyarrow.int32()})
    table = csv.read_csv(path, read, csv.ParseOptions(delimiter=separator(path)), types)
    yield scipy_csr(table["u"].to_numpy(), table["v"].to_numpy(), n).nnz


def polars(path, n, _folder):
    import polars
    import scipy.sparse  # noqa: F401

    yield
    schema = {"u": polars.Int32, "v": polars.Int32}
    comment = "#" if path.suffix == ".txt" else None
    options = {"has_header": False, "schema": schema, "comment_prefix": comment}
    table = polars.read_csv(path, separator=separator(path), **options)
    yield scipy_csr(table["u"].to_numpy(), table["v"].to_numpy(), n).nnz


def dgl(path, n, _folder):
    """Pandas reads, DGL turns coordinates into a CSC."""
    import dgl
    import pandas
    import torch

    torch.set_num_threads(THREADS)
    yield
    comment = "#" if path.suffix == ".txt" else None
    table = pandas.read_csv(path, sep=separator(path), comment=comment, header=None, dtype=np.int32, engine="c")
    ends = tuple(torch.from_numpy(table[at].to_numpy()) for at in (0, 1))
    del table
    yield len(dgl.graph(ends, num_nodes=n).adj_tensors("csc")[1])


def polars_table(path, _n, _folder):
    import polars

    yield
    polars.scan_csv(path).collect()
    yield 0


def pyarrow_table(path, _n, _folder):
    import pyarrow
    import pyarrow.parquet as parquet

    pyarrow.set_cpu_count(THREADS)
    yield
    parquet.read_table(path)
    yield 0


def floor(path, num_bytes, folder):
    """Every byte read once, every byte written once and brought to the disk."""
    buffer, left = bytearray(STEP), num_bytes
    yield
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    with (folder / "floor").open("wb", buffering=0) as file:
        while left > 0:
            left -= file.write(memoryview(buffer)[:left])
        os.fsync(file.fileno())
    yield 0
    (folder / "floor").unlink()


def zlib_ng(path, _n, _folder):
    from zlib_ng import zlib_ng

    yield
    decompressor = zlib_ng.decompressobj(31)
    with path.open("rb", buffering=0) as file:
        while data := file.read(STEP):
            while data:
                decompressor.decompress(data, STEP)
                data = decompressor.unconsumed_tail
    yield 0


def check(path, n, dataset):
    """Fails unless the dataset is the CSC of the lines."""
    import pyarrow.csv as csv
    import scipy.sparse

    yield
    read = csv.ReadOptions(skip_rows=3, column_names=["u", "v"])
    table = csv.read_csv(path, read, csv.ParseOptions(delimiter=separator(path)))
    u, v = table["u"].to_numpy(), table["v"].to_numpy()
    wanted = scipy.sparse.coo_matrix((np.ones(len(u), np.int8), (u, v)), shape=(n, n)).tocsc()
    wanted.sort_indices()
    for name, array in (("indptr", wanted.indptr), ("indices", wanted.indices)):
        if not np.array_equal(np.load(dataset / "topology" / f"{name}.npy"), array):
            sys.exit(f"error: {dataset}: {name} is not that of {path}")
    yield wanted.nnz


PEERS = [pyarrow, polars, dgl, polars_table, pyarrow_table, floor, zlib_ng, check]


def main(name, path, n, folder="."):
    os.environ["DGLBACKEND"] = "pytorch"
    for variable in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS"):
        os.environ[variable] = str(THREADS)
    (peer,) = (peer for peer in PEERS if peer.__name__ == name)
    steps = peer(Path(path), int(n), Path(folder))
    next(steps)  # imports
    start = time.perf_counter()
    edges = next(steps)
    seconds = time.perf_counter() - start
    next(steps, None)  # tidies up
    print(json.dumps({"seconds": seconds, "edges": int(edges)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
