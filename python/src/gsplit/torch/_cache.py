"""Which feature rows a device keeps, and the artifacts that fit a loader's mini-batches best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._artifacts import Presample
from .._dataset import Dataset
from .._errors import DatasetError


@dataclass(frozen=True)
class Drawn:
    """How a loader draws its mini-batches."""

    fanouts: str
    batch_size: int
    draw_by: str | None
    negatives: int | None

    def fits(self, presample: Presample) -> tuple[bool, ...]:
        """How well `presample` counts such mini-batches: the larger, the better."""
        config = presample.meta["config"]
        own = (config.get("negatives"), config.get("draw_by"), config.get("fanouts"), config.get("batch_size"))
        of_task = (own[0] is None) == (self.negatives is None)
        pairs = zip(own, (self.negatives, self.draw_by, self.fanouts, self.batch_size), strict=True)
        return (of_task, *(one == other for one, other in pairs))


def presample_like(ds: Dataset, drawn: Drawn) -> str:
    """The key of the presample that fits best. Refuses where there is none, or several fit equally."""
    keys = best(ds.presamples, lambda key: drawn.fits(ds.presample(key)))
    if len(keys) != 1:
        there = f"has several presamples: {', '.join(keys)}" if keys else "has no presample that says which are hot"
        remedy = "pass presample=KEY" if keys else f"`gsplit presample {ds.path}` makes one, or leave out cache="
        raise DatasetError(ds.path, there, remedy)
    return keys[0]


def best(keys: list[str], rank: Callable[[str], Any]) -> list[str]:
    """Returns the `keys` that have the highest rank."""
    ranks = {key: rank(key) for key in keys}
    return [key for key in keys if ranks[key] == max(ranks.values())]


def hottest(ds: Dataset, presample: str, count: int) -> npt.NDArray[np.uint32]:
    """The `count` vertices whose rows `presample` loads most, hottest first."""
    loads = ds.presample(presample).input
    # Of equals the first, as everywhere.
    order = np.argsort(-loads.astype(np.int64), kind="stable")[:count]
    return order.astype(np.uint32)


def num_rows(ds: Dataset, cache: str | int, widened: bool) -> int:
    """Rows that fit in `cache`, `widened` to float32 or as they are stored."""
    wanted = f"cache {cache!r}, expected a number of bytes or a percentage of the rows, e.g. '20%'"
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
