"""A rank of a test of `gsplit.torch`: `torch_ranks.py DATASET TASK OPTIONS`; writes `found-RANK.json`."""

from __future__ import annotations

import copy
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

import gsplit
from gsplit.torch import LinkLoader, SplitLoader, inference, sum_gradients

RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Mean(torch.nn.Module):  # type: ignore[misc]
    """GraphSAGE's mean, in plain torch; with relations, a matrix for each (RGCN)."""

    def __init__(self, dim: int, out: int, relations: int = 1) -> None:
        super().__init__()
        self.own = torch.nn.Linear(dim, out)
        self.of = torch.nn.ModuleList([torch.nn.Linear(dim, out, bias=False) for _ in range(relations)])

    def forward(self, rows: torch.Tensor, layer: Any, kinds: torch.Tensor | None) -> torch.Tensor:
        source, target = layer.edge_index
        out = self.own(rows[: layer.num_dst])
        for kind, weight in enumerate(self.of):
            keep = slice(None) if kinds is None else kinds == kind
            sums = rows.new_zeros(layer.num_dst, rows.shape[1]).index_add(0, target[keep], rows[source[keep]])
            counts = torch.bincount(target[keep], minlength=layer.num_dst).clamp(min=1)
            out = out + weight(sums / counts[:, None])
        return out


def layers_of(name: str, dims: list[int], relations: int = 3) -> torch.nn.ModuleList:
    torch.manual_seed(0)
    pairs = list(zip(dims, dims[1:]))
    if name == "mean":
        return torch.nn.ModuleList([Mean(*pair) for pair in pairs])
    if name == "relations":
        return torch.nn.ModuleList([Mean(*pair, relations=relations) for pair in pairs])
    if name == "dgl":
        from dgl.nn import SAGEConv as DglSAGEConv

        return torch.nn.ModuleList([DglSAGEConv(*pair, "mean") for pair in pairs])
    from torch_geometric.nn import GATConv, SAGEConv

    if name == "gat":
        return torch.nn.ModuleList([GATConv((a, a), b, add_self_loops=False) for a, b in pairs])
    return torch.nn.ModuleList([SAGEConv(a, b) for a, b in pairs])


def total(value: torch.Tensor) -> torch.Tensor:
    if SIZE > 1:
        dist.all_reduce(value)
    return value


def rows_up(ds: gsplit.Dataset, model: str, convs: torch.nn.ModuleList, batch: Any) -> tuple[torch.Tensor, list[int]]:
    """The rows of the last layer; edges, and rows that were loaded and exchanged."""
    h = batch.x
    counts = [0, len(h), 0]
    for conv, layer in zip(convs, batch.layers):
        rows = layer.read(h)
        assert rows.shape[0] == layer.num_src
        counts[2] += len(rows) - len(h)
        counts[0] += layer.indices.shape[0]
        if model in ("mean", "relations"):
            kinds = torch.from_numpy(ds.edge_columns["kind"][layer.edge_ids]) if model == "relations" else None
            h = conv(rows, layer, kinds)
        elif model == "dgl":
            h = conv(layer.to_dgl(), (rows, rows[: layer.num_dst]))
        else:
            h = conv((rows, rows[: layer.num_dst]), layer.edge_index)
        h = h.relu() if conv is not convs[-1] else h
    return h, counts


