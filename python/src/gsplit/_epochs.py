"""Code that the loaders share: the extension, an epoch's mini-batches, their way to a GPU."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._dataset import Dataset
from ._errors import DatasetError

if TYPE_CHECKING:
    from . import _native

EPOCH_END = 2**32


def extension() -> Any:
    """The extension `gsplit._native`."""
    try:
        return importlib.import_module("gsplit._native")
    except ImportError as error:
        remedy = "`pip install ./python` builds it where Rust is installed, `make wheel` makes a wheel of it"
        raise ImportError(f"mini-batches need the extension gsplit._native: {remedy} ({error})") from error


def loader(ds: Dataset, *place: Any, **options: Any) -> _native.Loader:
    """The extension's loader of `ds`."""
    native = extension()
    try:
        made: _native.Loader = native.Loader(ds.path, *place, **options)
    except RuntimeError as error:
        raise _refused(ds, error) from error
    return made


def check_counts(batch_size: int, prefetch: int, threads: int | None, seed: int) -> None:
    """Refuses numbers that no loader takes."""
    for name, value, least in (("batch_size", batch_size, 1), ("prefetch", prefetch, 0), ("threads", threads, 1)):
        if value is not None and value < least:
            raise ValueError(f"{name} {value}, expected at least {least}")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed {seed}, expected one from 0 to 2^64 - 1")


def check_draw_by(ds: Dataset, column: str | None) -> None:
    """Refuses a name that is not an edge column to draw by, before anything is read."""
    columns = ds.manifest.get("edge_columns", {})
    choices = [name for name in columns if columns[name]["width"] == 1]
    if column is None or column in choices:
        return
    others = ", ".join(name for name in columns if name not in choices)
    listed = " or ".join(map(repr, choices))
    expected = f"expected {listed}" if choices else "the dataset has no column of one number an edge"
    raise ValueError(f"draw_by {column!r}, {expected}" + (f" ({others}: several numbers an edge)" if others else ""))


def reading(load_features: bool | str) -> dict[str, bool]:
    """The extension's options for where feature rows are read from."""
    if load_features not in (False, True, "disk"):
        raise ValueError(f"load_features {load_features!r}, expected False, True or 'disk'")
    from_disk = load_features == "disk"
    return {"load_features": bool(load_features) and not from_disk, "from_disk": from_disk}


class Epochs:
    """Counts the epochs of a loader: each pass draws the next one."""

    epoch = 1
    """The epoch that the next pass draws."""

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch that the next pass draws, from 0; each pass after it draws the next one."""
        if not 0 <= epoch < EPOCH_END:
            raise ValueError(f"epoch {epoch}, expected one from 0 to 2^32 - 1")
        self.epoch = epoch

    def _next_epoch(self) -> int:
        number = self.epoch
        self.epoch = (number + 1) % EPOCH_END
        return number


def mini_batches(ds: Dataset, epoch: _native.Epoch) -> Iterator[_native.Batch]:
    """The mini-batches of `epoch`, which ends with the pass."""
    process = os.getpid()
    try:
        while True:
            if os.getpid() != process:
                raise RuntimeError("this pass began before the fork, which copied none of its threads: begin another")
            try:
                batch = next(epoch, None)
            except RuntimeError as error:
                raise _refused(ds, error) from error
            if batch is None:
                return
            yield batch
    finally:
        if os.getpid() == process:
            epoch.close()


def memory_for(torch: Any, device: Any) -> dict[str, Any]:
    """The extension's option for where feature rows are gathered: for a GPU in pinned memory, which it copies from."""
    if device is None or device.type != "cuda":
        return {}

    def allocate(count: int) -> Any:
        try:
            return torch.empty(count, dtype=torch.float32, device="cpu", pin_memory=True).numpy()
        except RuntimeError as error:
            needed = f"the rows of a mini-batch need {4 * count} bytes of pinned memory"
            raise MemoryError(f"{needed}: pass a smaller batch_size or prefetch ({error})") from error

    return {"allocate": allocate}


def on_device(torch: Any, batches: Iterator[Any], device: Any) -> Iterator[Any]:
    """The mini-batches on `device`. A GPU copies one while it computes with the one before."""
    if device.type != "cuda":
        yield from (batch.to(device) for batch in batches)
        return
    side = torch.cuda.Stream(device)
    for batch in batches:
        with torch.cuda.stream(side):
            # Feature rows are in pinned memory already; PyTorch keeps the copies of the rest until they are read.
            moved = batch.pin_memory().to(device, non_blocking=True)
            copied = side.record_event()
        stream = torch.cuda.current_stream(device)
        stream.wait_event(copied)
        moved.record_stream(stream)
        try:
            yield moved
        finally:
            # Rows of a later mini-batch are gathered into the memory of `batch` once nothing holds it.
            copied.synchronize()


def rows_as_tensor(torch: Any, rows: Any, bf16: bool) -> Any:
    """Feature rows as torch has them: bf16 comes as its bits."""
    if bf16:
        return torch.from_numpy(rows.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(rows)


def _refused(ds: Dataset, error: RuntimeError) -> DatasetError:
    problem, remedy = (*error.args, "`gsplit verify` tells whether the dataset is damaged")[:2]
    return DatasetError(ds.path, problem, remedy)
