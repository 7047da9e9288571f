"""Sampling on a GPU: which loaders can, and their arrays as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

if TYPE_CHECKING:
    from .. import _native

Topology = Literal["host", "device", "pinned"]


def sampling(topology: Topology, device: torch.device, parallelism: str, draw_by: str | None) -> dict[str, Any]:
    """The extension's options for where the graph is and who samples, as the command line's `--topology`."""
    if topology not in ("host", "device", "pinned"):
        raise ValueError(f"topology {topology!r}, expected host, device or pinned")
    if topology == "host":
        return {}
    problem = None
    if device.type != "cuda":
        problem = f"a GPU samples, the device is {device}: pass device='cuda', or leave topology out"
    elif draw_by is not None:
        problem = "only the CPU draws with draw_by: leave one of the two out"
    elif parallelism == "split":
        problem = "only the CPU samples under 'split': pass parallelism='owned' or 'data', or leave topology out"
    if problem is not None:
        raise ValueError(f"topology {topology!r}: {problem}")
    ordinal = device.index
    if ordinal is None:
        # Without a GPU the extension reports the missing library or device.
        ordinal = torch.cuda.current_device() if torch.cuda.is_available() else 0
    return {"gpu": ordinal, "pinned": topology == "pinned"}


def tensor(array: Any, ids: bool = False) -> Any:
    """An array of the extension's as a tensor, or as what becomes one when it moves. `ids` are vertices."""
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else OnGpu(array, ids)


class OnGpu:
    """An array that the sampler has left in a GPU's memory. It becomes a tensor in torch's own memory when it moves."""

    def __init__(self, array: _native.GpuArray, ids: bool) -> None:
        """Vertices, with `ids`, are the bits of uint32; they become int64."""
        self._array = array
        self._ids = ids

    def to(self, device: torch.device, non_blocking: bool = False) -> torch.Tensor:
        """A copy on `device`, by torch's current stream; the array has to be there until that is done."""
        seen = torch.as_tensor(self._array, device=device)
        # Not as torch.uint32, which PyTorch has since 2.3.
        return seen.long().bitwise_and_(0xFFFFFFFF) if self._ids else seen.clone()

    def pin_memory(self) -> OnGpu:
        """Itself: it is not in the host's memory."""
        return self

    def record_stream(self, stream: Any) -> None:
        """Nothing: the memory is not torch's."""
