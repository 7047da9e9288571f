"""load.py makes a torch_geometric Data of `gsplit export --format pyg`: check_pyg.py DATASET EXPORT"""

import sys

import numpy as np
from dataset import Dataset, check, skip


def main(path, export):
    sys.path.insert(0, export)
    import torch_geometric
    from load import load
    from torch_geometric.utils import to_scipy_sparse_matrix

    ours, data = Dataset(path), load()
    peer = f"pyg {torch_geometric.__version__}, {ours.path.name}"
    data.validate(raise_on_error=True)
    check(f"{peer}: vertices and edges", (data.num_nodes, ours.n), (data.num_edges, ours.m))
    check(f"{peer}: edge_index", (data.edge_index, [ours.indices, ours.targets]))
    for name, array in {"x": ours.features(), "y": ours.labels(), **ours.columns}.items():
        if array is not None:
            check(f"{peer}: {name}", (data[name], array))
            assert data.is_node_attr(name)
    assert getattr(data, "class_names", None) == ours.manifest.get("class_names")
    for mask, split in [("train_mask", "train"), ("val_mask", "valid"), ("test_mask", "test")]:
        if ours.split(split) is not None:
            check(f"{peer}: {mask}", (data[mask], np.isin(np.arange(ours.n), ours.split(split))))
    names = {"weight": "edge_weight", "feat": "edge_attr"}
    for name, array in ours.edge_columns.items():
        name = names.get(name, f"edge_{name}")
        check(f"{peer}: {name}", (data[name], array))
        assert data.is_edge_attr(name)
    degrees = np.asarray(to_scipy_sparse_matrix(data.edge_index, num_nodes=ours.n).sum(axis=0)).ravel()
    check(f"{peer}: in-degrees through scipy", (degrees.astype(np.int64), np.diff(ours.indptr)))
    sample(peer, ours, data)


def sample(peer, ours, data):
    from torch_geometric.loader import NeighborLoader

    if "train_mask" not in data:
        return skip(f"{peer}: NeighborLoader", "the dataset has no splits")
    try:
        batch = next(iter(NeighborLoader(data, [3, 3], batch_size=32, input_nodes=data.train_mask)))
    except ImportError as error:
        return skip(f"{peer}: NeighborLoader", str(error))
    check(f"{peer}: a mini-batch", (batch.x, ours.features()[batch.n_id.numpy()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
