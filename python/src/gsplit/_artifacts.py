"""What gsplit derived from a dataset: pre-sample counters and partition maps.

Each lies in a folder `<kind>/<key>/` with the document `<kind>.json`, and records the checksums of the graph and of the
training split that it was made from. One of another graph is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _document
from ._document import Document
from ._errors import DatasetError, damaged
from ._npy import open_npy
from ._xxh3 import xxh3_128_medium

FORMAT_VERSION = 1
_TOPOLOGY = ("topology/indptr.npy", "topology/rows.npy", "topology/indices.npy")


@dataclass(frozen=True, eq=False)
class Presample:
    """How often training touches each vertex and edge, counted by sampling `num_batches` mini-batches."""

    key: str
    """Its name in the dataset."""
    meta: dict[str, Any]
    """The content of `presample.json`; `meta["config"]` has fanouts, batch size, epochs and seed."""
    num_batches: int
    """Mini-batches that were sampled: counters divided by this are expectations for one mini-batch."""
    input: npt.NDArray[np.uint32]
    """uint32 `[num_vertices]`, a memmap: mini-batches in which the vertex's feature row is loaded."""
    appear: npt.NDArray[np.uint32]
    """uint32 `[num_vertices]`, a memmap: appearances at any layer."""
    work: npt.NDArray[np.uint32]
    """uint32 `[num_vertices]`, a memmap: sampled in-edges charged to the vertex."""
    edge: npt.NDArray[np.uint32]
    """uint32 `[num_edges]`, a memmap, in the order of `Dataset.indices`: times the edge was sampled."""

    def __repr__(self) -> str:
        """Its key and configuration."""
        return f"<gsplit.Presample {self.key!r}: {self.num_batches} mini-batches, {self.meta.get('config')}>"


@dataclass(frozen=True, eq=False)
class Partition:
    """The part of every vertex, and the order in which each part's vertices deserve a place in a cache."""

    key: str
    """Its name in the dataset."""
    meta: dict[str, Any]
    """The content of `partition.json`; `meta["config"]` says how it was asked for."""
    report: dict[str, Any]
    """Quality of the partition: edge cut, imbalance, balance."""
    part_sizes: tuple[int, ...]
    """Vertices of each part."""
    assignment: npt.NDArray[np.uint16]
    """uint16 `[num_vertices]`, a memmap: the part of each vertex."""
    cache_order: npt.NDArray[np.uint32]
    """uint32 `[num_vertices]`, a memmap: the vertices of part 0 by falling benefit of caching, then of part 1 ..."""

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return len(self.part_sizes)

    def vertices(self, part: int) -> npt.NDArray[np.uint32]:
        """The vertices of `part` by falling benefit of caching them, uint32, a view of `cache_order`."""
        if not 0 <= part < self.num_parts:
            raise IndexError(f"part {part}, expected one below {self.num_parts}")
        start = sum(self.part_sizes[:part])
        return self.cache_order[start : start + self.part_sizes[part]]

    def __repr__(self) -> str:
        """Its key and parts."""
        return f"<gsplit.Partition {self.key!r}: {self.num_parts} parts>"


def keys(dataset: Path, kind: str) -> list[str]:
    """The names of the artifacts below `kind`, sorted."""
    return sorted(
        document.parent.name
        for document in dataset.glob(f"{kind}/*/{kind}.json")
        if not document.parent.name.startswith(".")
    )


def open_presample(dataset: Path, manifest: Document, key: str) -> Presample:
    """Opens the presample `key` of the dataset that `manifest` describes."""
    folder, meta = _open(dataset, manifest, "presample", key)
    n, m = manifest.count("num_vertices"), manifest.count("num_edges")
    return Presample(
        key=key,
        meta=meta.content,
        num_batches=meta.count("num_batches"),
        input=open_npy(folder / "input.npy", "<u4", (n,)),
        appear=open_npy(folder / "appear.npy", "<u4", (n,)),
        work=open_npy(folder / "work.npy", "<u4", (n,)),
        edge=open_npy(folder / "edge.npy", "<u4", (m,)),
    )


def open_partition(dataset: Path, manifest: Document, key: str) -> Partition:
    """Opens the partition `key` of the dataset that `manifest` describes."""
    folder, meta = _open(dataset, manifest, "partition", key)
    n = manifest.count("num_vertices")
    report = meta.section("report").content
    sizes = report.get("part_sizes")
    if not isinstance(sizes, list) or not all(isinstance(size, int) and size >= 0 for size in sizes) or sum(sizes) != n:
        raise damaged(meta.path, f"expected part sizes that add up to {n} vertices, found {sizes!r:.80}")
    return Partition(
        key=key,
        meta=meta.content,
        report=report,
        part_sizes=tuple(sizes),
        assignment=open_npy(folder / "assignment.npy", "<u2", (n,)),
        cache_order=open_npy(folder / "cache_order.npy", "<u4", (n,)),
    )


def _open(dataset: Path, manifest: Document, kind: str, key: str) -> tuple[Path, Document]:
    known = keys(dataset, kind)
    folder = dataset / kind / key
    if key in (f"tried/{name}" for name in keys(dataset / "tried", kind)):
        folder = dataset / "tried" / kind / key.removeprefix("tried/")
    elif key not in known:
        there = f"there are {', '.join(known)}; or " if known else ""
        raise DatasetError(dataset, f"has no {kind} `{key}`", f"{there}run `gsplit {kind}`")
    meta = _document.read(folder / f"{kind}.json", f"gsplit-{kind}", FORMAT_VERSION)
    made_from = meta.section("made_from")
    train = made_from.content.get("train")
    same_graph = made_from.text("topology") == topology_checksum(manifest)
    if not same_graph or (train is not None and train != manifest.file_checksum("splits/train.npy")):
        what = "training split" if same_graph else "graph"
        problem = f"made from `{made_from.text('dataset')}`, whose {what} is not the one of {dataset} now"
        raise DatasetError(folder, problem, f"make it again with `gsplit {kind} --force`")
    return folder, meta


def topology_checksum(manifest: Document) -> str:
    """One digest for the graph: of the digests of the files in `topology/`, a line each."""
    parts = [manifest.file_checksum(name) for name in _TOPOLOGY]
    joined = "\n".join(part for part in parts if part is not None).encode()
    try:
        return f"xxh3:{xxh3_128_medium(joined):032x}"
    except ValueError as error:
        raise damaged(manifest.path, f"expected checksums of 37 characters for topology/, found {parts}") from error
