"""Opens Arrow IPC files, mapped. What pyarrow says of a damaged one becomes a `DatasetError`.

pyarrow is imported where it is first needed: that takes as long as importing all else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ._document import unreadable
from ._errors import damaged


def open_arrow(path: Path) -> Any:
    """A `pyarrow.RecordBatchFileReader` of the file at `path`, whose batches are mapped."""
    import pyarrow as pa

    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except pa.ArrowException as error:
        raise damaged(path, f"expected an Arrow file ({one_line(error)})") from error
    except OSError as error:
        raise unreadable(path, error) from error


def columns_of(reader: Any, path: Path) -> str:
    """Names and types of the columns, e.g. `feat: float[128], scale: float`."""
    import pyarrow as pa

    try:
        return ", ".join(f"{field.name}: {_plain(field.type)}" for field in reader.schema)
    except (pa.ArrowException, ValueError) as error:
        raise damaged(path, f"has a damaged schema ({one_line(error)})") from error


def one_line(error: Exception) -> str:
    """The message of an error without line breaks."""
    return " ".join(str(error).split())


def _plain(kind: Any) -> str:
    """A type without the name and the nullability of its items, which tools write differently."""
    import pyarrow as pa

    return f"{kind.value_type}[{kind.list_size}]" if pa.types.is_fixed_size_list(kind) else str(kind)
