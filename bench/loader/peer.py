#!/usr/bin/env python3
"""One loader, drained: peer.py LOADER DATASET FANOUTS BATCH_SIZE BATCHES THREADS WORKERS.

LOADER is gsplit-pyg, gsplit-blocks, pyg, dgl or graphbolt. Every one samples mini-batches of the training split in random order
and brings the feature rows of all their vertices and the labels; nothing is computed with them. Prints one JSON line: the seconds of
BATCHES full mini-batches, after ten that are not timed, their edges and vertices. Each loader has the graph in the form that
it is documented to be fastest with: PyG sorted by target; DGL with int64 ids, since with int32 ids DGL 2.1.0's fused sampler
returns edges that are not there; GraphBolt with int32 indices.
"""

import json
import os
import sys
import time

WARM_UP = 10


def gsplit_loader(ds, form, setting):
    import gsplit

    loader = gsplit.NeighborLoader(ds, setting.fanouts, setting.batch_size, form=form, drop_last=True)
    if form == "blocks":
        return loader, lambda batch: (sum(len(block.indices) for block in batch.blocks), batch.x, batch.y)
    return loader, lambda batch: (batch.edge_index.shape[1], batch.x, batch.y)


def pyg_loader(ds, setting):
    import torch
    from torch_geometric.loader import NeighborLoader

    train = torch.from_numpy(ds.split("train").astype("int64"))
    loader = NeighborLoader(
        ds.to_pyg(),
        setting.fanouts,
        train,
        is_sorted=True,
        batch_size=setting.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=setting.workers,
        persistent_workers=setting.workers > 0,
    )
    return loader, lambda batch: (batch.edge_index.shape[1], batch.x, batch.y)


def dgl_loader(ds, setting):
    import dgl
    import torch

    # DGL's list starts at the layer that is farthest from the seeds.
    sampler = dgl.dataloading.NeighborSampler(
        setting.fanouts[::-1], fused=True, prefetch_node_feats=["feat"], prefetch_labels=["label"]
    )
    train = torch.from_numpy(ds.split("train").astype("int64"))
    loader = dgl.dataloading.DataLoader(
        ds.to_dgl(),
        train,
        sampler,
        batch_size=setting.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=setting.workers,
        persistent_workers=setting.workers > 0,
    )

    def size(batch):
        _, _, blocks = batch
        return sum(block.num_edges() for block in blocks), blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]

    return loader, size


def graphbolt_loader(ds, setting):
    import torch
    from dgl import graphbolt

    train = torch.from_numpy(ds.split("train").astype("int32"))
    labels = torch.from_numpy(ds.labels.astype("int64"))[train.long()]
    features = graphbolt.TorchBasedFeature(torch.from_numpy(ds.features[:]))
    store = graphbolt.BasicFeatureStore({("node", None, "feat"): features})
    items = graphbolt.ItemSet((train, labels), names=("seed_nodes", "labels"))
    pipe = graphbolt.ItemSampler(items, batch_size=setting.batch_size, shuffle=True, drop_last=True)
    # Like DGL's, the list starts at the layer that is farthest from the seeds.
    pipe = pipe.sample_neighbor(ds.to_graphbolt(), setting.fanouts[::-1])
    pipe = pipe.fetch_feature(store, node_feature_keys=["feat"])

    def size(batch):
        edges = sum(len(subgraph.sampled_csc.indices) for subgraph in batch.sampled_subgraphs)
        return edges, batch.node_features["feat"], batch.labels

    return graphbolt.DataLoader(pipe, num_workers=setting.workers), size


class Setting:
    def __init__(self, fanouts, batch_size, batches, threads, workers):
        self.fanouts = [int(fanout) for fanout in fanouts.split(",")]
        self.batch_size, self.batches, self.threads, self.workers = map(int, (batch_size, batches, threads, workers))


def main(name, dataset, *words):
    setting = Setting(*words)
    os.environ["DGLBACKEND"] = "pytorch"
    os.environ["OMP_NUM_THREADS"] = str(setting.threads)
    import gsplit
    import torch

    torch.set_num_threads(setting.threads)
    torch.manual_seed(0)
    ds = gsplit.open(dataset)
    made = {
        "gsplit-pyg": lambda: gsplit_loader(ds, "pyg", setting),
        "gsplit-blocks": lambda: gsplit_loader(ds, "blocks", setting),
        "pyg": lambda: pyg_loader(ds, setting),
        "dgl": lambda: dgl_loader(ds, setting),
        "graphbolt": lambda: graphbolt_loader(ds, setting),
    }
    loader, size = made[name]()
    done = edges = vertices = 0
    started = time.perf_counter()
    while done < WARM_UP + setting.batches:
        for batch in loader:
            count, rows, labels = size(batch)
            if rows.shape[1] != ds.features.shape[1] or len(labels) < setting.batch_size:
                raise ValueError(f"{name}: rows of shape {tuple(rows.shape)} and {len(labels)} labels")
            if done >= WARM_UP:
                edges += count
                vertices += len(rows)
            done += 1
            if done == WARM_UP:
                started = time.perf_counter()
            elif done == WARM_UP + setting.batches:
                seconds = time.perf_counter() - started
                print(json.dumps({"seconds": seconds, "edges": edges, "vertices": vertices}), flush=True)
                # Workers that are still preparing are not waited for.
                os._exit(0)
            del batch, rows, labels


if __name__ == "__main__":
    main(*sys.argv[1:])
