"""Vertices of several types, each with features of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

import numpy as np
import numpy.typing as npt
import torch


class VertexTypes:
    """Types of vertices that share one range of ids: the vertices of a type, ascending, are the rows of its table.

    `column` has the type of each vertex, a number from 0.

    ```python
    types = VertexTypes(ds.columns["type"])
    paper, author = torch.nn.Linear(128, 64), torch.nn.Embedding(types.counts[1], 64)
    h = types.encode(batch.n_id, [lambda rows: paper(features[rows]), author])
    ```
    """

    def __init__(self, column: npt.ArrayLike) -> None:
        """Numbers the rows of each type: 16 bytes a vertex."""
        types = np.asarray(column)
        if types.ndim != 1 or not np.issubdtype(types.dtype, np.integer):
            raise ValueError(f"types {types.dtype} {list(types.shape)}, expected a whole number for each vertex")
        if len(types) and types.min() < 0:
            raise ValueError(f"vertex {types.argmin()} has type {types.min()}, expected types from 0")
        counts = np.bincount(types)
        order = np.argsort(types, kind="stable")
        rows = np.empty(len(types), np.int64)
        rows[order] = np.arange(len(types)) - np.repeat(counts.cumsum() - counts, counts)
        self.counts: list[int] = counts.tolist()
        """Vertices of each type: the rows of its table."""
        self._types = torch.from_numpy(types.astype(np.int64))
        self._rows = torch.from_numpy(rows)

    def split(self, n_id: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each type int64 positions in `n_id`, and the rows of these vertices in the table of the type."""
        vertices = n_id.cpu()
        types, rows = self._types[vertices], self._rows[vertices]
        found = []
        for kind in range(len(self.counts)):
            at = (types == kind).nonzero().ravel()
            found.append((at.to(n_id.device), rows[at].to(n_id.device)))
        return found

    def encode(self, n_id: torch.Tensor, encoders: Sequence[Callable[[torch.Tensor], torch.Tensor]]) -> torch.Tensor:
        """A row for each vertex of `n_id`: `encoders[t](rows)` makes those of type `t` of rows of its table.

        All encoders are called, also for no rows, and make rows of one width. Gradients flow back to them.
        """
        if len(encoders) != len(self.counts):
            raise ValueError(f"{len(encoders)} encoders, expected one for each of {len(self.counts)} types")
        by_type = self.split(n_id)
        made = torch.cat([encoder(rows) for encoder, (_, rows) in zip(encoders, by_type)])
        return torch.empty_like(made).index_copy(0, torch.cat([at for at, _ in by_type]), made)
