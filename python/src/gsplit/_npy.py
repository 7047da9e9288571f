"""Maps `.npy` files. The header is compared with the expected one before anything is mapped."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ._document import unreadable
from ._errors import damaged

Array = npt.NDArray[Any]
_LONGEST_HEADER = 1 << 16
DESCRS = frozenset({"|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"})
"""NumPy's names of the types that columns have."""


def open_npy(path: Path, descr: str, shape: tuple[int, ...] | None, mode: Literal["r", "c"] = "r") -> Array:
    """The array at `path` as a memmap of type `descr` and shape `shape`, which is what the file must hold.

    A shape of `None` stands for one dimension of any length, and `(n, 1)` for `(n,)` as well: rows of one element may
    have either. Mode `c` gives memory that can be written to; the file stays as it is.
    """
    if descr not in DESCRS:
        raise damaged(path, f"has elements {descr!r:.80}, expected little-endian numbers")
    try:
        size = path.stat().st_size
        header, offset = _read_header(path)
    except OSError as error:
        raise unreadable(path, error) from error
    if header is None:
        raise damaged(path, "expected a .npy header, found none")
    if header.get("descr") != descr:
        raise damaged(path, f"expected elements {descr}, found {header.get('descr')!r:.80}")
    if shape is None:
        shape = _length_of(path, header.get("shape"))
    elif shape[1:] == (1,) and header.get("shape") == shape[:1]:
        shape = shape[:1]
    if header.get("shape") != shape or (header.get("fortran_order") is not False and len(shape) > 1):
        order = " in Fortran order" if header.get("fortran_order") else ""
        raise damaged(path, f"expected shape {shape}, found {header.get('shape')!r:.80}{order}")
    dtype = np.dtype(descr)
    expected = offset + math.prod(shape) * dtype.itemsize
    if size != expected:
        raise damaged(path, f"expected {expected} bytes for shape {shape}, found {size}")
    try:
        return np.memmap(path, dtype=dtype, mode=mode, offset=offset, shape=shape)
    except OSError as error:
        raise unreadable(path, error) from error


def _length_of(path: Path, shape: Any) -> tuple[int]:
    if isinstance(shape, tuple) and len(shape) == 1 and isinstance(shape[0], int) and shape[0] >= 0:
        return (shape[0],)
    raise damaged(path, f"expected one dimension, found shape {shape!r:.80}")


def _read_header(path: Path) -> tuple[dict[str, Any] | None, int]:
    """The content of the header (`None` if it is invalid) and the offset of the data."""
    with path.open("rb") as file:
        fixed = file.read(8)
        if fixed[:6] != b"\x93NUMPY" or fixed[6:7] not in (b"\x01", b"\x02", b"\x03"):
            return None, 0
        length = int.from_bytes(file.read(2 if fixed[6] == 1 else 4), "little")
        text = file.read(min(length, _LONGEST_HEADER))
        try:
            header = ast.literal_eval(text.decode().strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None, 0
        return (header if isinstance(header, dict) else None), file.tell()
