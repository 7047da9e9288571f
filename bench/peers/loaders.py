#!/usr/bin/env python3
"""Mini-batches in PyTorch, loaded or trained on: loaders.py CONTENDER DATASET FANOUTS BATCH_SIZE
BATCHES THREADS WORKERS.

Three layers of GraphSAGE-mean, cross entropy, Adam, f32. CONTENDER is a loader and its layers:

    pyg, gsplit-pyg    the loaders of PyG and gsplit; PyG's SAGEConv on one graph, trim_to_layer
    split              gsplit.torch.SplitLoader; PyG's SAGEConv on a bipartite graph for each layer
    dgl, split-dgl     the loaders of DGL and SplitLoader; DGL's SAGEConv on blocks
    held-NAME          only the model: memory holds the mini-batches of gsplit-pyg, split, split-dgl
    load-NAME          only the loader: gsplit-pyg, gsplit-blocks, pyg, dgl, graphbolt

All sample the training split in random order, with feature rows and labels, from the graph in the
form that is documented to be fastest: PyG sorted by target; DGL with int64 ids, since with int32
ids the fused sampler of DGL 2.1.0 returns edges that are not there; GraphBolt with int32 indices.

Under torchrun the ranks share THREADS. Prints one JSON line: the seconds of BATCHES mini-batches
after some that are not timed, the CPU seconds of all ranks and workers in them, and the seconds of
each section on rank 0; edges, loaded and exchanged rows of all ranks in all mini-batches; the last
loss.
"""

import itertools
import json
import os
import sys
import time
from pathlib import Path

WARM_UP, HIDDEN, LEARNING_RATE = 5, 256, 1e-3


class Setting:
    def __init__(self, fanouts, batch_size, batches, threads, workers):
        self.fanouts = [int(fanout) for fanout in fanouts.split(",")]
        self.batch_size, self.batches, self.threads, self.workers = map(int, (batch_size, batches, threads, workers))


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
    sampler = dgl.dataloading.NeighborSampler(setting.fanouts[::-1], fused=True, prefetch_node_feats=["feat"], prefetch_labels=["label"])
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


def split_loader(ds, setting):
    from gsplit.torch import SplitLoader

    return SplitLoader(ds, setting.fanouts, setting.batch_size, drop_last=True, threads=setting.threads)


def pyg_model(sizes):
    import torch
    from torch_geometric.nn import SAGEConv

    return torch.nn.ModuleList([SAGEConv(*pair) for pair in sizes])


def dgl_model(sizes):
    import dgl
    import torch

    return torch.nn.ModuleList([dgl.nn.SAGEConv(*pair, "mean") for pair in sizes])


def sampled(batch, layers):
    """Vertices and edges of each layer; PyG's loader, which sorts by target, may not count them."""
    if hasattr(batch, "num_sampled_nodes"):
        return batch.num_sampled_nodes, batch.num_sampled_edges
    source, target = batch.edge_index
    nodes, edges = [batch.batch_size], [0]
    for _ in range(layers):
        # Targets of a layer are the vertices that were reached before it.
        edges.append(int((target < nodes[-1]).sum()))
        nodes.append(max(nodes[-1], int(source[: edges[-1]].max()) + 1))
    return [nodes[0], *(b - a for a, b in itertools.pairwise(nodes))], [b - a for a, b in itertools.pairwise(edges)]


def on_a_graph(convs, batch):
    """Logits, labels, seeds of all ranks, and edges, loaded and exchanged rows of this one."""
    from torch_geometric.utils import trim_to_layer

    x, edges, count = batch.x, batch.edge_index, batch.batch_size
    nodes_by_layer, edges_by_layer = sampled(batch, len(convs))
    for k, conv in enumerate(convs):
        x, edges, _ = trim_to_layer(k, nodes_by_layer, edges_by_layer, x, edges)
        x = conv(x, edges)
        x = x.relu() if k + 1 < len(convs) else x
    return x[:count], batch.y[:count], count, (batch.edge_index.shape[1], len(batch.x), 0)


def by_layers(apply):
    """Does the same for a model whose layers read `batch.layers`."""

    def forward(convs, batch):
        h, exchanged = batch.x, 0
        for k, (conv, layer) in enumerate(zip(convs, batch.layers, strict=True)):
            rows = layer.read(h)
            exchanged += len(rows) - len(h)
            h = apply(conv, layer, rows)
            h = h.relu() if k + 1 < len(convs) else h
        edges = sum(len(layer.indices) for layer in batch.layers)
        return h, batch.y, batch.num_seeds, (edges, len(batch.x), exchanged)

    return forward


def on_dgl_blocks(convs, batch):
    _, seeds, blocks = batch
    x = blocks[0].srcdata["feat"]
    h = x
    for k, (conv, block) in enumerate(zip(convs, blocks, strict=True)):
        h = conv(block, h)
        h = h.relu() if k + 1 < len(convs) else h
    return h, blocks[-1].dstdata["label"], len(seeds), (sum(block.num_edges() for block in blocks), len(x), 0)


on_layers = by_layers(lambda conv, layer, rows: conv((rows, rows[: layer.num_dst]), layer.edge_index))
on_layers_of_dgl = by_layers(lambda conv, layer, rows: conv(layer.to_dgl(), (rows, rows[: layer.num_dst])))


