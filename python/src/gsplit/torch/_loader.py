"""Mini-batches of one rank of several, for models of one's own."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from .._dataset import Dataset, open_dataset
from .._errors import DatasetError
from .._loader import _EPOCH_END, Fanouts, _extension, _Path, _refused, _seeds, _text
from ._exchange import Messages, Read, place

Parallelism = Literal["split", "owned", "data"]


class SplitLoader:
    """This rank's part of every mini-batch, sampled by all ranks together in Rust, one mini-batch ahead.

    Under `parallelism="split"` a vertex of a layer is computed by the rank that has its part, once; what a layer reads
    of others comes by `layer.read`. Under `"owned"` a rank has the seeds of its part, and under `"data"` an equal
    portion of each mini-batch; both load and compute all that these need, and `layer.read` returns what it is given.
    In one process all three are the same.

    Losses and gradients of a model without dropout are those of one process, up to rounding, if the loss of a rank is
    the sum over its seeds divided by `batch.num_seeds` and gradients are summed (`sum_gradients`). All ranks have
    equally many mini-batches; some ranks may have no seeds in one.

    Draws are those of `gsplit train` with the same seed, fanouts and batch size, which counts the seeds of all ranks.
    """

    def __init__(
        self,
        ds: Dataset | _Path,
        fanouts: Fanouts,
        batch_size: int = 1024,
        *,
        parallelism: Parallelism = "split",
        partition: str | None = None,
        seeds: str | npt.ArrayLike = "train",
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        features: bool = True,
        labels: bool = True,
        dtype: Literal["stored", "float32"] = "float32",
        draw_by: str | None = None,
        threads: int | None = None,
        prefetch: int = 1,
        device: str | torch.device = "cpu",
        group: Any = None,
    ) -> None:
        """Prepares to draw from `ds`, a dataset or its path, on all ranks of `group` (the default one). Collective:
        every rank makes the same loader, but for `threads` and `device`.

        `fanouts` are in-neighbours for a vertex at each layer, from the seeds downwards; -1 or `"all"` takes every one.
        `partition` names a partition of as many parts as there are ranks, by default the only one. `seeds`, `draw_by`,
        `features`, `labels` and `dtype` are as for `NeighborLoader`. `threads` make a mini-batch, by default this
        rank's portion of the host's processors.

        `prefetch` mini-batches are made ahead by a thread of Rust; its messages have a process group of their own.
        """
        self.dataset = ds if isinstance(ds, Dataset) else open_dataset(ds)
        """What is drawn from."""
        self.fanouts = _text(fanouts)
        """As the command line has them, as `15,10,5`."""
        self.rank, self.size = place(group)
        """This rank, and how many there are."""
        self.device = torch.device(device)
        """Where tensors lie."""
        self.epoch = 1
        """The epoch that the next pass draws."""
        if parallelism not in ("split", "owned", "data"):
            raise ValueError(f"parallelism {parallelism!r}, expected split, owned or data")
        for name, value, least in (("batch_size", batch_size, 1), ("prefetch", prefetch, 0), ("threads", threads, 1)):
            if value is not None and value < least:
                raise ValueError(f"{name} {value}, expected at least {least}")
        self.parallelism = parallelism if self.size > 1 else "data"
        """As it is done: of one rank all are `data`."""
        self.seeds = _seeds(self.dataset, seeds)
        """The vertices that mini-batches are made for, on all ranks: uint32."""
        self._group = group
        self._process = os.getpid()
        native = _extension()
        owners = None if self.parallelism == "data" else _owners(self.dataset, partition, self.size)
        self._owners = owners
        try:
            drawn = native.Loader(
                self.dataset.path,
                self.fanouts,
                self.seeds,
                batch_size=batch_size,
                drop_last=drop_last,
                shuffle=shuffle,
                seed=seed,
                blocks=True,
                edge_ids=True,
                draw_by=draw_by,
                features=features and self.dataset.has_features,
                load_features=False,
                widen=dtype == "float32",
                labels=labels and self.dataset.has_labels,
                threads=_threads(self.size) if threads is None else threads,
                prefetch=prefetch,
            )
        except RuntimeError as error:
            raise _refused(self.dataset, error) from error
        exchange = None
        if self.size > 1:
            exchange = Messages(group)
            exchange.check_alike(
                dataset=_digest(json.dumps(self.dataset.manifest["files"]).encode()),
                partition=None if owners is None else _digest(owners.tobytes()),
                parallelism=parallelism,
                fanouts=self.fanouts,
                batch_size=batch_size,
                seeds=_digest(self.seeds.tobytes()),
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                draw_by=draw_by,
                prefetch=prefetch,
            )
        self._length = len(drawn)
        self._loader = native.RankLoader(
            drawn,
            rank=self.rank,
            size=self.size,
            owners=owners,
            split=self.parallelism == "split",
            exchange=exchange,
            prefetch=prefetch,
        )

        # A thread that came back to Python after its end would not return.
        weakref.finalize(self, self._loader.end)

    def __len__(self) -> int:
        """Mini-batches of an epoch, the same on all ranks."""
        return self._length

    def owned(self) -> npt.NDArray[np.int64]:
        """The vertices of this rank's part, ascending; all, where there is no partition in use."""
        if self._owners is None:
            return np.arange(self.dataset.num_vertices, dtype=np.int64)
        return np.flatnonzero(self._owners == self.rank)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that the next pass draws, from 0; each pass after it draws the next one."""
        if not 0 <= epoch < _EPOCH_END:
            raise ValueError(f"epoch {epoch}, expected one from 0 to 2^32 - 1")
        self.epoch = epoch

    def __iter__(self) -> Iterator[SplitBatch]:
        """The mini-batches of the present epoch. Collective: all ranks take equally many."""
        if os.getpid() != self._process:
            raise RuntimeError(
                "a SplitLoader draws in the process that made it, since its ranks are connected there: iterate over it "
                "itself, without a DataLoader's workers; a thread of its own is ahead already"
            )
        number = self.epoch
        self.epoch = (number + 1) % _EPOCH_END
        epoch = self._loader.epoch(number)
        try:
            for batch in epoch:
                yield self._batch(batch)
        except ConnectionError:
            raise
        except RuntimeError as error:
            raise _refused(self.dataset, error) from error
        finally:
            epoch.close()

    def _batch(self, batch: Any) -> SplitBatch:
        layers = [SplitLayer(layer, self._group, self.device) for layer in batch.layers]
        x = batch.x
        if x is not None:
            x = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if batch.bf16 else torch.from_numpy(x)
        x, y, seeds, n_id = (
            None if tensor is None else torch.as_tensor(tensor).to(self.device)
            for tensor in (x, batch.y, batch.seeds, batch.n_id)
        )
        return SplitBatch(x, y, layers, batch.num_seeds, seeds, n_id, batch.step)

    def __reduce__(self) -> Any:
        """Refuses to be copied into another process."""
        raise TypeError("a SplitLoader belongs to its process and rank: make one in each")

    def __repr__(self) -> str:
        """What is drawn from what, by whom."""
        rank = f"rank {self.rank} of {self.size}, {self.parallelism}"
        drawn = f"fanouts {self.fanouts}, {len(self)} mini-batches"
        return f"<gsplit.torch.SplitLoader of {self.dataset.name!r}: {rank}, {drawn}>"


@dataclass
class SplitBatch:
    """A rank's part of a mini-batch."""

    x: Any
    """Features `[len(n_id), dim]` of the vertices that this rank loads; `None` without features."""
    y: Any
    """Labels of this rank's seeds: int64, -1 = unlabelled; float32 of numbers and of several classes."""
    layers: list[SplitLayer]
    """One for each layer; the first reads the features, the last computes the seeds."""
    num_seeds: int
    """Seeds of the whole mini-batch, on all ranks."""
    seeds: torch.Tensor
    """int64: this rank's seeds."""
    n_id: torch.Tensor
    """int64: the vertex of each row of `x`."""
    step: int
    """Number of the mini-batch in its epoch, from 0."""


