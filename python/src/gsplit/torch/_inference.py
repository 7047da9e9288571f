"""Rows of all vertices by a model of one's own, layer by layer over all in-edges."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import numpy as np
import torch

from .._dataset import Dataset, open_dataset
from .._errors import DatasetError
from .._loader import _Path
from ._links import LinkLoader
from ._loader import Links, SplitLayer, SplitLoader

if TYPE_CHECKING:
    import numpy.typing as npt

Step = Callable[[int, torch.Tensor, SplitLayer], torch.Tensor]


class _Rows:
    """Rows of this rank's vertices in an unnamed temporary file, which the system caches as far as memory allows."""

    def __init__(self, folder: Path, vertices: npt.NDArray[np.int64], dim: int, dtype: torch.dtype) -> None:
        self._vertices = vertices
        self._dtype = dtype
        bits = torch.empty(0, dtype=dtype).element_size()
        shape = (len(vertices), dim * bits)
        self._bytes: npt.NDArray[np.uint8] = np.zeros(shape, np.uint8)
        if self._bytes.size:
            self._bytes = np.lib.format.open_memmap(folder / f"{id(self)}.npy", "w+", np.uint8, shape)

    def _places(self, vertices: torch.Tensor) -> npt.NDArray[np.int64]:
        places: npt.NDArray[np.int64] = np.searchsorted(self._vertices, vertices.cpu().numpy()).astype(np.int64)
        return places

    def write(self, vertices: torch.Tensor, rows: torch.Tensor) -> None:
        self._bytes[self._places(vertices)] = rows.cpu().contiguous().view(torch.uint8).numpy().reshape(len(rows), -1)

    def read(self, vertices: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(self._bytes[self._places(vertices)]).view(self._dtype)

    def all(self) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self._bytes)).view(self._dtype)


def inference(
    step: Step,
    ds: Dataset | _Path | LinkLoader,
    layers: int,
    *,
    features: Callable[[torch.Tensor], torch.Tensor] | None = None,
    batch_size: int = 4096,
    partition: str | None = None,
    device: str | torch.device = "cpu",
    folder: _Path | None = None,
    group: Any = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Vertices of this rank, int64 ascending, and the rows that the last of `layers` layers makes of them. Collective.

    `step(k, rows, layer)` is layer `k` of the model, from the features (0) up: from the rows that `layer` reads, of
    which the first `layer.num_dst` are those of its targets, it makes theirs. All in-edges are taken, so the result
    does not depend on a seed. Each vertex is computed once a layer, by the rank of its part. A `LinkLoader` in place of
    the dataset gives the graph that it draws from, without held-out edges.

    `features(n_id)` makes the rows that layer 0 reads; without it they are the dataset's features.

    `batch_size` vertices are computed at a time, on all ranks together. Rows of two layers lie in files of a temporary
    folder in `folder` (`TMPDIR`); memory holds a mini-batch, and the rows that are returned.

    ```python
    vertices, logits = inference(lambda k, rows, layer: model.layer(k, rows, layer), ds, layers=3)
    ```
    """
    links = None
    if isinstance(ds, LinkLoader):
        links, ds = Links(ds._held_out), ds.dataset
    ds = ds if isinstance(ds, Dataset) else open_dataset(ds)
    ds._expect_one_type("inference", "pass seeds=(TYPE, 'all') and the fanouts 'all' to SplitLoader")
    if features is None and not ds.has_features:
        raise DatasetError(ds.path, "has no features", "pass features=, which makes the rows that layer 0 reads")
    everything = np.arange(ds.num_vertices, dtype=np.uint32)
    with tempfile.TemporaryDirectory(dir=folder, prefix="gsplit-") as name:
        below: _Rows | None = None
        own = np.empty(0, np.int64)
        for k in range(layers):
            loader = SplitLoader(
                ds,
                "all",
                batch_size,
                partition=partition,
                seeds=everything,
                shuffle=False,
                features=below is None and features is None,
                labels=False,
                device=device,
                group=group,
                _links=links,
            )
            own, rows = loader.owned(), None
            for batch in loader:
                (layer,) = batch.layers
                with torch.no_grad():
                    if below is not None:
                        h = below.read(batch.n_id).to(device)
                    else:
                        h = batch.x if features is None else features(batch.n_id)
                    made = step(k, layer.read(h), layer)
                if rows is None:
                    rows = _Rows(Path(name), own, made.shape[1], made.dtype)
                rows.write(batch.seeds, made)
            below = rows
        if below is None:
            raise ValueError(f"layers {layers}, expected at least 1, and a dataset with vertices")
        return torch.from_numpy(own), below.all().clone()
