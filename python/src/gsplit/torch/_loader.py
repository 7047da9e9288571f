"""Mini-batches of one rank of several, for models of one's own."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from .. import _epochs
from .._batches import Tensors
from .._dataset import Dataset, open_dataset
from .._errors import DatasetError
from .._loader import Fanouts, FanoutsByRelation, _Path, _seeds, _text
from .._types import Relation
from ._cache import Drawn, best, hottest, num_rows, presample_like
from ._exchange import Messages, Moved, Read, place, read
from ._gpu import Topology, sampling, tensor

if TYPE_CHECKING:
    from .. import _native

Parallelism = Literal["split", "owned", "data"]
_Batch = TypeVar("_Batch", bound="RankBatch")


class RankLoader(_epochs.Epochs, Generic[_Batch]):
    """The base of `SplitLoader` and `LinkLoader`: sampling by all ranks together in Rust, one mini-batch ahead."""

    def __init__(
        self,
        ds: Dataset | _Path,
        fanouts: Fanouts | FanoutsByRelation,
        batch_size: int = 1024,
        *,
        parallelism: Parallelism = "split",
        partition: str | None = None,
        seeds: str | npt.ArrayLike | tuple[str, str | npt.ArrayLike] = "train",
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        features: bool = True,
        load_features: bool | Literal["disk"] = False,
        labels: bool = True,
        dtype: Literal["stored", "float32"] = "float32",
        draw_by: str | None = None,
        threads: int | None = None,
        prefetch: int = 1,
        device: str | torch.device = "cpu",
        cache: str | int | None = None,
        presample: str | None = None,
        topology: Topology = "host",
        group: Any = None,
        _links: Links | None = None,
    ) -> None:
        """Prepares to draw from `ds`, a dataset or its path, on all ranks of `group` (the default one). Collective:
        every rank makes the same loader, but for `threads`, `device`, `cache`, `topology` and `load_features`.

        `fanouts` are in-neighbours for a vertex at each layer, from the seeds downwards; -1 or `"all"` takes every one.
        `partition` names a partition of as many parts as there are ranks, by default the one that was
        cut by mini-batches like these, or the only one. `seeds`, `draw_by`,
        `features`, `load_features`, `labels` and `dtype` are as for `NeighborLoader`. `threads` make a mini-batch, by
        default this rank's portion of the host's processors.

        `prefetch` mini-batches are made ahead by a thread of Rust; its messages have a process group of their own. With
        a GPU as `device`, rows are gathered into pinned memory, and copied on a stream of their own while the GPU still
        computes with the mini-batch before.

        `cache` is how much of `device`'s memory keeps feature rows, the others come from the host: a number of bytes,
        or a percentage of the dataset's rows, as `"20%"`. They are the hottest of this rank's part under `"split"`, by
        the partition's cache order; else the hottest of all, by the presample `presample`, by default the
        one that fits `fanouts` and `batch_size` best. With
        `load_features="disk"` only the others are read from disk.

        `topology` is where the graph is that is sampled from. With `"host"` the CPU samples; `device`, a GPU, samples
        the same from a copy of the graph in its memory (`"device"`) or in pinned host memory (`"pinned"`): 8 bytes a
        vertex and 4 an edge. It does so without `draw_by`, and not under `"split"` on several ranks.

        With several types of vertices, `fanouts` may be by relation: a dict of lists, as `{"writes": [10, 5],
        ("paper", "cites", "paper"): [5, 0], None: [10, 5]}`, where `None` stands for all other relations and 0 draws
        nothing. A relation has the fanouts of its three names, else of its own name. `seeds` are a split, or a type
        and its vertices, counted from 0, as `("paper", [0, 3])` or `("paper", "all")`. Mini-batches are made on the
        CPU (`batch.to(device)` moves one), without `cache`.
        """
        self.dataset = ds if isinstance(ds, Dataset) else open_dataset(ds)
        """What is drawn from."""
        self.fanouts = _text(self.dataset, fanouts)
        """The format of the command line, e.g. `15,10,5` or `15+cites=5,10`."""
        self.rank, self.size = place(group)
        """This rank, and how many there are."""
        self.device = torch.device(device)
        """Where tensors lie."""
        if parallelism not in ("split", "owned", "data"):
            raise ValueError(f"parallelism {parallelism!r}, expected split, owned or data")
        _epochs.check_counts(batch_size, prefetch, threads, seed)
        _epochs.check_draw_by(self.dataset, draw_by)
        self.parallelism = parallelism if self.size > 1 else "data"
        """The parallelism in effect: always `data` with one rank."""
        sampled = sampling(topology, self.device, self.parallelism, draw_by)
        of_edges = _links is not None and _links.negatives is not None
        self.seeds = _seeds(self.dataset, [] if of_edges else seeds)
        """The vertices that mini-batches are made for, on all ranks: uint32; none where they are of edges."""
        self.target: str | None = None
        """The type of all seeds, if there are several types of vertices."""
        if self.dataset.types:
            self.target = _target(self.dataset, self.seeds, self.device, cache)
        self._group = group
        self._process = os.getpid()
        drawn = Drawn(self.fanouts, batch_size, draw_by, _links.negatives if _links is not None else None)
        key = None if self.parallelism == "data" else _partition(self.dataset, partition, self.size, drawn)
        self.partition = key
        """The partition in use, if one is."""
        self.presample: str | None = None
        """The presample that ranks the cached rows, if one does."""
        self._owners = None if key is None else np.ascontiguousarray(self.dataset.partition(key).assignment)
        exchange = None
        if self.size > 1:
            exchange = Messages(group)
            exchange.check_alike(
                dataset=_digest(json.dumps(self.dataset.manifest["files"]).encode()),
                partition=None if self._owners is None else _digest(self._owners.tobytes()),
                parallelism=parallelism,
                fanouts=self.fanouts,
                batch_size=batch_size,
                seeds=_digest(self.seeds.tobytes()),
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                draw_by=draw_by,
                prefetch=prefetch,
                **({} if _links is None else {**_links.held_out, "negatives": _links.negatives}),
            )
        is_read = features and self.dataset.has_features
        kept = None
        if is_read and cache is not None:
            count = num_rows(self.dataset, cache, dtype == "float32")
            if key is not None and self.parallelism == "split":
                kept = np.ascontiguousarray(self.dataset.partition(key).vertices(self.rank)[:count])
            else:
                self.presample = presample_like(self.dataset, drawn) if presample is None else presample
                kept = hottest(self.dataset, self.presample, count)
            # Rows are looked up only in a cache that has some.
            kept = kept if len(kept) else None
        self._loader = _epochs.loader(
            self.dataset,
            self.fanouts,
            None if of_edges else self.seeds,
            batch_size=batch_size,
            drop_last=drop_last,
            shuffle=shuffle,
            seed=seed,
            blocks=True,
            edge_ids=self.target is None,
            draw_by=draw_by,
            features=is_read,
            **_epochs.reading(load_features),
            widen=dtype == "float32",
            labels=labels and self.dataset.has_labels,
            threads=_threads(self.size) if threads is None else threads,
            prefetch=prefetch,
            rank=self.rank,
            ranks=self.size,
            owners=self._owners,
            split=self.parallelism == "split",
            exchange=exchange,
            cached=kept,
            held_out=None if _links is None else _links.held_out,
            negatives=None if _links is None else _links.negatives,
            **sampled,
            **_epochs.memory_for(torch, self.device),
        )
        self._length = len(self._loader)
        self._kept = None
        if kept is not None:
            self._kept = _epochs.rows_as_tensor(torch, *self._loader.rows(kept)[0]).to(self.device)

        # A thread that came back to Python after its end would not return.
        weakref.finalize(self, self._loader.end)

    def __len__(self) -> int:
        """Mini-batches of an epoch, the same on all ranks."""
        return self._length

    def owned(self) -> npt.NDArray[np.int64]:
        """The vertices of this rank's part, ascending; all vertices without a partition."""
        if self._owners is None:
            return np.arange(self.dataset.num_vertices, dtype=np.int64)
        return np.flatnonzero(self._owners == self.rank)

    def __iter__(self) -> Iterator[_Batch]:
        """The mini-batches of the present epoch. Collective: all ranks take equally many."""
        if os.getpid() != self._process:
            raise RuntimeError(
                f"a {type(self).__name__} draws in the process that made it, since its ranks are connected there: "
                "iterate over it itself, without a DataLoader's workers; a thread of its own is ahead already"
            )
        batches = map(self._batch, _epochs.mini_batches(self.dataset, self._loader.epoch(self._next_epoch())))
        return map(self._with_kept, _epochs.on_device(torch, batches, self.device))

    def _batch(self, batch: _native.Batch) -> _Batch:
        raise NotImplementedError

    def _fields(self, batch: _native.Batch) -> dict[str, Any]:
        """What every `RankBatch` has."""
        x: Any = [_epochs.rows_as_tensor(torch, *rows) for rows in batch.x]
        layers: list[Any]
        if self.target is None:
            layers, n_id = [self._layer(layer) for layer in batch.layers], tensor(batch.n_id, ids=True)
            x = x[0] if x else None
        else:
            layers = [self._by_type(layer) for layer in batch.typed]
            n_id, x = layers[0]._own, dict(zip(self.dataset._types_with_features, x))
        return {
            "x": x,
            "layers": layers,
            "n_id": n_id,
            "step": batch.step,
            "_hits": None if batch.hits is None else [torch.from_numpy(positions) for positions in batch.hits],
        }

    def _layer(self, layer: _native.Layer) -> SplitLayer:
        indptr, indices, edge_ids = map(tensor, (layer.indptr, layer.indices, layer.e_id))
        factors = None if layer.factors is None else tensor(layer.factors)
        src, moved = tensor(layer.src, ids=True), layer.moved and Moved.of(layer.moved, self._group)
        return SplitLayer(indptr, indices, edge_ids, factors, src, len(layer.src), layer.num_dst, moved)

    def _by_type(self, layer: _native.ByType) -> TypedLayer:
        types = self.dataset.types
        edges = dict(zip(self.dataset.relations, map(torch.from_numpy, layer.edge_index)))
        moved = {name: Moved.of(of, self._group) for name, of in zip(types, layer.moved)}
        return TypedLayer(
            edges, dict(zip(types, map(torch.from_numpy, layer.src))), dict(zip(types, layer.num_dst)), moved
        )

    def _with_kept(self, batch: _Batch) -> _Batch:
        """The mini-batch with the rows that the device has."""
        if self._kept is None or batch._hits is None:
            return batch
        missed, places = batch._hits
        x = self._kept.index_select(0, places).index_copy_(0, missed, batch.x)
        return replace(batch, x=x, _hits=None)

    def __reduce__(self) -> Any:
        """Refuses to be copied into another process."""
        raise TypeError(f"a {type(self).__name__} belongs to its process and rank: make one in each")

    def __repr__(self) -> str:
        """Names the dataset, the rank and the sampling options."""
        rank = f"rank {self.rank} of {self.size}, {self.parallelism}"
        drawn = f"fanouts {self.fanouts}, {len(self)} mini-batches"
        return f"<gsplit.torch.{type(self).__name__} of {self.dataset.name!r}: {rank}, {drawn}>"


