"""Mini-batches of edges, for link prediction by models of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from .._dataset import Dataset, open_dataset
from .._loader import Fanouts, _Path
from ._exchange import Moved, read
from ._loader import Links, Parallelism, RankBatch, RankLoader

if TYPE_CHECKING:
    from .. import _native

# The defaults and the limits of the command line.
_HELD_OUT = {"valid_edges": 0.05, "test_edges": 0.1, "edge_seed": 0}
_MOST_NEGATIVES = 1000


class LinkLoader(RankLoader["LinkBatch"]):
    """This rank's part of every mini-batch of edges, sampled by all ranks together in Rust, one mini-batch ahead.

    A mini-batch is `batch_size` training edges u → v of all ranks together, and for each of them `negatives` pairs
    u → v' with v' drawn from all vertices of v's kind. Every rank has an equal portion of these pairs; the model
    computes rows of their ends, which `batch.read` brings. The edges of the mini-batch and their reverses are not
    sampled for it, on any rank. Held-out edges are not in the graph. `parallelism` is as for `SplitLoader`.

    Losses and gradients of a model without dropout are those of one process, up to rounding, if the loss of a rank is
    the sum over its pairs divided by `batch.num_pairs` and gradients are summed (`sum_gradients`).

    Edges, draws and counts are those of `gsplit train --task link` with the same options.

    ```python
    for batch in LinkLoader("ds", [15, 10], batch_size=1024):
        h = batch.x
        for conv, layer in zip(convs, batch.layers):
            rows = layer.read(h)
            h = conv((rows, rows[: layer.num_dst]), layer.edge_index)
        source, target = batch.read(h)[batch.pairs]
        scores = (source * target).sum(1)
        loss = F.binary_cross_entropy_with_logits(scores, batch.labels, reduction="sum") / batch.num_pairs
    ```
    """

    def __init__(
        self,
        ds: Dataset | _Path,
        fanouts: Fanouts,
        batch_size: int = 1024,
        *,
        negatives: int = 1,
        valid_edges: float = _HELD_OUT["valid_edges"],
        test_edges: float = _HELD_OUT["test_edges"],
        edge_seed: int = 0,
        parallelism: Parallelism = "split",
        partition: str | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        features: bool = True,
        load_features: bool | Literal["disk"] = False,
        dtype: Literal["stored", "float32"] = "float32",
        draw_by: str | None = None,
        threads: int | None = None,
        prefetch: int = 1,
        device: str | torch.device = "cpu",
        cache: str | int | None = None,
        presample: str | None = None,
        group: Any = None,
    ) -> None:
        """Prepares to draw from `ds`, a dataset or its path, on all ranks of `group` (the default one). Collective:
        every rank makes the same loader, but for `threads`, `device`, `cache` and `load_features`.

        `valid_edges` and `test_edges` are the shares of the edges that are held out, chosen by `edge_seed`. A dataset
        that came with a split of links keeps it; these three are then left out. The other options are those of
        `SplitLoader`.

        Memory: the graph without held-out edges, 12 bytes an edge and 8 a vertex; 4 bytes a training edge.
        """
        ds = ds if isinstance(ds, Dataset) else open_dataset(ds)
        ds._expect_one_type("LinkLoader", "SplitLoader draws mini-batches of vertices by type")
        held_out = {"valid_edges": valid_edges, "test_edges": test_edges, "edge_seed": edge_seed}
        _check(ds, negatives, held_out)
        super().__init__(
            ds,
            fanouts,
            batch_size,
            parallelism=parallelism,
            partition=partition,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            features=features,
            load_features=load_features,
            labels=False,
            dtype=dtype,
            draw_by=draw_by,
            threads=threads,
            prefetch=prefetch,
            device=device,
            cache=cache,
            presample=presample,
            group=group,
            _links=Links(held_out, negatives),
        )
        self._held_out = held_out
        self.negatives = negatives
        """Pairs that are drawn as no edges for each edge."""

    def held_out(self, split: Literal["valid", "test"]) -> torch.Tensor:
        """int64 `[2, pairs]`: sources and targets, as vertices, of the edges that are held out for `split`.

        All of them, on every rank. Of two directions of an edge one stands for both.
        """
        return torch.from_numpy(self._loader.held_out(split))

    def _batch(self, batch: _native.Batch) -> LinkBatch:
        found: Any = batch.pairs
        pairs = torch.from_numpy(found.ends)
        labels = torch.zeros(pairs.shape[1])
        labels[:: 1 + self.negatives] = 1
        return LinkBatch(
            **self._fields(batch),
            pairs=pairs,
            labels=labels,
            num_pairs=batch.num_seeds * (1 + self.negatives),
            edge_ids=torch.from_numpy(found.e_id),
            _moved=found.moved and Moved.of(found.moved, self._group),
        )


@dataclass
class LinkBatch(RankBatch):
    """A rank's part of a mini-batch of edges. Its seeds are the vertices whose last rows this rank computes."""

    pairs: torch.Tensor
    """int64 `[2, pairs]`: source and target of each of this rank's pairs, as rows of what `read` returns. An edge, then
    its negatives, and so on."""
    labels: torch.Tensor
    """float32 `[pairs]`: 1 for edges, 0 for negatives."""
    num_pairs: int
    """Pairs of the whole mini-batch, on all ranks."""
    edge_ids: torch.Tensor
    """int64: the position of each edge of `pairs` in `ds.indices`, without negatives."""
    _moved: Moved | None
    """Rows that move between ranks, if any do."""

    def read(self, *rows: torch.Tensor) -> Any:
        """The rows that `pairs` are of: those of this rank's seeds, then those of other ranks. Collective.

        Each of `rows` is `[seeds, ...]`, of any type; with several a tuple is returned. Gradients flow back to the rank
        that has the row. Where nothing crosses the rows are returned as they are.
        """
        return read(self._moved, rows)


def _check(ds: Dataset, negatives: int, held_out: Mapping[str, float]) -> None:
    """Refuses the same options as the command line."""
    if not 1 <= negatives <= _MOST_NEGATIVES:
        raise ValueError(f"negatives {negatives}, expected 1 to {_MOST_NEGATIVES}")
    if ds.manifest.get("links") is not None:
        for name, value in held_out.items():
            if value != _HELD_OUT[name]:
                raise ValueError(f"{name} {value}: the dataset has a split of links of its own: leave it out")
    valid, test, seed = held_out["valid_edges"], held_out["test_edges"], held_out["edge_seed"]
    if not (0 <= valid < 1 and 0 <= test < 1 and valid + test < 1):
        raise ValueError(f"valid_edges {valid} and test_edges {test}, expected shares from 0 on, together below 1")
    if not 0 <= seed < 2**64:
        raise ValueError(f"edge_seed {seed}, expected one from 0 to 2^64 - 1")