def contender(name, ds, setting):
    """Its loader, its model and how that is applied."""
    made = {
        "pyg": (lambda: pyg_loader(ds, setting)[0], pyg_model, on_a_graph),
        "gsplit-pyg": (lambda: gsplit_loader(ds, "pyg", setting)[0], pyg_model, on_a_graph),
        "split": (lambda: split_loader(ds, setting), pyg_model, on_layers),
        "dgl": (lambda: dgl_loader(ds, setting)[0], dgl_model, on_dgl_blocks),
        "split-dgl": (lambda: split_loader(ds, setting), dgl_model, on_layers_of_dgl),
    }
    for held, of in (("held-pyg", "gsplit-pyg"), ("held-split", "split"), ("held-dgl", "split-dgl")):
        make, *model = made[of]
        made[held] = (lambda make=make: itertools.cycle(list(itertools.islice(make(), WARM_UP))), *model)
    make, *model = made[name]
    return make(), *model


def cpu_seconds():
    """CPU seconds of this process and of its workers."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    stats = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in children]
    ticks = sum(int(field) for stat in stats for field in stat[11:13])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def drain(name, ds, setting):
    """Only loads; the last line has no loss."""
    loader, size = {
        "gsplit-pyg": lambda: gsplit_loader(ds, "pyg", setting),
        "gsplit-blocks": lambda: gsplit_loader(ds, "blocks", setting),
        **{"pyg": lambda: pyg_loader(ds, setting), "dgl": lambda: dgl_loader(ds, setting)},
        "graphbolt": lambda: graphbolt_loader(ds, setting),
    }[name]()
    done = edges = vertices = 0
    started = time.perf_counter()
    for batch in (batch for _ in itertools.count() for batch in loader):
        count, rows, labels = size(batch)
        if rows.shape[1] != ds.features.shape[1] or len(labels) < setting.batch_size:
            raise ValueError(f"{name}: rows of shape {tuple(rows.shape)} and {len(labels)} labels")
        done += 1
        if done > 2 * WARM_UP:
            edges += count
            vertices += len(rows)
        if done == 2 * WARM_UP:
            started = time.perf_counter()
        elif done == 2 * WARM_UP + setting.batches:
            print(json.dumps({"seconds": time.perf_counter() - started, "edges": edges, "vertices": vertices}), flush=True)
            os._exit(0)
        del batch, rows, labels


def main(name, dataset, *words):
    setting = Setting(*words)
    os.environ["DGLBACKEND"] = "pytorch"
    size = int(os.environ.get("WORLD_SIZE", "1"))
    setting.threads = max(1, setting.threads // size)
    os.environ["OMP_NUM_THREADS"] = str(setting.threads)
    import gsplit
    import torch
    import torch.distributed as dist
    from torch.nn import functional

    torch.set_num_threads(setting.threads)
    if size > 1:
        dist.init_process_group("gloo")
    ds = gsplit.open(dataset)
    torch.manual_seed(0)
    if name.startswith("load-"):
        drain(name.removeprefix("load-"), ds, setting)
    loader, model, forward = contender(name, ds, setting)
    torch.manual_seed(0)
    dims = [ds.features.shape[1], *[HIDDEN] * (len(setting.fanouts) - 1), ds.num_classes]
    convs = model(list(itertools.pairwise(dims)))
    optimizer = torch.optim.Adam(convs.parameters(), LEARNING_RATE)
    sections = dict.fromkeys(("load", "forward", "backward", "sum gradients", "step"), 0.0)
    counts = torch.zeros(3, dtype=torch.int64)
    done, batches = 0, iter(())
    while done < WARM_UP + setting.batches:
        if done == WARM_UP:
            if size > 1:
                dist.barrier()
            sections = dict.fromkeys(sections, 0.0)
            started, cpu_before = time.perf_counter(), cpu_seconds()
        times = [time.perf_counter()]
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        times.append(time.perf_counter())
        logits, labels, seeds, sizes = forward(convs, batch)
        loss = functional.cross_entropy(logits, labels, reduction="sum") / seeds
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        if size > 1:
            from gsplit.torch import sum_gradients

            sum_gradients(convs)
        times.append(time.perf_counter())
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter())
        counts += torch.tensor(sizes)
        for section, (start, end) in zip(sections, itertools.pairwise(times), strict=True):
            sections[section] += end - start
        done += 1
    cpu, last = torch.tensor(cpu_seconds() - cpu_before), loss.detach().clone()
    if size > 1:
        dist.barrier()
    seconds = time.perf_counter() - started
    if size > 1:
        for of_a_rank in (counts, cpu, last):
            dist.all_reduce(of_a_rank)
    if int(os.environ.get("RANK", "0")) == 0:
        edges, loaded, exchanged = counts.tolist()
        said = {"seconds": seconds, "cpu_seconds": cpu.item(), "sections": sections, "loss": last.item()}
        print(json.dumps({**said, "edges": edges, "rows_loaded": loaded, "rows_exchanged": exchanged}), flush=True)
    if size > 1:
        dist.barrier()
    # Workers that are still preparing are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
