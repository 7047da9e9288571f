"""Partitions of graphs in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import _epochs


def cut(
    edge_index: Any,
    parts: int,
    *,
    num_vertices: int | None = None,
    epsilon: float = 0.03,
    seed: int = 0,
    quality: str = "default",
    threads: int | None = None,
) -> npt.NDArray[np.int64]:
    """The part of each vertex of the graph with the edges `edge_index`, integers `[2, m]`."""
    edges = np.asarray(edge_index)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(f"edge_index: expected integers of shape [2, m], got {edges.dtype} of {list(edges.shape)}")
    least, most = (int(edges.min()), int(edges.max())) if edges.size else (0, -1)
    count = most + 1 if num_vertices is None else num_vertices
    if least < 0 or most >= count or count >= 2**32:
        raise ValueError(f"edge_index: vertices from {least} to {most}, expected 0 to num_vertices - 1, below 2^32")
    _epochs.check_counts(1, 0, threads, seed)
    sources, targets = (np.ascontiguousarray(ends, dtype=np.uint32) for ends in edges)
    options = {"epsilon": epsilon, "seed": seed, "quality": quality, "threads": threads}
    made: npt.NDArray[np.int64] = _epochs.extension().partition(sources, targets, count, parts=parts, **options)
    return made
