"""Feature rows: an uncompressed Arrow IPC file, mapped.

The file has record batches of 16384 rows (the last may be shorter), each with its values in one piece. So one batch is
a NumPy matrix without copying; several are not, and a gather goes batch by batch: all rows of one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._arrow import columns_of, one_line, open_arrow
from ._errors import damaged

_SHIFT = 14
ROWS_PER_BATCH = 1 << _SHIFT
"""Rows of every record batch but the last."""

_STORED = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i8": np.int8}
_ARROW = {"f32": "float", "f16": "halffloat", "bf16": "uint16", "i8": "int8"}


class FeatureBatch(NamedTuple):
    """One record batch, in place."""

    start: int
    """The vertex of its first row."""
    values: npt.NDArray[Any]
    """`[rows, dim]` as stored: float32, float16, uint16 (bf16: the upper half of a float32) or int8."""
    scale: npt.NDArray[np.float32] | None
    """Only for i8: float32 `[rows]`; a row's features are `scale * values`."""

    def to_float32(self, rows: Any = slice(None)) -> npt.NDArray[np.float32]:
        """The features of `rows` (all of them), float32 `[..., dim]`, in memory of their own."""
        values: npt.NDArray[Any] = self.values[rows]
        if self.scale is not None:
            values = values * np.asarray(self.scale[rows])[..., np.newaxis]
        elif values.dtype == np.uint16:
            values = np.left_shift(values, 16, dtype=np.uint32).view(np.float32)
        # Copy if the values still belong to the file.
        return values.astype(np.float32, copy=values.base is not None)


