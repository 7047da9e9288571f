"""Mini-batches for training in Python, drawn by gsplit's own sampler."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union

import numpy as np
import numpy.typing as npt

from . import _epochs
from ._batches import Block, MiniBatch, Subgraph
from ._dataset import Dataset, open_dataset
from ._types import Relation, fanouts_text

if TYPE_CHECKING:
    from . import _native

Fanouts = Union[str, Sequence[Union[int, str]]]
FanoutsByRelation = Mapping[Union[str, Relation, None], Fanouts]
_Path = Union[str, "os.PathLike[str]"]

_AHEAD = "the loader makes mini-batches ahead itself, in threads of Rust: see prefetch and threads"
_TEMPORAL = "vertices and edges have no times here"
# Further keywords of PyG's and PyTorch's loaders: values that change nothing here, and why others are refused.
_ELSEWHERE: dict[str, tuple[tuple[Any, ...], str]] = {
    "directed": ((True,), "edges are the drawn ones, from source to target"),
    "disjoint": ((False,), "seeds share the vertices that they reach"),
    "filter_per_worker": ((True, False), _AHEAD),
    "input_time": ((), _TEMPORAL),
    "is_sorted": ((True, False), "a dataset is always sorted"),
    "neighbor_sampler": ((), "gsplit's own sampler draws"),
    "num_workers": ((0,), _AHEAD),
    "persistent_workers": ((False,), _AHEAD),
    "pin_memory": ((False,), "device='cuda' copies by way of pinned memory"),
    "prefetch_factor": ((), _AHEAD),
    "replace": ((False,), "draws are without replacement"),
    "subgraph_type": (("directional",), "edges are the drawn ones, from source to target"),
    "temporal_strategy": (("uniform",), _TEMPORAL),
    "time_attr": ((), _TEMPORAL),
    "transform": ((), "call it on each mini-batch"),
    "transform_sampler_output": ((), "the sampler's output is the mini-batch"),
    "weight_attr": ((), "draw_by names the edge column to draw by"),
}


class NeighborLoader(_epochs.Epochs):
    """The mini-batches of a dataset: neighbours sampled, feature rows and labels gathered, in Rust, ahead of their use.

    ```python
    loader = gsplit.NeighborLoader(ds, [15, 10, 5], batch_size=1024)
    for epoch in range(10):
        for batch in loader:
            ...
    ```

    `form="pyg"` gives what `torch_geometric.loader.NeighborLoader` gives: a `torch_geometric.data.Data` with `x`, `y`,
    `edge_index`, `n_id`, `input_id`, `batch_size`, `num_sampled_nodes` and `num_sampled_edges` (and `e_id` with
    `edge_ids`). The seeds come first, a vertex is expanded once, and `trim_to_layer` works. Without PyG it is a
    `Subgraph` with the same attributes.

    `form="blocks"` gives a `MiniBatch`, with a bipartite graph for each layer as GraphBolt and DGL have: every layer
    expands all vertices that the layers above have reached. These are the mini-batches that `gsplit train` trains on.

    Tensors are torch's where torch is installed, else, or with `numpy=True`, NumPy arrays. They are the memory that
    Rust filled; nothing is copied in between.

    Draws are a function of `seed`, the epoch, the number of the mini-batch, the layer and the vertex. They depend
    neither on `threads` nor on `prefetch`, and are those of `gsplit train --seed` with the same seed, fanouts and batch
    size. The first pass over a loader is epoch 1, as in training, every further one the next; `set_epoch` chooses.

    With `rank` and `world_size`, as for DistributedDataParallel, every rank has equally many mini-batches of
    `batch_size` seeds: consecutive portions of the mini-batches that one process would draw with `batch_size` times
    `world_size`. The last one may be smaller: its seeds are dealt evenly, and where it has fewer than there are ranks
    some are given twice, so that no rank has none.

    A loader pickles, so a spawned process can be given one. It refuses to draw in a worker of a PyTorch DataLoader.
    """

    def __init__(
        self,
        ds: Dataset | _Path,
        fanouts: Fanouts | None = None,
        batch_size: int = 1024,
        *,
        num_neighbors: Fanouts | None = None,
        seeds: str | npt.ArrayLike | None = None,
        input_nodes: str | npt.ArrayLike | None = None,
        form: Literal["pyg", "blocks"] = "pyg",
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        features: bool = True,
        load_features: bool | Literal["disk"] = False,
        dtype: Literal["stored", "float32"] = "stored",
        labels: bool = True,
        edge_ids: bool = False,
        draw_by: str | None = None,
        threads: int | None = None,
        prefetch: int = 2,
        numpy: bool = False,
        device: Any = None,
        rank: int | None = None,
        world_size: int | None = None,
        **others: NoReturn,
    ) -> None:
        """Prepares to draw from `ds`, a dataset or its path. Reads all edges once, to check them.

        `fanouts` are in-neighbours for a vertex at each layer, from the seeds downwards; -1 or `"all"` takes every one.
        `seeds` is the name of a split (`"train"` unless given), `"all"`, distinct vertices in any order, or a boolean
        mask of all vertices; arrays and tensors will do. `num_neighbors` and `input_nodes` are PyG's names of these.
        `draw_by` names an edge column: in-neighbours are then drawn with probabilities that grow with it. Draws are
        without replacement.

        `dtype="stored"` leaves f32, f16 and bf16 features as they are (bf16 in NumPy as the bits of a uint16); i8 rows
        become float32, because each has a scale. `load_features` copies all rows into memory first, on huge pages where
        there are some; `"disk"` is for features that do not fit in memory: rows are read from their file, many at a
        time, in place of page faults. `features` and `labels` are left out where the dataset has none.

        `prefetch` mini-batches are made ahead by a thread of Rust; 0 makes each when it is asked for. `threads` is the
        number that one mini-batch is made with, all processors by default.

        `device` is where tensors are wanted. For a GPU, rows are gathered into pinned memory, and copied on a stream of
        their own while the GPU still computes with the mini-batch before.

        Memory: the mini-batches that are ahead, and with `form="pyg"` 4 bytes a vertex of the graph.
        """
        _refuse_others(others)
        fanouts = _either("fanouts", fanouts, "num_neighbors", num_neighbors)
        if fanouts is None:
            raise TypeError("fanouts are missing: in-neighbours for a vertex at each layer, as [15, 10, 5]")
        seeds = _either("seeds", seeds, "input_nodes", input_nodes)
        self.dataset = ds if isinstance(ds, Dataset) else open_dataset(ds)
        """What is drawn from."""
        self.dataset._expect_one_type("NeighborLoader", "gsplit.torch.SplitLoader draws by type, in one process too")
        self.fanouts = _text(self.dataset, fanouts)
        """The format of the command line, e.g. `15,10,5`."""
        if form not in ("pyg", "blocks"):
            raise ValueError(f"form {form!r}, expected pyg or blocks")
        if dtype not in ("stored", "float32"):
            raise ValueError(f"dtype {dtype!r}, expected stored or float32")
        _epochs.check_counts(batch_size, prefetch, threads, seed)
        _epochs.check_draw_by(self.dataset, draw_by)
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size are given together, or neither")
        ranks = 1 if world_size is None else world_size
        if rank is not None and not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} of world_size {ranks}, expected one from 0 to {ranks - 1}")
        self.seeds = _seeds(self.dataset, "train" if seeds is None else seeds)
        """The vertices that mini-batches are made for, on all ranks: uint32."""
        self.batch_size = batch_size
        """Seeds of a mini-batch, on this rank."""
        self._form = form
        self._numpy = numpy
        self._device = device
        self._options = {
            "batch_size": batch_size * ranks,
            "drop_last": drop_last,
            "shuffle": shuffle,
            "seed": seed,
            "blocks": form == "blocks",
            "edge_ids": edge_ids,
            "draw_by": draw_by,
            "features": features and self.dataset.has_features,
            **_epochs.reading(load_features),
            "widen": dtype == "float32",
            "labels": labels and self.dataset.has_labels,
            "threads": threads,
            "prefetch": prefetch,
            "rank": rank or 0,
            "ranks": ranks,
        }
        self._open()

    def _open(self) -> None:
        """Finds the frameworks and maps the dataset, which cannot be pickled."""
        self._torch: Any = None if self._numpy else _optional("torch")
        is_pyg = self._torch is not None and self._form == "pyg"
        self._data = _optional("torch_geometric.data") if is_pyg else None
        if self._device is not None:
            if self._torch is None:
                raise ValueError(f"device {self._device}: NumPy arrays stay in host memory, expected torch")
            self._device = self._torch.device(self._device)
            if self._device.type == "cuda" and not self._torch.cuda.is_available():
                raise ValueError(f"device {self._device}: PyTorch finds no GPU")
        memory = _epochs.memory_for(self._torch, self._device)
        self._loader = _epochs.loader(self.dataset, self.fanouts, self.seeds, **self._options, **memory)

    def __getstate__(self) -> dict[str, Any]:
        """All but the frameworks and the maps."""
        return {name: value for name, value in vars(self).items() if name not in ("_torch", "_data", "_loader")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Maps the dataset again."""
        vars(self).update(state)
        self._open()

    def __len__(self) -> int:
        """Mini-batches of an epoch."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        """The mini-batches of the present epoch."""
        data = sys.modules.get("torch.utils.data")
        if data is not None and data.get_worker_info() is not None:
            problem = "each worker of a DataLoader would draw the whole epoch and copy it to the others' process"
            raise RuntimeError(f"{problem}: pass num_workers=0; {_AHEAD}")
        make = self._blocks if self._form == "blocks" else self._subgraph
        batches = map(make, _epochs.mini_batches(self.dataset, self._loader.epoch(self._next_epoch())))
        return batches if self._device is None else _epochs.on_device(self._torch, batches, self._device)

    def __getitem__(self, index: Any) -> NoReturn:
        """Refused: a DataLoader would ask for single mini-batches."""
        raise TypeError(f"a loader is iterated over, not indexed, and needs no DataLoader around it: {_AHEAD}")

    def _subgraph(self, batch: _native.Batch) -> Any:
        fields: dict[str, Any] = {
            "n_id": batch.n_id,
            "edge_index": batch.edge_index,
            "input_id": batch.input_id,
            "e_id": batch.e_id,
            "y": batch.y,
        }
        fields = {name: self._tensor(array) for name, array in fields.items() if array is not None}
        if batch.x:
            fields["x"] = self._rows(batch)
        fields["batch_size"] = len(batch.input_id)
        fields["num_sampled_nodes"] = batch.num_sampled_nodes
        fields["num_sampled_edges"] = batch.num_sampled_edges
        if self._data is None:
            return Subgraph(**fields)
        return self._data.Data(num_nodes=len(batch.n_id), **fields)

    def _blocks(self, batch: _native.Batch) -> MiniBatch:
        tensor = self._tensor
        blocks = [
            Block(tensor(layer.indptr), tensor(layer.indices), len(layer.src), layer.num_dst, tensor(layer.e_id))
            for layer in batch.layers
        ]
        n_id, input_id = tensor(batch.n_id), tensor(batch.input_id)
        return MiniBatch(blocks, n_id, input_id, len(batch.input_id), self._rows(batch), tensor(batch.y))

    def _tensor(self, array: Any) -> Any:
        return array if self._torch is None or array is None else self._torch.from_numpy(array)

    def _rows(self, batch: _native.Batch) -> Any:
        if not batch.x:
            return None
        return batch.x[0][0] if self._torch is None else _epochs.rows_as_tensor(self._torch, *batch.x[0])

    def __repr__(self) -> str:
        """What is drawn from what."""
        name, seeds = self.dataset.name, len(self.seeds)
        return f"<gsplit.NeighborLoader of {name!r}: {seeds} seeds, fanouts {self.fanouts}, {len(self)} mini-batches>"


def _optional(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _refuse_others(given: Mapping[str, object]) -> None:
    """Refuses keywords of PyG's and PyTorch's loaders, except for values that change nothing."""
    for name, value in given.items():
        if name not in _ELSEWHERE:
            raise TypeError(f"NeighborLoader() got an unexpected keyword argument {name!r}")
        same, reason = _ELSEWHERE[name]
        if value is not None and getattr(value, "value", value) not in same:
            raise TypeError(f"gsplit's NeighborLoader has no {name}={value!r:.40}: {reason}")


def _either(name: str, value: Any, alias: str, other: Any) -> Any:
    if value is not None and other is not None:
        raise TypeError(f"{name} and {alias} are two names of the same: give one of them")
    return other if value is None else value


def _text(ds: Dataset, fanouts: Fanouts | FanoutsByRelation) -> str:
    if isinstance(fanouts, str):
        return fanouts
    if isinstance(fanouts, Mapping):
        if not ds.types:
            raise TypeError("fanouts by type of edge: the dataset has one type, expected a list of numbers")
        return fanouts_text(fanouts)
    return ",".join(str(fanout) for fanout in fanouts)


def _seeds(ds: Dataset, seeds: Any) -> npt.NDArray[np.uint32]:
    """The vertices that `seeds` says, among all; with several types the vertices of one, or a split."""
    first, count = 0, ds.num_vertices
    if isinstance(seeds, tuple) and seeds and isinstance(seeds[0], str):
        kind, seeds = seeds
        if kind not in ds.types:
            expected = (
                f"expected one of {', '.join(ds.types)}"
                if ds.types
                else "vertices have one type here, expected only them"
            )
            raise TypeError(f"seeds of the type {kind!r}: {expected}")
        first, count = ds.types[kind].first, ds.types[kind].count
        seeds = "all" if seeds is None else seeds
    elif ds.types and (not isinstance(seeds, str) or seeds == "all"):
        raise TypeError("seeds of several types: expected a split, or a type and its vertices as ('TYPE', vertices)")
    if isinstance(seeds, str):
        if seeds == "all":
            return np.arange(first, first + count, dtype=np.uint32)
        split = ds.split(seeds)
        return np.asarray(split[np.searchsorted(split, first) : np.searchsorted(split, first + count)])
    # A tensor may be on a GPU.
    given = np.asarray(seeds.cpu() if hasattr(seeds, "cpu") else seeds)
    if given.dtype == np.bool_:
        if given.shape != (count,):
            raise ValueError(f"mask of shape {given.shape}, expected one value for each of {count} vertices")
        given = np.flatnonzero(given)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(f"seeds of type {given.dtype} and shape {given.shape}, expected a list of vertices")
    if given.size and (int(given.min()) < 0 or int(given.max()) >= count):
        worst = given.min() if given.min() < 0 else given.max()
        raise ValueError(f"seed {worst}, expected vertices from 0 to {count - 1}")
    vertices = np.ascontiguousarray(given, np.uint32)
    if len(np.unique(vertices)) < len(vertices):
        values, counts = np.unique(vertices, return_counts=True)
        raise ValueError(f"vertex {values[counts.argmax()]} is there {counts.max()} times, expected distinct seeds")
    return vertices + np.uint32(first)
