"""Rows and gradients between ranks, by torch.distributed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from .._batches import Tensors

if TYPE_CHECKING:
    from .. import _native


def place(group: Any = None) -> tuple[int, int]:
    """This process's rank and how many there are: 0 of 1 without torch.distributed."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


@contextmanager
def together(what: str) -> Iterator[None]:
    """Says in one line that a collective, which does `what`, has failed."""
    try:
        yield
    except RuntimeError as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConnectionError(f"rank {dist.get_rank()}, which {what} the others: {line}") from None


class Messages:
    """Carries bytes between the ranks, on a group of its own: sampling waits neither for rows nor for gradients."""

    def __init__(self, group: Any) -> None:
        ranks = None if group is None else dist.get_process_group_ranks(group)
        self._group: Any = dist.new_group(ranks, backend="gloo")

    def __call__(self, send: npt.NDArray[np.uint8], to: list[int], of: list[int]) -> npt.NDArray[np.uint8]:
        """Sends `to[r]` bytes of `send` to each rank r, and returns the `of[r]` bytes received from each."""
        came = torch.empty(sum(of), dtype=torch.uint8)
        dist.all_to_all_single(came, torch.from_numpy(send), of, to, group=self._group)
        received: npt.NDArray[np.uint8] = came.numpy()
        return received

    def check_alike(self, **options: Any) -> None:
        """Refuses `options` that are others on another rank. Collective."""
        found: list[Any] = [None] * dist.get_world_size(self._group)
        with together("makes a loader with"):
            dist.all_gather_object(found, options, group=self._group)
        for name, value in found[0].items():
            for rank, theirs in enumerate(found):
                if theirs[name] != value:
                    both = f"{name} is {value} on rank 0 and {theirs[name]} on rank {rank}"
                    raise ValueError(f"{both}: all ranks make the same loader")


def _exchanged(parts: list[torch.Tensor], counts: list[Any], group: Any) -> list[torch.Tensor]:
    """The rows that come for each of `parts`, of which `counts` go to each rank and come from each. One collective.

    They cross as bytes: every backend has these, whatever the types.
    """
    widths = [math.prod(part.shape[1:]) * part.element_size() for part in parts]
    came = [part.new_empty((sum(of), *part.shape[1:])) for part, (_, of) in zip(parts, counts)]
    if sum(widths) == 0:
        return came
    send, receive = ([part.contiguous().reshape(-1).view(torch.uint8) for part in rows] for rows in (parts, came))
    # The bytes of each part to and from each rank.
    to, of = ([[n * width for n in count[way]] for count, width in zip(counts, widths)] for way in (0, 1))

    def by_rank(rows: list[torch.Tensor], lengths: list[list[int]]) -> list[torch.Tensor]:
        return [piece for rank in zip(*map(torch.Tensor.split, rows, lengths)) for piece in rank]

    # The bytes of a rank are adjacent; with one part they are already.
    outgoing = send[0] if len(parts) == 1 else torch.cat(by_rank(send, to))
    incoming = receive[0] if len(parts) == 1 else outgoing.new_empty(sum(map(len, receive)))
    with together("exchanges rows with"):
        dist.all_to_all_single(incoming, outgoing, *([sum(n) for n in zip(*ways)] for ways in (of, to)), group=group)
    if len(parts) > 1:
        pieces = by_rank(receive, of)
        for piece, found in zip(pieces, incoming.split([len(piece) for piece in pieces])):
            piece.copy_(found)
    return came


class Read(torch.autograd.Function):  # type: ignore[misc]
    """A rank's rows, then the received rows; backwards, gradients return to their ranks and are added in rank order."""

    @staticmethod
    def forward(ctx: Any, moved: list[Moved], *rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """`moved` says for each of `rows` what goes to others and what comes."""
        ctx.moved, ctx.own = moved, [len(tensor) for tensor in rows]
        sent = [tensor.index_select(0, part.asked) for tensor, part in zip(rows, moved)]
        came = _exchanged(sent, [part.counts for part in moved], moved[0].group)
        return tuple(torch.cat(pair) for pair in zip(rows, came))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The transpose."""
        wanted = [k for k, is_wanted in enumerate(ctx.needs_input_grad[1:]) if is_wanted]
        back = [gradients[k][ctx.own[k] :] for k in wanted]
        home = _exchanged(back, [ctx.moved[k].counts[::-1] for k in wanted], ctx.moved[0].group)
        found: list[torch.Tensor | None] = [None] * len(gradients)
        for k, rows in zip(wanted, home):
            found[k] = gradients[k][: ctx.own[k]].index_add(0, ctx.moved[k].asked, rows)
        return None, *found


@dataclass(eq=False)
class Moved(Tensors):
    """The rows of one frontier that move between ranks."""

    asked: torch.Tensor
    """int64: rows that go to other ranks, by rank."""
    counts: tuple[list[int], list[int]]
    """Rows to each rank, and from each."""
    group: Any

    @classmethod
    def of(cls, moved: _native.Moved, group: Any) -> Moved:
        """Converts the extension's `moved`."""
        return cls(torch.from_numpy(moved.asked), (moved.sent, moved.received), group)


def read(moved: Moved | None, rows: tuple[torch.Tensor, ...]) -> Any:
    """Each of `rows` followed by received rows: a tuple, or the only one. Unchanged if no rows move."""
    if moved is not None:
        rows = Read.apply([moved] * len(rows), *rows)
    return rows if len(rows) > 1 else rows[0]


def sum_gradients(module: torch.nn.Module | Iterable[torch.nn.Parameter], group: Any = None) -> None:
    """Sums the gradients of all parameters over the ranks: each then has the global mini-batch's. Collective.

    A parameter that has a gradient on only some ranks counts as zeros on the others; one that has none on any stays
    without. All gradients of a type are one all-reduce; the host waits for it only if a parameter has no gradient here.
    """
    if place(group)[1] == 1:
        return
    given = module.parameters() if isinstance(module, torch.nn.Module) else module
    parameters = [parameter for parameter in given if parameter.requires_grad]
    kinds = sorted({(str(parameter.dtype), str(parameter.device)) for parameter in parameters})
    for kind in kinds:
        alike = [p for p in parameters if (str(p.dtype), str(p.device)) == kind]
        there = alike[0].new_ones(len(alike))
        for k, parameter in enumerate(alike):
            if parameter.grad is None:
                there[k] = 0
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in alike]
        flat = torch.cat([*(part.reshape(-1) for part in parts), there])
        with together("sums gradients with"):
            dist.all_reduce(flat, group=group)
        # How many ranks have a gradient follows the gradients.
        *sums, counts = flat.split([p.numel() for p in alike] + [len(alike)])
        for parameter, summed, count in zip(alike, sums, counts):
            if parameter.grad is not None or count > 0:
                parameter.grad = summed.view_as(parameter)
