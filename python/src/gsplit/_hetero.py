"""Graphs of PyG and DGL as files that `gsplit convert` reads: arrays by type and by relation, or a pickle."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

_FILES = {"x": "node_feat", "y": "node_label", "train_mask": "train", "val_mask": "valid", "test_mask": "test"}
_NAME = re.compile(r"[\w.-]{1,128}", re.ASCII)


# Names of DGL's data sets, in PyG's terms.
_DGL = {"feat": "x", "label": "y"}


def write_graph(source: object, folder: Path) -> Path | None:
    """Writes the graph `source` of PyG or DGL into `folder`. Returns the path to convert, or None for others."""
    if hasattr(source, "canonical_etypes"):
        return write(_OfDgl(source), folder)
    if hasattr(source, "node_types") and hasattr(source, "edge_types"):
        return write(source, folder)
    if hasattr(source, "edge_index") and hasattr(source, "num_nodes"):
        import torch

        torch.save(source, folder / "data.pt")
        return folder / "data.pt"
    return None


class _OfDgl:
    """A graph of DGL in the terms of `HeteroData`."""

    def __init__(self, graph: Any) -> None:
        self._graph, self.node_types, self.edge_types = graph, graph.ntypes, graph.canonical_etypes

    def __getitem__(self, key: Any) -> dict[str, Any]:
        if isinstance(key, tuple):
            ends = [_array(end, f"{key}") for end in self._graph.edges(etype=key)]
            return {"edge_index": np.stack(ends), **self._graph.edges[key].data}
        data = {_DGL.get(name, name): value for name, value in self._graph.nodes[key].data.items()}
        return {"num_nodes": self._graph.num_nodes(key), **data}


def write(data: Any, folder: Path) -> Path:
    """Writes `data` into `folder`, which is returned."""
    for relation in data.edge_types:
        for name in relation:
            if not _NAME.fullmatch(name) or "___" in name:
                raise ValueError(
                    f"type or relation {name!r}: expected 1 to 128 letters, digits, _, - or ., without ___"
                )
        edges = _array(data[relation].get("edge_index"), f"{relation}.edge_index")
        if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
            raise ValueError(f"{relation}.edge_index: {edges.dtype} {edges.shape}, expected integers [2, edges]")
        _save(folder / "___".join(relation) / "edge_index.npy", edges.astype(np.int64, copy=False))
        _warn_of([f"{relation}.{key}" for key, _ in data[relation].items() if key != "edge_index"])
    for name in data.node_types:
        store = data[name]
        count = store["num_nodes"] if isinstance(store, dict) else store.num_nodes if len(store) else None
        if count is None:
            raise ValueError(f"vertices of {name}: expected x, or their number as data[{name!r}].num_nodes")
        _save(folder / name / "num_nodes.npy", np.array([count], np.int64))
        for key, value in store.items():
            if key == "num_nodes":
                continue
            array = _array(value, f"{name}.{key}")
            if key not in _FILES and (array.dtype.kind not in "iufb" or array.shape[:1] != (count,)):
                _warn_of([f"{name}.{key}"])
                continue
            if key.endswith("_mask") and key in _FILES:
                if array.dtype != np.bool_ or array.shape != (count,):
                    raise ValueError(f"{name}.{key}: {array.dtype} {array.shape}, expected bool ({count},)")
                array = np.flatnonzero(array)
            elif array.dtype == np.bool_:
                array = array.astype(np.uint8)
            elif key == "y" and array.shape == (count, 1):
                array = array[:, 0]
            _save(folder / name / f"{_FILES.get(key, f'node_{key}')}.npy", array)
    return folder


def _array(value: Any, name: str) -> Any:
    try:
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except TypeError as error:
        raise TypeError(f"{name}: {error}; expected a tensor of numbers that NumPy has a type for") from error


def _save(path: Path, array: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.ascontiguousarray(array))


def _warn_of(names: list[str]) -> None:
    for name in names:
        warnings.warn(f"{name} is not read: a dataset has no columns of such edges or vertices", stacklevel=4)
