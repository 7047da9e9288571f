"""Hands a dataset to SciPy, PyTorch Geometric, DGL and GraphBolt, each imported when it is asked for.

PyTorch has no read-only tensors: what it shares is mapped copy-on-write, so that a write neither crashes nor reaches
the file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ._errors import DatasetError
from ._labels import MultiLabels
from ._npy import Array

if TYPE_CHECKING:
    from ._dataset import Dataset

_INT32_END = 2**31
_VERTICES_AT_ONCE = 1 << 20
_MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
# Unsigned types that PyTorch lacks, and where they fit; u8 is checked.
_WIDER = {"u2": np.int32, "u4": np.int64}


def to_scipy(ds: Dataset, values: str | None) -> Any:
    """`Dataset.to_scipy`."""
    ds._expect_one_type("to_scipy", "relation_edges has the edges of each relation")
    sparse = _import("scipy.sparse", "scipy", "to_scipy")
    name = "weight" if values is None and "weight" in ds.edge_columns else values
    data = np.ones(ds.num_edges, np.float32) if name is None else ds.edge_columns[name]
    if data.ndim != 1:
        raise ValueError(f"edge column `{name}` has {data.shape[1]} values an edge, a matrix takes one")
    index = np.int32 if max(ds.num_vertices, ds.num_edges) < _INT32_END else np.int64
    indptr, indices = _signed(ds.indptr, index), _signed(ds.indices, index)
    matrix = sparse.csc_matrix((data, indices, indptr), shape=(ds.num_vertices, ds.num_vertices), copy=False)
    matrix.has_sorted_indices = True
    return matrix


def to_pyg(ds: Dataset, features: bool, sparse: bool) -> Any:
    """`Dataset.to_pyg`."""
    torch = _import("torch", "torch", "to_pyg")
    pyg = _import("torch_geometric.data", "torch_geometric", "to_pyg")
    if ds.types:
        return _to_hetero(torch, ds, pyg.HeteroData(), features, sparse)
    data = pyg.Data()
    data.num_nodes = ds.num_vertices
    if sparse:
        weight = "weight" in ds.edge_columns
        entries = _column(torch, ds, "weight") if weight else torch.ones(ds.num_edges, dtype=torch.float32)
        indptr, indices = (torch.from_numpy(_signed(array, np.int64)) for array in _writable_topology(ds))
        size = (ds.num_vertices, ds.num_vertices)
        data.adj_t = torch.sparse_csr_tensor(indptr, indices, entries, size=size)
    else:
        data.edge_index = torch.from_numpy(_edge_index(ds))
        if "weight" in ds.edge_columns:
            data.edge_weight = _column(torch, ds, "weight")
    for name in ds.edge_columns:
        if name != "weight":
            data["edge_attr" if name == "feat" else f"edge_{name}"] = _column(torch, ds, name)
    for name, tensor in _node_tensors(torch, ds, features):
        _set(data, name, tensor)
    return data


def _set(store: Any, name: str, tensor: Any) -> None:
    """Gives a tensor of vertices the name that PyG has for it."""
    key = {"feat": "x", "label": "y"}.get(name, name)
    store[f"node_{key}" if key in store else key] = tensor


def _to_hetero(torch: Any, ds: Dataset, data: Any, features: bool, sparse: bool) -> Any:
    """Fills the `HeteroData` of a dataset with several types of vertices."""
    if sparse:
        ds._expect_one_type("adj_t", "leave sparse out: a HeteroData has an edge_index of each relation")
    for name, of in ds.types.items():
        data[name].num_nodes = of.count
        if features and name in ds.features_by_type:
            data[name].x = torch.from_numpy(ds.features_by_type[name][:])
    for name, tensor in _node_tensors(torch, ds, False):
        # Vertices of other types have no label, are in no split, and have 0 in each column.
        is_given = tensor.ne(0)
        if name == "label":
            is_given = ~tensor.isnan() if tensor.is_floating_point() else tensor.ge(0)
        for of in ds.types.values():
            if is_given[of.vertices].any():
                _set(data[of.name], name, tensor[of.vertices])
    for relation in ds.relations:
        data[relation].edge_index = torch.from_numpy(ds.relation_edges(relation))
    return data


class Tensors:
    """A dataset's arrays as torch tensors of the types that PyTorch indexes and computes losses with.

    Each is made when it is asked for, and copied.
    """

    def __init__(self, ds: Dataset) -> None:
        self._ds = ds
        self._torch = _import("torch", "torch", "to_torch")

    def split(self, name: str) -> Any:
        """The vertices of the split `train`, `valid` or `test`, ascending: int64."""
        return self._torch.from_numpy(self._ds.split(name).astype(np.int64))

    @cached_property
    def labels(self) -> Any:
        """int64 `[n]`, -1 = unlabelled; multi-label float32 `[n, num_classes]`; of numbers float32 `[n]`.

        NaN in the floats is a missing label.
        """
        labels = self._ds.labels
        if isinstance(labels, MultiLabels):
            return self._torch.from_numpy(labels.floats())
        return self._torch.from_numpy(labels.astype(np.float32 if self._ds.numeric_label else np.int64))

    @cached_property
    def features(self) -> Any:
        """float32 `[n, dim]`."""
        return self._torch.from_numpy(self._ds.features[:])


def to_dgl(ds: Dataset, features: bool, idtype: Literal["int32", "int64"]) -> Any:
    """`Dataset.to_dgl`."""
    ds._expect_one_type("to_dgl", "relation_edges has the edges of each relation")
    torch = _import("torch", "torch", "to_dgl")
    dgl = _import("dgl", "dgl", "to_dgl")
    if idtype not in ("int32", "int64"):
        raise ValueError(f"idtype {idtype!r}, expected int32 or int64")
    if idtype == "int32" and max(ds.num_vertices, ds.num_edges) >= _INT32_END:
        raise ValueError(f"{ds.num_vertices} vertices and {ds.num_edges} edges do not fit int32, expected idtype int64")
    indptr, indices = (torch.from_numpy(_signed(array, np.dtype(idtype).type)) for array in _writable_topology(ds))
    edge_ids = torch.empty(0, dtype=indices.dtype)
    graph = dgl.graph(("csc", (indptr, indices, edge_ids)), num_nodes=ds.num_vertices, idtype=indices.dtype)
    for name, tensor in _node_tensors(torch, ds, features):
        graph.ndata[name] = tensor
    for name in ds.edge_columns:
        graph.edata[name] = _column(torch, ds, name)
    return graph


def to_graphbolt(ds: Dataset) -> Any:
    """`Dataset.to_graphbolt`."""
    ds._expect_one_type("to_graphbolt", "relation_edges has the edges of each relation")
    torch = _import("torch", "torch", "to_graphbolt")
    graphbolt = _import("dgl.graphbolt", "dgl", "to_graphbolt")
    index = np.int32 if ds.num_vertices < _INT32_END else np.int64
    indptr, indices = _writable_topology(ds)
    return graphbolt.fused_csc_sampling_graph(
        torch.from_numpy(_signed(indptr, np.int64)),
        torch.from_numpy(_signed(indices, index)),
        edge_attributes={name: _column(torch, ds, name) for name in ds.edge_columns} or None,
    )


def _import(module: str, package: str, use: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"Dataset.{use} needs {package}: run `pip install {package}` ({error})") from error


def _signed(array: Array, index: Any) -> Array:
    """Ids or offsets as the signed type `index`: the same memory where the width is the same, else a copy."""
    same_width = array.dtype.itemsize == np.dtype(index).itemsize
    return array.view(index) if same_width else array.astype(index)


def _writable_topology(ds: Dataset) -> tuple[Array, Array]:
    indptr = ds._map("topology/indptr.npy", "<u8", ds.indptr.shape, "c")
    return indptr, ds._map("topology/indices.npy", "<u4", ds.indices.shape, "c")


def _edge_index(ds: Dataset) -> npt.NDArray[np.int64]:
    """Sources and targets, int64 `[2, m]`, using little additional memory."""
    edges = np.empty((2, ds.num_edges), np.int64)
    edges[0] = ds.indices
    for start in range(0, ds.num_vertices, _VERTICES_AT_ONCE):
        end = min(start + _VERTICES_AT_ONCE, ds.num_vertices)
        offsets = ds.indptr[start : end + 1].view(np.int64)
        edges[1, offsets[0] : offsets[-1]] = np.repeat(np.arange(start, end), np.diff(offsets))
    return edges


def _node_tensors(torch: Any, ds: Dataset, features: bool) -> Iterator[tuple[str, Any]]:
    """Features, labels, masks and node columns under their names."""
    if features and ds.has_features:
        yield "feat", Tensors(ds).features
    if ds.has_labels:
        yield "label", Tensors(ds).labels
    for split, vertices in ds.splits.items():
        mask = np.zeros(ds.num_vertices, np.bool_)
        mask[vertices] = True
        yield _MASKS[split], torch.from_numpy(mask)
    for name in ds.columns:
        yield name, _tensor(torch, ds, f"nodes/{name}.npy", ds.columns.open(name, "c"))


def _column(torch: Any, ds: Dataset, name: str) -> Any:
    return _tensor(torch, ds, f"edges/{name}.npy", ds.edge_columns.open(name, "c"))


def _tensor(torch: Any, ds: Dataset, name: str, array: Array) -> Any:
    """A tensor on the memory of `array`, or of the next wider signed type where PyTorch lacks its unsigned one."""
    kind = array.dtype.str[1:]
    if kind == "u8":
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise DatasetError(ds.path / name, "has values from 2^63 on, which PyTorch has no type for", "leave it out")
        return torch.from_numpy(array.view(np.int64))
    return torch.from_numpy(array.astype(_WIDER[kind]) if kind in _WIDER else array)