class SplitLoader(RankLoader["SplitBatch"]):
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

    def _batch(self, batch: _native.Batch) -> SplitBatch:
        y = None if batch.y is None else torch.as_tensor(batch.y)
        if self.target is not None:
            y = {} if y is None else {self.target: y}
        return SplitBatch(**self._fields(batch), y=y, num_seeds=batch.num_seeds)


@dataclass(frozen=True)
class Links:
    """How a loader takes the edges of its dataset as links."""

    held_out: Mapping[str, float]
    """`valid_edges`, `test_edges` and `edge_seed`: these edges are not in the graph."""
    negatives: int | None = None
    """Of mini-batches of edges the pairs that are none, for each edge; `None` for mini-batches of vertices."""


@dataclass
class RankBatch(Tensors):
    """Members that a rank's part of any mini-batch has. With several types of vertices, tensors are dicts by type."""

    x: Any
    """Features `[len(n_id), dim]` of the vertices that this rank loads; `None` without features.

    By type, those of the types that have features.
    """
    layers: list[Any]
    """A `SplitLayer` for each layer, or a `TypedLayer`; the first reads the features, the last computes the seeds."""
    n_id: Any
    """int64: the vertex of each row of `x`. By type, counted from 0 in each."""
    step: int
    """Number of the mini-batch in its epoch, from 0."""
    _hits: Any
    """Positions of the rows of `x`, and a place in the cache for each row."""

    @property
    def seeds(self) -> Any:
        """int64: this rank's seeds, the vertices that the last layer computes."""
        return self.layers[-1].dst


