"""DGL's chunked graph, read as DGL's tools/distpartitioning reads it: check_dgl.py DATASET EXPORT [PARTITION]

The tools are not part of DGL's wheel. What they do with the files is done here with the same readers: csv by pyarrow with
the delimiter of the metadata, arrays by numpy, metadata by pydantic.
"""

import json
import sys
from pathlib import Path
from typing import Optional

import numpy as np
import pyarrow.csv
import pydantic
import torch
from dataset import Dataset, check

NODES, EDGES = "_N", "_N:_E:_N"


class PartitionMeta(pydantic.BaseModel):
    version: Optional[str] = "1.0.0"
    num_parts: int
    algo_name: str


def read_edges(folder, entry):
    parse = pyarrow.csv.ParseOptions(delimiter=entry["format"]["delimiter"])
    read = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
    sizes, ends = [], []
    for name in entry["data"]:
        if (folder / name).stat().st_size == 0:
            sizes.append(0)
            continue
        table = pyarrow.csv.read_csv(folder / name, read_options=read, parse_options=parse)
        sizes.append(table.num_rows)
        ends.append(np.stack([table["f0"].to_numpy(), table["f1"].to_numpy()]))
    return sizes, np.concatenate(ends, axis=1)


def read_arrays(folder, entry, sizes):
    assert entry["format"]["name"] == "numpy"
    arrays = [np.load(folder / name) for name in entry["data"]]
    assert [len(array) for array in arrays] == sizes
    return np.concatenate(arrays)


def main(path, export, partition=None):
    import dgl

    ours, folder = Dataset(path), Path(export)
    peer = f"dgl {dgl.__version__} chunks, {ours.path.name}"
    schema = json.loads((folder / "metadata.json").read_text())
    check(f"{peer}: types", (schema["node_type"], [NODES]), (schema["edge_type"], [EDGES]))
    node_sizes, edge_sizes = schema["num_nodes_per_chunk"][0], schema["num_edges_per_chunk"][0]
    found, (sources, targets) = read_edges(folder, schema["edges"][EDGES])
    check(f"{peer}: sizes", (found, edge_sizes), (sum(node_sizes), ours.n), (sum(edge_sizes), ours.m))
    graph = dgl.graph((torch.from_numpy(sources), torch.from_numpy(targets)), num_nodes=ours.n)
    indptr, indices, edges = graph.adj_tensors("csc")
    check(f"{peer}: graph", (indptr, ours.indptr), (indices, ours.indices), (edges, np.arange(ours.m)))
    nodes = schema["node_data"].get(NODES, {})
    arrays = {"feat": ours.features(), "label": ours.labels(), **ours.columns}
    for mask, split in [("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")]:
        if ours.split(split) is not None:
            arrays[mask] = np.isin(np.arange(ours.n), ours.split(split)).astype(np.uint8)
    arrays = {name: array for name, array in arrays.items() if array is not None}
    assert set(nodes) == set(arrays), (set(nodes), set(arrays))
    for name, array in arrays.items():
        check(f"{peer}: {name}", (read_arrays(folder, nodes[name], node_sizes), array))
    edge_data = schema["edge_data"].get(EDGES, {})
    assert set(edge_data) == set(ours.edge_columns)
    for name, array in ours.edge_columns.items():
        check(f"{peer}: edge column {name}", (read_arrays(folder, edge_data[name], edge_sizes), array))
    if partition:
        meta = PartitionMeta(**json.loads((folder / "partition/partition_meta.json").read_text()))
        assert meta.version == "1.0.0" and meta.algo_name in ("random", "metis")
        parts = np.loadtxt(folder / f"partition/{NODES}.txt", dtype=np.int64)
        stored = ours.array(f"partition/{partition}/assignment.npy").astype(np.int64)
        check(f"{peer}: parts", (parts, stored), (meta.num_parts, stored.max() + 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
