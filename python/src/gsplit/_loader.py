"""Mini-batches for training in Python, drawn by gsplit's own sampler."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union

import numpy as np
import numpy.typing as npt

from ._batches import Block, MiniBatch, Subgraph
from ._dataset import Dataset, open_dataset
from ._errors import DatasetError

if TYPE_CHECKING:
    from . import _native

Fanouts = Union[str, Sequence[Union[int, str]]]
_Path = Union[str, "os.PathLike[str]"]

_EPOCH_END = 2**32


class NeighborLoader:
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
    """

    def __init__(
        self,
        ds: Dataset | _Path,
        fanouts: Fanouts,
        batch_size: int = 1024,
        *,
        seeds: str | npt.ArrayLike = "train",
        form: Literal["pyg", "blocks"] = "pyg",
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        features: bool = True,
        load_features: bool = False,
        dtype: Literal["stored", "float32"] = "stored",
        labels: bool = True,
        edge_ids: bool = False,
        draw_by: str | None = None,
        threads: int | None = None,
        prefetch: int = 2,
        numpy: bool = False,
    ) -> None:
        """Prepares to draw from `ds`, a dataset or its path. Reads all edges once, to check them.

        `fanouts` are in-neighbours for a vertex at each layer, from the seeds downwards; -1 or `"all"` takes every one.
        `seeds` is the name of a split, or distinct vertices in any order. `draw_by` names an edge column: in-neighbours
        are then drawn with probabilities that grow with it. Draws are without replacement.

        `dtype="stored"` leaves f32, f16 and bf16 features as they are (bf16 in NumPy as the bits of a uint16); i8 rows
        become float32, because each has a scale. `load_features` copies all rows into memory first, on huge pages where
        there are some. `features` and `labels` are left out where the dataset has none.

        `prefetch` mini-batches are made ahead by a thread of Rust; 0 makes each when it is asked for. `threads` is the
        number that one mini-batch is made with, all processors by default.

        Memory: the mini-batches that are ahead, and with `form="pyg"` 4 bytes a vertex of the graph.
        """
        self.dataset = ds if isinstance(ds, Dataset) else open_dataset(ds)
        """What is drawn from."""
        self.fanouts = _text(fanouts)
        """As the command line has them, as `15,10,5`."""
        if form not in ("pyg", "blocks"):
            raise ValueError(f"form {form!r}, expected pyg or blocks")
        if dtype not in ("stored", "float32"):
            raise ValueError(f"dtype {dtype!r}, expected stored or float32")
        for name, value, least in (("batch_size", batch_size, 1), ("prefetch", prefetch, 0), ("threads", threads, 1)):
            if value is not None and value < least:
                raise ValueError(f"{name} {value}, expected at least {least}")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed {seed}, expected one from 0 to 2^64 - 1")
        self.seeds = _seeds(self.dataset, seeds)
        """The vertices that mini-batches are made for: uint32."""
        self.batch_size = batch_size
        """Seeds of a mini-batch."""
        self.epoch = 1
        """The epoch that the next pass draws."""
        self._form = form
        self._torch = None if numpy else _optional("torch")
        self._data = _optional("torch_geometric.data") if self._torch is not None and form == "pyg" else None
        native = _extension()
        try:
            self._loader: _native.Loader = native.Loader(
                self.dataset.path,
                self.fanouts,
                self.seeds,
                batch_size=batch_size,
                drop_last=drop_last,
                shuffle=shuffle,
                seed=seed,
                blocks=form == "blocks",
                edge_ids=edge_ids,
                draw_by=draw_by,
                features=features and self.dataset.has_features,
                load_features=load_features,
                widen=dtype == "float32",
                labels=labels and self.dataset.has_labels,
                threads=threads,
                prefetch=prefetch,
            )
        except RuntimeError as error:
            raise _refused(self.dataset, error) from error

    def __len__(self) -> int:
        """Mini-batches of an epoch."""
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that the next pass draws, from 0; each pass after it draws the next one."""
        if not 0 <= epoch < _EPOCH_END:
            raise ValueError(f"epoch {epoch}, expected one from 0 to 2^32 - 1")
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        """The mini-batches of the present epoch."""
        number = self.epoch
        self.epoch = (number + 1) % _EPOCH_END
        return self._batches(self._loader.epoch(number))

    def _batches(self, epoch: _native.Epoch) -> Iterator[Any]:
        make = self._blocks if self._form == "blocks" else self._subgraph
        try:
            for batch in epoch:
                yield make(batch)
        except RuntimeError as error:
            raise _refused(self.dataset, error) from error

    def _subgraph(self, batch: _native.Batch) -> Any:
        fields: dict[str, Any] = {
            "n_id": batch.n_id,
            "edge_index": batch.edge_index,
            "input_id": batch.input_id,
            "e_id": batch.e_id,
            "y": batch.y,
        }
        fields = {name: self._tensor(array) for name, array in fields.items() if array is not None}
        if batch.x is not None:
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
            Block(tensor(layer.indptr), tensor(layer.indices), layer.num_src, layer.num_dst, tensor(layer.e_id))
            for layer in batch.layers
        ]
        n_id, input_id = tensor(batch.n_id), tensor(batch.input_id)
        return MiniBatch(blocks, n_id, input_id, len(batch.input_id), self._rows(batch), tensor(batch.y))

    def _tensor(self, array: Any) -> Any:
        return array if self._torch is None or array is None else self._torch.from_numpy(array)

    def _rows(self, batch: _native.Batch) -> Any:
        if batch.x is not None and batch.bf16 and self._torch is not None:
            return self._torch.from_numpy(batch.x.view(np.int16)).view(self._torch.bfloat16)
        return self._tensor(batch.x)

    def __repr__(self) -> str:
        """What is drawn from what."""
        name, seeds = self.dataset.name, len(self.seeds)
        return f"<gsplit.NeighborLoader of {name!r}: {seeds} seeds, fanouts {self.fanouts}, {len(self)} mini-batches>"


def _extension() -> Any:
    try:
        return importlib.import_module("gsplit._native")
    except ImportError as error:
        remedy = "`pip install ./python` builds it where Rust is installed, `make wheel` makes a wheel of it"
        raise ImportError(f"NeighborLoader needs the extension gsplit._native: {remedy} ({error})") from error


def _optional(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _text(fanouts: Fanouts) -> str:
    if isinstance(fanouts, str):
        return fanouts
    return ",".join(str(fanout) for fanout in fanouts)


def _seeds(ds: Dataset, seeds: str | npt.ArrayLike) -> npt.NDArray[np.uint32]:
    if isinstance(seeds, str):
        return np.asarray(ds.split(seeds))
    given = np.asarray(seeds)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(f"seeds of type {given.dtype} and shape {given.shape}, expected a list of vertices")
    if given.size and (int(given.min()) < 0 or int(given.max()) >= ds.num_vertices):
        worst = given.min() if given.min() < 0 else given.max()
        raise ValueError(f"seed {worst}, expected vertices from 0 to {ds.num_vertices - 1}")
    vertices = np.ascontiguousarray(given, np.uint32)
    if len(np.unique(vertices)) < len(vertices):
        values, counts = np.unique(vertices, return_counts=True)
        raise ValueError(f"vertex {values[counts.argmax()]} is there {counts.max()} times, expected distinct seeds")
    return vertices


def _refused(ds: Dataset, error: RuntimeError) -> DatasetError:
    return DatasetError(ds.path, str(error), "`gsplit verify` tells whether the dataset is damaged")
