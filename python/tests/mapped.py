"""Proof that an array is in a mapped file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest


def lies_in(array: npt.NDArray[Any], path: Path) -> bool:
    """Whether the memory of `array` is a mapping of the file at `path`, as the kernel sees it."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs /proc/self/maps")
    assert array.flags.c_contiguous
    start = array.ctypes.data
    end = start + array.nbytes
    for line in maps.read_text().splitlines():
        if line.endswith(f" {path.resolve()}"):
            low, high = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
            if low <= start and end <= high:
                return True
    return False
