"""Mini-batches that a GPU samples, in a process that has the fake driver: `gpu_batches.py DATASET native|torch`.

The fake GPU's memory is the host's, so it can be read here. Prints how many mini-batches were those of the CPU.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

import gsplit
from gsplit import _epochs

FANOUTS, BATCH_SIZE = "4,all,3", 500


class Seen:
    """An array in the memory of the fake GPU, as one of NumPy's."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__ = array.__cuda_array_interface__


def arrays(batch: Any) -> Iterator[Any]:
    """All that a mini-batch has, on the host; vertices as int64."""

    def host(array: Any, ids: bool = False) -> Any:
        if isinstance(array, np.ndarray):
            return array
        seen = np.asarray(Seen(array))
        assert len(seen) == len(array)
        return seen.view(np.uint32).astype(np.int64) if ids else seen

    yield from (host(batch.n_id, True), *(rows for rows, _ in batch.x), batch.y, *(batch.hits or []))
    for layer in batch.layers:
        yield from (host(array) for array in (layer.indptr, layer.indices, layer.e_id))
        yield host(layer.src, True)
        yield np.array(layer.num_dst)


def native(ds: gsplit.Dataset) -> Iterator[tuple[list[Any], list[Any]]]:
    """Mini-batches of the extension's loaders, of a single rank, and of one whose part has few seeds."""

    def never(*_: Any) -> None:
        raise AssertionError("nothing crosses")

    options: dict[str, Any] = {"batch_size": BATCH_SIZE, "drop_last": False, "shuffle": True, "seed": 3, "blocks": True}
    options |= {"edge_ids": True, "draw_by": None, "features": True, "load_features": False, "from_disk": False}
    options |= {"widen": True, "labels": True, "threads": 2, "prefetch": 2}
    of_few = np.where(np.arange(ds.num_vertices) % 300 == 0, 1, 0).astype(np.uint16)
    ranks: list[dict[str, Any]] = [
        {"cached": np.arange(0, ds.num_vertices, 2, dtype=np.uint32)},
        {"rank": 1, "ranks": 2, "owners": of_few, "exchange": never},
    ]
    for rank in ranks:
        cpu, *gpus = (
            _epochs.loader(ds, FANOUTS, ds.split("train"), **options, **rank, **place)
            for place in ({}, {"gpu": 0}, {"gpu": 0, "pinned": True})
        )
        for gpu in gpus:
            for epoch in range(4):
                for one, other in zip(cpu.epoch(epoch), _epochs.mini_batches(ds, gpu.epoch(epoch))):
                    yield list(arrays(one)), list(arrays(other))


def split(ds: gsplit.Dataset) -> Iterator[tuple[list[Any], list[Any]]]:
    """The tensors of `SplitLoader`, where torch, which finds no GPU, is made to leave them in the fake one's memory."""
    import torch

    import gsplit.torch
    from gsplit.torch._gpu import OnGpu

    as_tensor = torch.as_tensor

    def placed(array: Any, device: Any = None) -> Any:
        return torch.from_numpy(np.asarray(Seen(array))) if hasattr(array, "__len__") and device else as_tensor(array)

    torch.as_tensor = placed
    _epochs.memory_for = lambda *_: {}
    _epochs.on_device = lambda torch, batches, device: (batch.pin_memory().to("cpu") for batch in batches)
    torch.Tensor.pin_memory = lambda tensor: tensor
    cpu = gsplit.torch.SplitLoader(ds, FANOUTS, BATCH_SIZE)
    gpu = gsplit.torch.SplitLoader(ds, FANOUTS, BATCH_SIZE, device="cuda", topology="device", parallelism="data")

    def tensors(batch: Any) -> list[Any]:
        layers = [
            [layer.indptr, layer.indices, layer.edge_ids, layer.src, layer.dst, layer.edge_index]
            for layer in batch.layers
        ]
        found = [batch.x, batch.y, batch.n_id, batch.seeds, *(tensor for layer in layers for tensor in layer)]
        return [tensor.numpy().copy() for tensor in found]

    for one, other in zip(cpu, gpu):
        assert not isinstance(other.n_id, OnGpu)
        yield tensors(one), tensors(other)


def main() -> None:
    if sys.argv[2] == "native":
        # Torch, as far as it is asked for memory.
        cuda = SimpleNamespace(empty_cache=lambda: print("torch gives back"))
        sys.modules["torch"] = SimpleNamespace(cuda=cuda)  # type: ignore[assignment]
    ds, task = gsplit.open(sys.argv[1]), sys.argv[2]
    count = 0
    for one, other in (native if task == "native" else split)(ds):
        assert [array.dtype for array in one] == [array.dtype for array in other]
        for expected, found in zip(one, other):
            np.testing.assert_array_equal(found, expected)
        count += 1
    if task == "native":
        # The fake driver complains unless the loaders have changed the current device of this thread, torch's.
        ctypes.CDLL("libcuda.so").cuCtxSynchronize()
    print(count)


if __name__ == "__main__":
    try:
        main()
    except gsplit.DatasetError as error:
        sys.exit(f"refused: {error}")
