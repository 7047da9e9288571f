"""dgl.graphbolt.OnDiskDataset opens `gsplit export --format graphbolt`: check_graphbolt.py DATASET EXPORT"""

import contextlib
import io
import sys

import numpy as np
import torch
from dataset import Dataset, check, skip


def rows(column):
    """GraphBolt makes every feature two-dimensional."""
    return column.reshape(len(column), -1)


def main(path, export):
    import dgl
    import dgl.graphbolt as gb

    ours = Dataset(path)
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = gb.OnDiskDataset(export, include_original_edge_id=True).load()
    peer = f"graphbolt {dgl.__version__}, {ours.path.name}"
    graph = theirs.graph
    check(f"{peer}: vertices and edges", (graph.total_num_nodes, ours.n), (graph.total_num_edges, ours.m))
    check(f"{peer}: topology", (graph.csc_indptr.long(), ours.indptr), (graph.indices.long(), ours.indices))
    ids = graph.edge_attributes[gb.ORIGINAL_EDGE_ID].long()
    check(f"{peer}: edges keep their order", (ids, np.arange(ours.m)))
    features = ours.features()
    if features is not None:
        check(f"{peer}: features", (theirs.feature.read("node", None, "feat"), features))
    for name, column in ours.columns.items():
        check(f"{peer}: node column {name}", (theirs.feature.read("node", None, name), rows(column)))
    for name, column in ours.edge_columns.items():
        check(f"{peer}: edge column {name}", (theirs.feature.read("edge", None, name), rows(column)))
    if ours.split("train") is None:
        return skip(f"{peer}: tasks", "the dataset has no splits")
    task = theirs.tasks[0]
    check(f"{peer}: classes", (task.metadata["num_classes"], ours.manifest["num_classes"]))
    assert task.metadata.get("class_names") == ours.manifest.get("class_names")
    labels = ours.labels()
    for name, items in [("train", task.train_set), ("valid", task.validation_set), ("test", task.test_set)]:
        seeds, classes = (torch.stack([item[i] for item in items]) for i in (0, 1))
        split = ours.split(name)
        check(f"{peer}: {name} split and labels", (seeds.long(), split), (classes, labels[split]))
    sample(peer, gb, theirs, labels, features)


def sample(peer, gb, theirs, labels, features):
    """One mini-batch of GraphBolt's own data loader."""
    pipe = gb.ItemSampler(theirs.tasks[0].train_set, batch_size=64).sample_neighbor(theirs.graph, [3, 3])
    pipe = pipe.fetch_feature(theirs.feature, node_feature_keys=["feat"])
    batch = next(iter(gb.DataLoader(pipe)))
    found = batch.node_features["feat"], batch.labels
    expected = features[batch.input_nodes.numpy()], labels[batch.seed_nodes.numpy()]
    check(f"{peer}: a sampled mini-batch", *zip(found, expected))


if __name__ == "__main__":
    main(*sys.argv[1:])
