"""Tables in memory, written as Parquet: of pandas, polars or pyarrow, dicts of arrays, an edge index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def is_table(value: object) -> bool:
    """Whether `value` is a table that `write` accepts, not a path."""
    if isinstance(value, str):
        return False
    return isinstance(value, Mapping) or _is_frame(value) or hasattr(value, "__array__")


def _is_frame(value: object) -> bool:
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__dataframe__")


def write(given: dict[str, Any], folder: Path) -> dict[str, Path]:
    """Writes the tables of `edges` and `nodes` into `folder` and returns their paths. pyarrow is imported here."""
    edges, nodes = given.get("edges"), given.get("nodes")
    is_index = hasattr(edges, "__array__") and not _is_frame(edges)
    if is_index and isinstance(nodes, Mapping) and "id" not in nodes:
        given = {**given, "nodes": {"id": np.arange(len(next(iter(nodes.values()), ()))), **nodes}}
    return {name: _write(value, folder / f"{name}.parquet") for name, value in given.items()}


def _write(value: Any, path: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Store only the file's own types, without the writer's schema.
        pq.write_table(_table(value), path, store_schema=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        expected = "a path, a table of pandas, polars or pyarrow, or a dict of arrays that are equally long"
        raise TypeError(f"{path.stem}: {' '.join(str(error).split())}; expected {expected}") from error
    return path


def _table(value: Any) -> Any:
    import pyarrow as pa

    if isinstance(value, pa.Table):
        return value
    if isinstance(value, Mapping):
        return pa.table({str(name): _column(column) for name, column in value.items()})
    if type(value).__module__.partition(".")[0] == "pandas":
        # An index with a name is a column, row numbers are none.
        return pa.Table.from_pandas(value, preserve_index=any(name is not None for name in value.index.names))
    if hasattr(value, "__arrow_c_stream__"):
        return pa.table(value)
    if hasattr(value, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        return from_dataframe(value)
    edges = _array(value)
    if edges.ndim != 2 or len(edges) != 2:
        raise ValueError(f"an array of shape {edges.shape}, expected sources and targets: [2, m]")
    return pa.table({"source": edges[0], "target": edges[1]})


def _column(value: Any) -> Any:
    """A column; a matrix becomes one of lists of equal length."""
    import pyarrow as pa

    array = _array(value)
    if array.ndim < 2:
        return pa.array(value if isinstance(value, (list, tuple)) else array)
    rows = array.reshape(len(array), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])


def _array(value: Any) -> Any:
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