class SplitLayer:
    """A layer of a rank: it computes `num_dst` rows of `num_src` rows, of which the first are its own."""

    def __init__(self, layer: Any, group: Any, device: torch.device) -> None:
        """Of what Rust has sampled."""
        self._layer = layer
        self._group = group
        self._device = device
        self.num_src: int = len(layer.src)
        """Rows that it reads."""
        self.num_dst: int = len(layer.dst)
        """Rows that it computes: those of the first it reads."""

    def _tensor(self, array: Any) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)

    @cached_property
    def indptr(self) -> torch.Tensor:
        """int64 `[num_dst + 1]`: the edges into target `i` are `indptr[i]..indptr[i + 1]`."""
        return self._tensor(self._layer.indptr)

    @cached_property
    def indices(self) -> torch.Tensor:
        """int64: the source of each edge, as a row of what `read` returns."""
        return self._tensor(self._layer.indices)

    @cached_property
    def edge_index(self) -> torch.Tensor:
        """int64 `[2, m]`: source and target row of each edge, as PyG's bipartite layers take them."""
        targets = torch.repeat_interleave(torch.arange(self.num_dst, device=self._device), self.indptr.diff())
        return torch.stack([self.indices, targets])

    @cached_property
    def edge_ids(self) -> torch.Tensor:
        """int64: the position of each edge in `ds.indices`, and so in each of `ds.edge_columns`."""
        return self._tensor(self._layer.e_id)

    @cached_property
    def factors(self) -> torch.Tensor | None:
        """float32: the factor of each edge's message that corrects draws by weight; `None` where all are 1."""
        return None if self._layer.factors is None else self._tensor(self._layer.factors)

    @cached_property
    def dst(self) -> torch.Tensor:
        """int64: the vertex of each row that it computes."""
        return self._tensor(self._layer.dst)

    @cached_property
    def src(self) -> torch.Tensor:
        """int64: the vertex of each row that it reads."""
        return self._tensor(self._layer.src)

    @cached_property
    def _asked(self) -> torch.Tensor:
        return self._tensor(self._layer.asked)

    def read(self, *rows: torch.Tensor) -> Any:
        """The rows that the layer reads: this rank's, from the layer below, then those of other ranks. Collective.

        Each of `rows` is `[rows of this rank, ...]`, of any type; with several a tuple is returned. Gradients flow back
        to the rank that has the row. Where nothing crosses the rows are returned as they are.
        """
        layer = self._layer
        if layer.asked is None:
            return rows if len(rows) > 1 else rows[0]
        counts = (layer.sent, layer.received)
        read = tuple(Read.apply(tensor, self._asked, counts, self._group) for tensor in rows)
        return read if len(read) > 1 else read[0]

    def to_dgl(self) -> Any:
        """The layer as a block of DGL."""
        try:
            dgl: Any = importlib.import_module("dgl")
        except ImportError as error:
            raise ImportError(f"SplitLayer.to_dgl needs dgl: run `pip install dgl` ({error})") from error
        edges = ("csc", (self.indptr, self.indices, torch.empty(0, dtype=torch.int64, device=self._device)))
        return dgl.create_block(edges, num_src_nodes=self.num_src, num_dst_nodes=self.num_dst)