@dataclass
class SplitBatch(RankBatch):
    """A rank's part of a mini-batch."""

    y: Any
    """Labels of this rank's seeds: int64, -1 = unlabelled; float32 of numbers and of several classes.

    By type, those of the loader's `target`.
    """
    num_seeds: int
    """Seeds of the whole mini-batch, on all ranks."""


@dataclass(eq=False)
class SplitLayer(Tensors):
    """A layer of a rank: it computes `num_dst` rows of `num_src` rows, of which the first are its own."""

    indptr: torch.Tensor
    """int32 `[num_dst + 1]`: the edges into target `i` are `indptr[i]..indptr[i + 1]`."""
    indices: torch.Tensor
    """int32: the source of each edge, as a row of what `read` returns."""
    edge_ids: torch.Tensor
    """int64: the position of each edge in `ds.indices`, and so in each of `ds.edge_columns`."""
    factors: torch.Tensor | None
    """float32: the factor of each edge's message that corrects draws by weight; `None` where all are 1."""
    src: torch.Tensor
    """int64: the vertex of each row that it reads."""
    num_src: int
    """Rows that it reads."""
    num_dst: int
    """Number of rows that it computes: the first of the rows it reads."""
    _moved: Moved | None
    """Rows that move between ranks, if any do."""

    @property
    def dst(self) -> torch.Tensor:
        """int64: the vertex of each row that it computes."""
        return self.src[: self.num_dst]

    @cached_property
    def edge_index(self) -> torch.Tensor:
        """int64 `[2, m]`: source and target row of each edge, as PyG's bipartite layers take them."""
        targets = torch.arange(self.num_dst, device=self.indices.device)
        # Without the number of edges the host would wait for a GPU to count them.
        targets = targets.repeat_interleave(self.indptr.diff(), output_size=len(self.indices))
        return torch.stack([self.indices.long(), targets])

    def read(self, *rows: torch.Tensor) -> Any:
        """The rows that the layer reads: this rank's, from the layer below, then those of other ranks. Collective.

        Each of `rows` is `[rows of this rank, ...]`, of any type; with several a tuple is returned. Gradients flow back
        to the rank that has the row. Where nothing crosses the rows are returned as they are.
        """
        return read(self._moved, rows)

    def to_dgl(self) -> Any:
        """The layer as a block of DGL."""
        try:
            dgl: Any = importlib.import_module("dgl")
        except ImportError as error:
            raise ImportError(f"SplitLayer.to_dgl needs dgl: run `pip install dgl` ({error})") from error
        edges = ("csc", (self.indptr, self.indices, self.indices.new_empty(0)))
        return dgl.create_block(edges, num_src_nodes=self.num_src, num_dst_nodes=self.num_dst)


