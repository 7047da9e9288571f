"""Multi-label targets, stored as one bit a class and unpacked when they are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class MultiLabels:
    """A boolean matrix `[num_vertices, num_classes]`: does vertex `v` have class `c`?

    `labels[key]` takes whatever indexes the rows of a NumPy array and unpacks those rows alone; `numpy.asarray(labels)`
    unpacks all of them.
    """

    def __init__(
        self, packed: npt.NDArray[np.uint8], num_classes: int, known: npt.NDArray[np.uint8] | None = None
    ) -> None:
        self.known = None if known is None else MultiLabels(known, num_classes)
        """Whether vertex `v` has a value for class `c`, as a matrix of the same shape; `None` if all have.

        A cell without a value is False in `labels` and in `labels.known`.
        """
        self.packed = packed
        """The stored bits, uint8 `[num_vertices, ceil(num_classes / 8)]`, a memmap; the low bit is the first class."""
        self.shape = (packed.shape[0], num_classes)
        """`(num_vertices, num_classes)`."""
        self.dtype = np.dtype(np.bool_)
        """What indexing gives: bool."""

    def __len__(self) -> int:
        """Number of vertices."""
        return len(self.packed)

    def __getitem__(self, rows: Any) -> npt.NDArray[np.bool_]:
        """The unpacked rows: bool `[..., num_classes]`."""
        if isinstance(rows, tuple):
            raise TypeError("labels are indexed only by vertex: write labels[rows][:, classes]")
        bits = np.unpackbits(self.packed[rows], axis=-1, count=self.shape[1], bitorder="little")
        return np.asarray(bits).view(np.bool_)

    def floats(self, rows: Any = slice(None)) -> npt.NDArray[np.float32]:
        """The unpacked rows as float32 `[..., num_classes]`: 0, 1, or NaN for a cell without a value."""
        values = self[rows].astype(np.float32)
        if self.known is not None:
            values[~self.known[rows]] = np.nan
        return values

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All rows, unpacked."""
        if copy is False:
            raise ValueError("labels are stored as bits: unpacking them makes a copy")
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def __repr__(self) -> str:
        """Its size."""
        return f"<gsplit.MultiLabels: {self.shape[0]} vertices, {self.shape[1]} classes>"