def stored(folder: str) -> dict[str, torch.Tensor]:
    """The parameters of a checkpoint of `gsplit train`."""
    content = Path(folder, "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    header.pop("__metadata__", None)

    def tensor(of: dict[str, Any]) -> torch.Tensor:
        first, last = of["data_offsets"]
        return torch.frombuffer(bytearray(content[end + first : end + last]), dtype=torch.float32).view(of["shape"])

    return {name: tensor(of) for name, of in header.items()}


def go_on(ds: gsplit.Dataset, run: str) -> dict[str, Any]:
    """Trains epoch 2 from the parameters after epoch 1 of `gsplit train --model sage --optimizer sgd`."""
    assert ds.num_classes is not None
    convs = layers_of("mean", [ds.features.shape[1], 8, 8, ds.num_classes])
    before, after = (stored(f"{run}/epoch-0000{epoch}") for epoch in (1, 2))

    def parameters(of: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        names = [f"layers.{k}.{name}" for k in range(3) for name in ("weight_self", "bias", "weight_neigh")]
        return [of[name].T for name in names]

    with torch.no_grad():
        for parameter, value in zip(convs.parameters(), parameters(before)):
            parameter.copy_(value)
    optimizer = torch.optim.SGD(convs.parameters(), 0.05)
    loader = SplitLoader(ds, [4, 3, 3], 64, partition=None if SIZE == 1 else f"even-{SIZE}")
    loader.set_epoch(2)
    loss, seeds = torch.zeros(1), 0
    for batch in loader:
        h, _ = rows_up(ds, "mean", convs, batch)
        summed = F.cross_entropy(h, batch.y, reduction="sum")
        (summed / batch.num_seeds).backward()
        sum_gradients(convs)
        optimizer.step()
        optimizer.zero_grad()
        loss, seeds = loss + summed.detach(), seeds + batch.num_seeds
    pairs = zip(convs.parameters(), parameters(after))
    return {"loss": total(loss).item() / seeds, "off": max((a - b).abs().max().item() for a, b in pairs)}


def train(
    ds: gsplit.Dataset, model: str, epochs: int = 2, leave: int | None = None, dies: int | None = None, **options: Any
) -> dict[str, Any]:
    if options.pop("other_seed", None) == RANK:
        options["seed"] = 7
    is_link = model == "links"
    loader: Any
    if is_link:
        model, loader = "mean", LinkLoader(ds, [4, 3, 3], 300, threads=1, negatives=2, **options)
    else:
        loader = SplitLoader(ds, [4, 3, 3], 64, threads=1, **options)
    convs = layers_of(model, [ds.features[:1].shape[1], 8, 8, 8 if is_link else ds.num_classes or 0])
    optimizer = torch.optim.Adam(convs.parameters(), 0.01)
    losses: list[float] = []
    gradients: list[float] = []
    counts: list[list[int]] = []
    without_seeds = 0
    for _ in range(epochs):
        of_epoch = torch.zeros(3, dtype=torch.int64)
        for batch in loader:
            if batch.step == leave:
                break
            if dies == RANK:
                os._exit(9)
            without_seeds += int(len(batch.seeds) == 0)
            h, found = rows_up(ds, model, convs, batch)
            of_epoch += torch.tensor(found)
            if is_link:
                source, target = batch.read(h)[batch.pairs]
                scores = (source * target).sum(1)
                loss = F.binary_cross_entropy_with_logits(scores, batch.labels, reduction="sum") / batch.num_pairs
            else:
                loss = F.cross_entropy(h, batch.y, reduction="sum") / batch.num_seeds
            loss.backward()
            sum_gradients(convs)
            if not losses:
                gradients = torch.cat([p.grad.reshape(-1) for p in convs.parameters()]).tolist()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(total(loss.detach().clone()).item())
        counts.append(total(of_epoch).tolist())
    said = {"losses": losses, "gradients": gradients, "counts": counts}
    return {**said, "without_seeds": without_seeds, "mini_batches": len(loader)}


def edges_of(ds: gsplit.Dataset) -> list[tuple[int, int]]:
    """Source and target of each edge."""
    indptr = ds.indptr.astype(np.int64)
    return list(zip(ds.indices.tolist(), np.arange(ds.num_vertices).repeat(indptr[1:] - indptr[:-1]).tolist()))


def gathered(values: torch.Tensor) -> Any:
    """The lists of all ranks, one after another."""
    found: list[Any] = [None] * SIZE
    if SIZE > 1:
        dist.all_gather_object(found, values.tolist())
    else:
        found = [values.tolist()]
    return [value for values in found for value in values]


def pairs(ds: gsplit.Dataset, **options: Any) -> dict[str, Any]:
    """Faults of an epoch's pairs and of the mini-batches sampled for them; the learned edges, by position."""
    loader = LinkLoader(ds, ["all", "all"], 300, negatives=3, threads=1, features=False, **options)
    held_out = {(u, v) for split in ("valid", "test") for u, v in loader.held_out(split).T.tolist()}
    edges = np.array(edges_of(ds)).T
    is_target = np.asarray(ds.columns["kind"]) == 1 if "kind" in ds.columns else np.ones(ds.num_vertices, bool)
    wrong: dict[str, int] = dict.fromkeys(["ends", "negatives", "labels", "count", "layers", "sampled"], 0)
    learnt: list[int] = []
    for batch in loader:
        source, target = batch.read(batch.seeds)[batch.pairs].reshape(2, -1, 4)
        ends = torch.stack([source[:, 0], target[:, 0]]).numpy()
        wrong["ends"] += int((ends != edges[:, batch.edge_ids]).sum())
        wrong["negatives"] += int((source != source[:, :1]).sum()) + int((~is_target[target.numpy()]).sum())
        wrong["labels"] += int((batch.labels.reshape(-1, 4) != torch.tensor([1.0, 0, 0, 0])).sum())
        of_all = gathered(batch.edge_ids)
        wrong["count"] += int(batch.num_pairs != 4 * len(of_all))
        learnt += of_all
        hidden = {(int(u), int(v)) for u, v in edges[:, of_all].T} | held_out
        for layer in batch.layers:
            sampled = torch.stack([layer.src[layer.edge_index[0]], layer.dst[layer.edge_index[1]]]).numpy()
            wrong["layers"] += int((sampled != edges[:, layer.edge_ids]).sum())
            wrong["sampled"] += sum((u, v) in hidden or (v, u) in hidden for u, v in sampled.T.tolist())
    return {"wrong": wrong, "learnt": sorted(learnt)}


def rows(ds: gsplit.Dataset) -> dict[str, Any]:
    """The rows that the layers read, and the transpose."""
    wrong = 0
    for batch in SplitLoader(ds, [4, 3], 64, threads=1):
        below = batch.n_id
        for layer in batch.layers:
            sources, targets = layer.edge_index
            ids = layer.edge_ids
            wrong += int((layer.src[sources].numpy() != ds.indices[ids]).sum())
            wrong += int(
                (np.searchsorted(ds.indptr, ids.numpy(), side="right") - 1 != layer.dst[targets].numpy()).sum()
            )
            numbers, halves = layer.read(below, below[:, None].to(torch.bfloat16).expand(-1, 3))
            wrong += int((numbers != layer.src).sum()) + int((halves[:, 2] != layer.src.to(torch.bfloat16)).sum())
            x = torch.randn(len(below), 5, dtype=torch.float64, requires_grad=True)
            read = layer.read(x)
            y = torch.randn_like(read)
            read.backward(y)
            # ⟨read(x), y⟩ = ⟨x, its transpose of y⟩ over all ranks.
            assert x.grad is not None
            both = total(torch.stack([(read.detach() * y).sum(), (x.detach() * x.grad).sum()]))
            wrong += int(abs(both[0] - both[1]) > 1e-9 * abs(both[0]))
            below = layer.dst
        assert torch.equal(below, batch.seeds)
    return {"wrong": wrong}


def infer(ds: gsplit.Dataset, without: float = 0.0) -> dict[str, Any]:
    """Rows by `inference`, and over the whole graph at once; the graph is `without` that share of its edges."""
    assert ds.num_classes is not None
    convs = layers_of("mean", [ds.features.shape[1], 8, ds.num_classes])
    loader = LinkLoader(ds, [1], valid_edges=0, test_edges=without)
    out = {(u, v) for u, v in loader.held_out("test").T.tolist()}
    out |= {(v, u) for u, v in out}
    kept = [edge for edge in edges_of(ds) if edge not in out]

    def layer_of(k: int, rows: torch.Tensor, layer: Any) -> torch.Tensor:
        h = convs[k](rows, layer, None)
        return h.relu() if k == 0 else h

    class Whole:
        num_dst = ds.num_vertices
        edge_index = torch.tensor(kept).T

    vertices, found = inference(layer_of, loader if without else ds, 2, batch_size=100)
    with torch.no_grad():
        h = torch.from_numpy(ds.features[:])
        for k in (0, 1):
            h = layer_of(k, h, Whole)
    off = (found - h[vertices]).abs().max().item() if len(vertices) else 0.0
    return {"vertices": vertices.tolist(), "off": off}


class ByRelation(torch.nn.Module):  # type: ignore[misc]
    """The layer of R-SAGE in plain torch: a matrix for each type, and one for the mean of each relation."""

    def __init__(self, ds: gsplit.Dataset, dims: dict[str, int], out: int) -> None:
        super().__init__()
        self.own = torch.nn.ModuleDict({name: torch.nn.Linear(dim, out) for name, dim in dims.items()})
        of = {"/".join(each): torch.nn.Linear(dims[each[0]], out, bias=False) for each in ds.relations}
        self.of = torch.nn.ModuleDict(of)

    def forward(self, ends: dict[Any, Any], edges: dict[Any, torch.Tensor]) -> dict[str, torch.Tensor]:
        out: dict[str, torch.Tensor] = {}
        for relation, (rows, own) in ends.items():
            sources, targets = edges[relation]
            sums = rows.new_zeros(len(own), rows.shape[1]).index_add(0, targets, rows[sources])
            counts = torch.bincount(targets, minlength=len(own)).clamp(min=1)
            if relation[2] not in out:
                out[relation[2]] = self.own[relation[2]](own)
            out[relation[2]] = out[relation[2]] + self.of["/".join(relation)](sums / counts[:, None])
        return out


def typed_model(ds: gsplit.Dataset, pyg: bool = False) -> torch.nn.Module:
    """Two layers, and a table for each type without features."""
    torch.manual_seed(0)
    given = {name: of.shape[1] for name, of in ds.features_by_type.items()}
    model = torch.nn.Module()
    model.tables = torch.nn.ModuleDict(
        {name: torch.nn.Embedding(of.count, 8) for name, of in ds.types.items() if name not in given}
    )
    hidden = dict.fromkeys(ds.types, 8)
    if pyg:
        from torch_geometric.nn import HeteroConv, SAGEConv

        def layer(dims: dict[str, int], out: int) -> Any:
            return HeteroConv({each: SAGEConv((dims[each[0]], dims[each[2]]), out) for each in ds.relations})
    else:

        def layer(dims: dict[str, int], out: int) -> Any:
            return ByRelation(ds, dims, out)

    model.convs = torch.nn.ModuleList([layer({**hidden, **given}, 8), layer(hidden, ds.num_classes or 0)])
    return model


def typed_rows(model: Any, batch: Any) -> tuple[dict[str, torch.Tensor], list[int]]:
    """The rows of the last layer; edges, and rows that were loaded and exchanged."""
    h = {name: batch.x[name] if name in batch.x else model.tables[name](ids) for name, ids in batch.n_id.items()}
    counts = [0, sum(map(len, batch.x.values())), 0]
    for conv, layer in zip(model.convs, batch.layers):
        rows = layer.read(h)
        assert {name: len(of) for name, of in rows.items()} == layer.num_src
        counts[2] += sum(len(of) for of in rows.values()) - sum(len(of) for of in h.values())
        counts[0] += sum(edges.shape[1] for edges in layer.edge_index.values())
        h = conv(layer.ends(rows), layer.edge_index)
        h = {name: of.relu() for name, of in h.items()} if conv is model.convs[0] else h
    return h, counts


def typed(ds: gsplit.Dataset, **options: Any) -> dict[str, Any]:
    """How far models are from the whole graph: in plain torch, and of PyG's layers where PyG is installed."""
    found = [typed_epochs(ds, pyg, **options) for pyg in [False, True][: 1 + bool(find_spec("torch_geometric"))]]
    return {**found[0], "off": max(each["off"] for each in found)}


def typed_epochs(ds: gsplit.Dataset, pyg: bool, **options: Any) -> dict[str, Any]:
    """The largest relative error of losses and gradients over two epochs, from the whole graph in float64."""
    model: Any = typed_model(ds, pyg)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    loader = SplitLoader(ds, ["all", "all"], 64, threads=1, **options)
    whole = {relation: torch.from_numpy(ds.relation_edges(relation)) for relation in ds.relations}
    labels = torch.from_numpy(ds.labels[ds.types["paper"].vertices].astype(np.int64))
    off, exchanged, seen = 0.0, 0, 0
    for batch in [*loader, *loader]:
        h, counts = typed_rows(model, batch)
        assert torch.equal(batch.y["paper"], labels[batch.seeds["paper"]])
        loss = F.cross_entropy(h["paper"], batch.y["paper"], reduction="sum") / batch.num_seeds
        loss.backward()
        sum_gradients(model)
        exact: Any = copy.deepcopy(model).double()
        exact.zero_grad()
        features = {name: torch.from_numpy(of[:]).double() for name, of in ds.features_by_type.items()}
        h = {name: features[name] if name in features else exact.tables[name].weight for name in ds.types}
        for conv in exact.convs:
            h = conv({each: (h[each[0]], h[each[2]]) for each in ds.relations}, whole)
            h = {name: of.relu() for name, of in h.items()} if conv is exact.convs[0] else h
        seeds = gathered(batch.seeds["paper"])
        expected = F.cross_entropy(h["paper"][seeds], labels[seeds])
        expected.backward()
        off = max(off, abs(total(loss.detach().double()).item() / expected.item() - 1))
        for own, other in zip(model.parameters(), exact.parameters()):
            if other.grad is not None:
                off = max(off, (own.grad - other.grad).abs().max().item() / other.grad.abs().max().item())
        exchanged, seen = exchanged + counts[2], seen + len(seeds)
        optimizer.step()
        optimizer.zero_grad()
    return {"off": off, "exchanged": exchanged, "seen": seen}


def typed_go_on(ds: gsplit.Dataset, run: str, fanouts: list[Any]) -> dict[str, Any]:
    """Trains epoch 2 from the parameters after epoch 1 of `gsplit train --model rsage --optimizer sgd`."""
    model: Any = typed_model(ds)
    # Encoded features have the width of the tables.
    model.encoders = torch.nn.ModuleDict(
        {name: torch.nn.Linear(of.shape[1], 8) for name, of in ds.features_by_type.items()}
    )
    model.convs[0] = ByRelation(ds, dict.fromkeys(ds.types, 8), 8)
    before, after = (stored(f"{run}/epoch-0000{epoch}") for epoch in (1, 2))
    theirs = {f"tables.{name}.weight": f"embeddings.{name}" for name in model.tables}
    for name in model.encoders:
        theirs.update({f"encoders.{name}.{of}": f"encoders.{name}.{of}" for of in ("weight", "bias")})
    for k in (0, 1):
        for name in ds.types:
            theirs[f"convs.{k}.own.{name}.weight"] = f"layers.{k}.{name}.weight_self"
            theirs[f"convs.{k}.own.{name}.bias"] = f"layers.{k}.{name}.bias"
        for relation in map("/".join, ds.relations):
            theirs[f"convs.{k}.of.{relation}.weight"] = f"layers.{k}.{relation}.weight"
    own = dict(model.named_parameters())

    def parameters(of: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found = {name: of[theirs[name]] for name in own}
        return {
            name: value if name.startswith("tables") or value.dim() < 2 else value.T for name, value in found.items()
        }

    with torch.no_grad():
        for name, value in parameters(before).items():
            own[name].copy_(value)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    by_relation = {tuple(key) if isinstance(key, list) else key: layers for key, layers in fanouts}
    loader = SplitLoader(ds, by_relation, 64, threads=1)
    loader.set_epoch(2)
    loss, seeds, counts = torch.zeros(1), 0, np.zeros(3, np.int64)
    for batch in loader:
        loaded = sum(map(len, batch.x.values()))
        batch.x = {name: model.encoders[name](of) for name, of in batch.x.items()}
        h, found = typed_rows(model, batch)
        assert found[1] == loaded
        summed = F.cross_entropy(h["paper"], batch.y["paper"], reduction="sum")
        (summed / batch.num_seeds).backward()
        sum_gradients(model)
        optimizer.step()
        optimizer.zero_grad()
        loss, seeds, counts = loss + summed.detach(), seeds + batch.num_seeds, counts + found
    off = max((own[name] - value).abs().max().item() for name, value in parameters(after).items())
    return {"loss": total(loss).item() / seeds, "off": off, "counts": total(torch.from_numpy(counts)).tolist()}


def gradients(ds: gsplit.Dataset) -> dict[str, Any]:
    """The sums of gradients that all ranks have, only rank 0 has, and none has; how often the host read them."""
    looks, look = [0], torch.Tensor.__bool__

    def counted(tensor: torch.Tensor) -> bool:
        looks[0] += 1
        return bool(look(tensor))

    torch.Tensor.__bool__ = counted
    parameters = [torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(3)]
    for _ in range(2):
        parameters[0].grad = torch.full((2, 3), 1.0 + RANK)
        sum_gradients(parameters[:1])
    in_all = looks[0]
    parameters[1].grad = torch.ones(2, 3) if RANK == 0 else None
    sum_gradients(parameters)
    sums = [None if p.grad is None else p.grad.tolist() for p in parameters]
    torch.optim.SGD(parameters).zero_grad(set_to_none=False)
    return {"looks": in_all, "sums": sums, "left": sum(p.grad.count_nonzero().item() for p in parameters[:2])}


def main() -> None:
    dataset, task, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    torch.set_num_threads(1)
    if SIZE > 1:
        dist.init_process_group("gloo")
    ds = gsplit.open(dataset)
    tasks: dict[str, Any] = {"rows": rows, "infer": infer, "typed": typed, "go_on": go_on, "pairs": pairs}
    tasks.update(gradients=gradients, typed_go_on=typed_go_on)
    found = tasks[task](ds, **options) if task in tasks else train(ds, task, **options)
    Path(f"found-{RANK}.json").write_text(json.dumps(found))
    if SIZE > 1:
        dist.barrier()
    # Some releases of torch end a process of several groups with a signal.
    os._exit(0)


if __name__ == "__main__":
    main()
