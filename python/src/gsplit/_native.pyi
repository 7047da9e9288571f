"""The extension that draws mini-batches (python/native)."""

import os
from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

def partition(
    sources: npt.NDArray[np.uint32],
    targets: npt.NDArray[np.uint32],
    num_vertices: int,
    *,
    parts: int,
    epsilon: float,
    seed: int,
    quality: str,
    threads: int | None,
) -> npt.NDArray[np.int64]:
    """The part of each vertex."""

@final
class Moved:
    """Rows that move between ranks: of this rank those at `asked` go to others."""

    asked: npt.NDArray[np.int64]
    sent: list[int]
    received: list[int]

@final
class Pairs:
    """Pairs of vertices as rows of the seeds and of the received rows: each edge is followed by its negatives."""

    ends: npt.NDArray[np.int64]
    e_id: npt.NDArray[np.int64]
    moved: Moved | None

@final
class GpuArray:
    """An array that a GPU has sampled, in its memory: int32, the bits of uint32 for vertices, or int64."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __len__(self) -> int: ...

@final
class Layer:
    """A layer: an int32 CSC whose columns are the first `num_dst` rows of `src`; and the rows that move below it.

    Where a GPU samples, its arrays but for `factors`, and `n_id` of its mini-batch, are `GpuArray`s.
    """

    indptr: Any
    indices: Any
    e_id: Any
    factors: npt.NDArray[np.float32] | None
    src: Any
    num_dst: int
    moved: Moved | None

@final
class ByType:
    """A layer between vertices of several types: lists of an item for each relation or type."""

    edge_index: list[npt.NDArray[np.int64]]
    src: list[npt.NDArray[np.int64]]
    num_dst: list[int]
    moved: list[Moved]

@final
class Batch:
    """A mini-batch, or a rank's part of one. A subgraph has `edge_index`, blocks have `layers` or, by type, `typed`."""

    step: int
    num_seeds: int
    n_id: Any
    input_id: npt.NDArray[np.int64]
    edge_index: npt.NDArray[np.int64] | None
    e_id: npt.NDArray[np.int64] | None
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]
    layers: list[Layer]
    pairs: Pairs | None
    typed: list[ByType]
    x: list[tuple[npt.NDArray[Any], bool]]
    hits: list[npt.NDArray[np.int64]] | None
    y: npt.NDArray[Any] | None

@final
class Epoch:
    """The mini-batches of an epoch, in order."""

    def __iter__(self) -> Epoch: ...
    def __next__(self) -> Batch: ...
    def close(self) -> None: ...

@final
class Loader:
    """Draws the mini-batches of a dataset."""

    def __new__(
        cls,
        path: str | os.PathLike[str],
        fanouts: str,
        seeds: npt.NDArray[np.uint32] | None,
        *,
        batch_size: int,
        drop_last: bool,
        shuffle: bool,
        seed: int,
        blocks: bool,
        edge_ids: bool,
        draw_by: str | None,
        features: bool,
        load_features: bool,
        from_disk: bool,
        widen: bool,
        labels: bool,
        threads: int | None,
        prefetch: int,
        rank: int = 0,
        ranks: int = 1,
        owners: npt.NDArray[np.uint16] | None = None,
        split: bool = False,
        exchange: Callable[[npt.NDArray[np.uint8], list[int], list[int]], npt.NDArray[np.uint8]] | None = None,
        cached: npt.NDArray[np.uint32] | None = None,
        held_out: Mapping[str, float] | None = None,
        negatives: int | None = None,
        gpu: int | None = None,
        pinned: bool = False,
        allocate: Callable[[int], npt.NDArray[np.float32]] | None = None,
    ) -> Loader: ...
    def __len__(self) -> int: ...
    def rows(self, vertices: npt.NDArray[np.uint32]) -> list[tuple[npt.NDArray[Any], bool]]: ...
    def held_out(self, split: str) -> npt.NDArray[np.int64]: ...
    def epoch(self, number: int) -> Epoch: ...
    def end(self) -> None: ...