@dataclass(eq=False)
class TypedLayer(Tensors):
    """A layer of a rank between several types of vertices, by type or by relation, in dicts.

    A relation is the type of its sources, its name, and the type of its targets.
    """

    edge_index: dict[Relation, torch.Tensor]
    """int64 `[2, edges]` of each relation: rows of its types (see `ends`)."""
    src: dict[str, torch.Tensor]
    """int64: the vertex of each row that it reads, counted from 0 in its type."""
    num_dst: dict[str, int]
    """Number of rows that it computes: the first of the rows it reads."""
    _moved: dict[str, Moved]
    """Rows that move between ranks, if any do."""

    @property
    def dst(self) -> dict[str, torch.Tensor]:
        """int64: the vertex of each row that it computes."""
        return {name: src[: self.num_dst[name]] for name, src in self.src.items()}

    @property
    def num_src(self) -> dict[str, int]:
        """Number of rows that it reads."""
        return {name: len(src) for name, src in self.src.items()}

    @property
    def _own(self) -> dict[str, torch.Tensor]:
        """The vertices of the rows of the layer below that this rank has."""
        came = {name: sum(moved.counts[1]) for name, moved in self._moved.items()}
        return {name: src[: len(src) - came.get(name, 0)] for name, src in self.src.items()}

    def read(self, rows: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The rows that the layer reads, by type: this rank's, then those of other ranks. Collective.

        Of each type in `rows` they are `[rows of this rank, ...]`; all ranks give the same types. Gradients flow back
        to the rank that has the row. Where nothing crosses the rows are returned as they are.
        """
        for name, own in self._own.items():
            if name in rows and len(rows[name]) != len(own):
                raise ValueError(f"{len(rows[name])} rows of {name}, the layer below has {len(own)} on this rank")
        if not rows.keys() <= self.src.keys():
            unknown = ", ".join(sorted(rows.keys() - self.src.keys()))
            raise KeyError(f"rows of {unknown}: expected types from {', '.join(self.src)}")
        # In one order on all ranks.
        names = [name for name in self.src if name in rows]
        found = tuple(rows[name] for name in names)
        if self._moved and found:
            found = Read.apply([self._moved[name] for name in names], *found)
        return dict(zip(names, found))

    def ends(self, rows: Mapping[str, torch.Tensor]) -> dict[Relation, tuple[torch.Tensor, torch.Tensor]]:
        """What `read` has returned, for each relation: the rows of the sources' type, those of the targets.

        `HeteroConv` takes them with `edge_index`: `conv(layer.ends(rows), layer.edge_index)`. Relations between types
        that `rows` does not have are left out.
        """
        pairs = ((relation, relation[0], relation[2]) for relation in self.edge_index)
        return {
            relation: (rows[source], rows[target][: self.num_dst[target]])
            for relation, source, target in pairs
            if source in rows and target in rows
        }


def _target(ds: Dataset, seeds: npt.NDArray[np.uint32], device: torch.device, cache: Any) -> str:
    """The type of all `seeds`. Refuses options that several types of vertices cannot have yet."""
    if device.type == "cuda":
        problem = (
            "mini-batches of several types of vertices are made on the CPU only: leave it out, and move a batch by"
        )
        raise ValueError(f"device {str(device)!r}: {problem} batch.to(device)")
    if cache is not None:
        raise ValueError("cache: a device keeps feature rows of vertices of one type only: leave it out")
    last = np.array([of.first + of.count for of in ds.types.values()])
    found = np.unique(np.searchsorted(last, seeds, side="right"))
    names = [list(ds.types)[at] for at in found] or list(ds.types)[:1]
    if len(names) > 1:
        raise DatasetError(
            ds.path, f"the seeds are of several types: {', '.join(names)}", "pass seeds=(TYPE, vertices)"
        )
    return names[0]


def _partition(ds: Dataset, key: str | None, ranks: int, drawn: Drawn) -> str:
    """The partition `key`, or the one of as many parts as ranks that was cut by mini-batches like those `drawn`."""
    made = f"`gsplit partition {ds.path} --parts {ranks}` makes one"
    if key is None:
        parts = {name: ds.partition(name).num_parts for name in ds.partitions}
        fit = best([name for name, count in parts.items() if count == ranks], lambda name: _suits(ds, name, drawn))
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
    return key


def _suits(ds: Dataset, key: str, drawn: Drawn) -> tuple[bool, bool]:
    """Whether the partition `key` was cut by mini-batches, and by some like those `drawn`."""
    meta = ds.partition(key).meta
    presample, _ = meta["made_from"].get("presample") or (None, None)
    if presample not in ds.presamples or meta["config"]["weights"] not in ("presampled", "vertex"):
        return False, False
    return True, all(drawn.fits(ds.presample(presample)))


def _threads(ranks: int) -> int:
    """Processors of this host for each of its ranks, which are all `ranks` unless a launcher says otherwise."""
    return max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", ranks)))


def _digest(content: bytes) -> str:
    """A checksum by which ranks compare their inputs."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()
