"""Mini-batches of `NeighborLoader`, for use without PyG's `Data`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

_Batch = TypeVar("_Batch", bound="Tensors")


class Tensors:
    """A mini-batch whose tensors move together, by the names that PyG's `Data` has."""

    def to(self: _Batch, device: Any, non_blocking: bool = False) -> _Batch:
        """The mini-batch on `device`."""
        moved: _Batch = _each(self, lambda tensor: tensor.to(device, non_blocking=non_blocking))
        return moved

    def pin_memory(self: _Batch) -> _Batch:
        """A copy in pinned memory, from which a GPU copies by itself."""
        pinned: _Batch = _each(self, lambda tensor: tensor.pin_memory())
        return pinned

    def record_stream(self, stream: Any) -> None:
        """Keeps the memory until what `stream` has been given by now is done."""
        _each(self, lambda tensor: tensor.record_stream(stream))


def _each(value: Any, do: Callable[[Any], Any]) -> Any:
    if isinstance(value, np.ndarray):
        raise TypeError("a mini-batch of NumPy arrays stays in host memory: leave out numpy=True")
    if isinstance(value, dict):
        return {key: _each(item, do) for key, item in value.items()}
    if isinstance(value, list):
        return [_each(item, do) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _each(getattr(value, field.name), do) for field in fields(value)})
    return do(value) if hasattr(value, "record_stream") else value


@dataclass
class Subgraph(Tensors):
    """A mini-batch as one graph, with the attributes of PyG's `Data`; NumPy arrays, or torch tensors without PyG."""

    n_id: Any
    """int64 `[n]`: the vertex of each row, the seeds first."""
    edge_index: Any
    """int64 `[2, m]`: sources, then targets, as rows; layer after layer from the seeds down."""
    input_id: Any
    """int64 `[batch_size]`: the position of each seed in the loader's `seeds`."""
    batch_size: int
    """Number of seeds."""
    num_sampled_nodes: list[int]
    """Seeds, then the vertices that each layer reached first."""
    num_sampled_edges: list[int]
    """Edges of each layer."""
    x: Any = None
    """Features `[n, dim]`."""
    y: Any = None
    """Labels: int64 `[n]`, -1 = unlabelled; float32 `[n, num_classes]` where there can be several;
    float32 `[n]`, NaN = unlabelled, of numbers."""
    e_id: Any = None
    """int64 `[m]`: the position of each edge in `ds.indices`."""


@dataclass
class Block:
    """The edges of one layer, CSC: edges of target `i` are `indptr[i]..indptr[i + 1]`."""

    indptr: Any
    """int32 `[num_dst + 1]`."""
    indices: Any
    """int32: the source of each edge, as a row of the layer's input."""
    num_src: int
    """Vertices that the layer reads: the first of `n_id`."""
    num_dst: int
    """Vertices that it computes: the first of those."""
    e_id: Any = None
    """int64: the position of each edge in `ds.indices`."""


@dataclass
class MiniBatch(Tensors):
    """A mini-batch as blocks."""

    blocks: list[Block]
    """One for each layer; the first reads the features, the last computes the seeds."""
    n_id: Any
    """int64: all vertices, the seeds first. Block `b` reads the first `b.num_src`, computes the first `b.num_dst`."""
    input_id: Any
    """int64: the position of each seed in the loader's `seeds`."""
    batch_size: int
    """Number of seeds."""
    x: Any = None
    """Features of `n_id`."""
    y: Any = None
    """Labels of the seeds: int64, -1 = unlabelled; float32 `[batch_size, num_classes]` where there can be several;
    float32 `[batch_size]`, NaN = unlabelled, of numbers."""

    @property
    def seeds(self) -> Any:
        """The seeds, a view of `n_id`."""
        return self.n_id[: self.batch_size]

    def to_dgl(self) -> list[Any]:
        """The blocks as DGL's, int32, sharing memory; where there are features the first has `srcdata["feat"]`."""
        try:
            dgl: Any = importlib.import_module("dgl")
            torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise ImportError(f"MiniBatch.to_dgl needs dgl: run `pip install dgl` ({error})") from error
        none = torch.empty(0, dtype=torch.int32, device=torch.as_tensor(self.n_id).device)
        made = []
        for block in self.blocks:
            edges = ("csc", (torch.as_tensor(block.indptr), torch.as_tensor(block.indices), none))
            made.append(dgl.create_block(edges, num_src_nodes=block.num_src, num_dst_nodes=block.num_dst))
        if self.x is not None and made:
            made[0].srcdata["feat"] = torch.as_tensor(self.x)
        return made
