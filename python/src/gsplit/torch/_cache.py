"""Which feature rows a device keeps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._dataset import Dataset
from .._errors import DatasetError


def hottest(
    ds: Dataset, cache: str | int, widened: bool, partition: str | None, rank: int, presample: str | None
) -> npt.NDArray[np.uint32]:
    """Vertices whose rows fit in `cache`, hottest first: of part `rank` of `partition`, or of all by `presample`."""
    count = _rows(ds, cache, widened)
    if partition is not None:
        return np.ascontiguousarray(ds.partition(partition).vertices(rank)[:count])
    keys = ds.presamples if presample is None else [presample]
    if len(keys) != 1:
        there = f"has several presamples: {', '.join(keys)}" if keys else "has no presample that says which are hot"
        remedy = "pass presample=KEY" if keys else f"`gsplit presample {ds.path}` makes one, or leave out cache="
        raise DatasetError(ds.path, there, remedy)
    loads = ds.presample(keys[0]).input
    # Of equals the first, as everywhere.
    order = np.argsort(-loads.astype(np.int64), kind="stable")[:count]
    return order.astype(np.uint32)


def _rows(ds: Dataset, cache: str | int, widened: bool) -> int:
    """Rows that fit."""
    wanted = f"cache {cache!r}, expected a number of bytes or a percentage of the rows, as '20%'"
    if isinstance(cache, str):
        share = cache[:-1].strip()
        try:
            percent = float(share) if cache.endswith("%") else -1.0
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise ValueError(wanted)
        return int(ds.num_vertices * percent / 100)
    if isinstance(cache, bool) or cache < 0:
        raise ValueError(wanted)
    row = ds.features[:1]
    width: int = row.shape[1] * (4 if widened else row.dtype.itemsize)
    return cache // max(1, width)