def _owners(ds: Dataset, key: str | None, ranks: int) -> npt.NDArray[np.uint16]:
    """The part of each vertex, by the partition `key` or the only one of as many parts as ranks."""
    made = f"`gsplit partition {ds.path} --parts {ranks}` makes one"
    if key is None:
        parts = {name: ds.partition(name).num_parts for name in ds.partitions}
        fit: Sequence[str] = [name for name, count in parts.items() if count == ranks]
        if not fit:
            there = ", ".join(f"{name} of {count}" for name, count in parts.items()) or "none"
            raise DatasetError(ds.path, f"has no partition into {ranks} parts (there is {there})", made)
        if len(fit) > 1:
            raise DatasetError(
                ds.path, f"has several partitions into {ranks} parts: {', '.join(fit)}", "pass partition=KEY"
            )
        key = fit[0]
    found = ds.partition(key)
    if found.num_parts != ranks:
        raise DatasetError(ds.path, f"partition {key} has {found.num_parts} parts, the ranks are {ranks}", made)
    return np.ascontiguousarray(found.assignment)


def _threads(ranks: int) -> int:
    """Processors of this host for each of its ranks, which are all `ranks` unless a launcher says otherwise."""
    return max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", ranks)))


def _digest(content: bytes) -> str:
    """A checksum by which ranks compare what they have."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()