class Features:
    """The feature matrix `[num_vertices, dim]`.

    `features[key]` gives float32 rows, whatever the stored type, for a vertex, a slice, an array of vertices of any
    shape, or a boolean mask. It always copies; `batches` and `array` give what is stored, where it lies.
    """

    def __init__(self, path: Path, num_rows: int, dim: int, dtype: str) -> None:
        self._origin = (path, num_rows, dim, dtype)
        self._path = path
        self.shape = (num_rows, dim)
        """`(num_vertices, dim)`."""
        self.dtype = dtype
        """How values are stored: `f32`, `f16`, `bf16` or `i8`."""
        if dtype not in _STORED:
            raise damaged(path, f"expected features of type {', '.join(_STORED)}, found {dtype}")
        self._reader = open_arrow(path)
        expected = f"feat: {_ARROW[dtype]}[{dim}]" + (", scale: float" if dtype == "i8" else "")
        found = columns_of(self._reader, path)
        if found != expected:
            raise damaged(path, f"expected columns {expected}, found {found}")
        expected_batches = -(-num_rows // ROWS_PER_BATCH)
        if self._reader.num_record_batches != expected_batches:
            found_batches = self._reader.num_record_batches
            raise damaged(path, f"expected {expected_batches} record batches of 16384 rows, found {found_batches}")
        self._batches: list[FeatureBatch | None] = [None] * expected_batches

    def __len__(self) -> int:
        """Number of vertices."""
        return self.shape[0]

    def __getitem__(self, rows: Any) -> npt.NDArray[np.float32]:
        """The features of `rows`: float32 `[dim]` of one vertex, `[..., dim]` of several."""
        if isinstance(rows, slice):
            return self._range(*rows.indices(len(self)))
        if isinstance(rows, tuple):
            raise TypeError("features are indexed only by vertex: write features[rows][:, columns]")
        vertices = self._vertices(rows)
        if vertices.ndim == 0:
            batch, row = divmod(int(vertices), ROWS_PER_BATCH)
            return self._batch(batch).to_float32(row)
        return self._gather(vertices.ravel()).reshape((*vertices.shape, self.shape[1]))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All rows as float32, in memory of their own."""
        if copy is False:
            raise ValueError("all features as one float32 matrix are a copy: use .array(copy=False) or .batches()")
        return self[:].astype(np.float32 if dtype is None else dtype, copy=False)

    def batches(self) -> Iterator[FeatureBatch]:
        """The record batches in order, none of them copied."""
        return (self._batch(index) for index in range(len(self._batches)))

    def array(self, copy: bool | None = None) -> npt.NDArray[Any]:
        """The stored values `[num_vertices, dim]`: float32, float16, uint16 (bf16) or int8 (a row times its `scale`).

        Up to 16384 vertices lie in one piece and are not copied. More are, into memory of `num_vertices * dim` values;
        `copy=False` raises ValueError instead.
        """
        empty = np.empty((0, self.shape[1]), _STORED[self.dtype])
        return _joined([batch.values for batch in self.batches()], empty, copy)

    @property
    def scale(self) -> npt.NDArray[np.float32] | None:
        """The factor of each row of `i8` features, float32 `[num_vertices]`; `None` for other types."""
        if self.dtype != "i8":
            return None
        scales = [batch.scale for batch in self.batches() if batch.scale is not None]
        return _joined(scales, np.empty(0, np.float32), None)

    def __reduce__(self) -> tuple[type[Features], tuple[Path, int, int, str]]:
        """Pickles as the path: another process maps the file again."""
        return Features, self._origin

    def __repr__(self) -> str:
        """Its size and type."""
        return f"<gsplit.Features: {self.shape[0]} rows of {self.shape[1]} {self.dtype} values>"

    def _vertices(self, rows: Any) -> npt.NDArray[np.int64]:
        """Vertices from 0 to n - 1 for an index as NumPy takes it."""
        index = np.asarray(rows)
        n = len(self)
        if index.dtype == np.bool_:
            if index.shape != (n,):
                raise IndexError(f"mask of shape {index.shape}, expected ({n},)")
            return np.flatnonzero(index)
        if index.size > 0 and index.dtype.kind not in "iu":
            raise IndexError(f"index of type {index.dtype}, expected vertices, a slice or a mask")
        if index.size > 0 and (int(index.min()) < -n or int(index.max()) >= n):
            worst = index.max() if index.max() >= n else index.min()
            raise IndexError(f"vertex {worst}, expected one below {n}")
        vertices = index.astype(np.int64)
        return np.where(vertices < 0, vertices + n, vertices)

    def _gather(self, vertices: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        out = np.empty((len(vertices), self.shape[1]), np.float32)
        batch_of = vertices >> _SHIFT
        order = np.argsort(batch_of, kind="stable")
        starts = np.flatnonzero(np.diff(batch_of[order], prepend=-1))
        for start, end in zip(starts, [*starts[1:], len(order)]):
            places = order[start:end]
            batch = self._batch(int(batch_of[places[0]]))
            out[places] = batch.to_float32(vertices[places] & (ROWS_PER_BATCH - 1))
        return out

    def _range(self, start: int, stop: int, step: int) -> npt.NDArray[np.float32]:
        if step != 1:
            return self._gather(np.arange(start, stop, step, dtype=np.int64))
        stop = max(start, stop)
        out = np.empty((stop - start, self.shape[1]), np.float32)
        for index in range(start >> _SHIFT, -(-stop // ROWS_PER_BATCH)):
            batch = self._batch(index)
            first, last = max(start, batch.start), min(stop, batch.start + len(batch.values))
            out[first - start : last - start] = batch.to_float32(slice(first - batch.start, last - batch.start))
        return out

    def _batch(self, index: int) -> FeatureBatch:
        known = self._batches[index]
        if known is None:
            known = self._batches[index] = self._read_batch(index)
        return known

    def _read_batch(self, index: int) -> FeatureBatch:
        import pyarrow as pa

        rows = min(ROWS_PER_BATCH, len(self) - index * ROWS_PER_BATCH)
        try:
            batch = self._reader.get_batch(index)
            batch.validate()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise damaged(self._path, f"record batch {index} cannot be read ({one_line(error)})") from error
        if batch.num_rows != rows:
            raise damaged(self._path, f"record batch {index} has {batch.num_rows} rows, expected {rows}")
        lists = batch.column(0)
        if lists.null_count or lists.values.null_count or (self.dtype == "i8" and batch.column(1).null_count):
            raise damaged(self._path, f"record batch {index} has nulls, expected none")
        values = lists.values.to_numpy(zero_copy_only=True).reshape(rows, self.shape[1])
        scale = batch.column(1).to_numpy(zero_copy_only=True) if self.dtype == "i8" else None
        return FeatureBatch(index * ROWS_PER_BATCH, values, scale)


def _joined(parts: list[npt.NDArray[Any]], empty: npt.NDArray[Any], copy: bool | None) -> npt.NDArray[Any]:
    """The parts as one array: the only part itself, or a copy."""
    if len(parts) > 1 and copy is False:
        raise ValueError(f"the rows are in {len(parts)} pieces: use .batches(), or allow a copy")
    if len(parts) > 1:
        return np.concatenate(parts)
    only = parts[0] if parts else empty
    return only.copy() if copy else only
