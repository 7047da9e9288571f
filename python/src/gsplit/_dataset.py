"""A dataset directory, opened for reading.

```text
arxiv/
  dataset.json                 the manifest
  topology/{indptr,indices}.npy, with several types of vertices rows.npy
  edges/<name>.npy             edge columns
  nodes/feat.arrow (feat.TYPE.arrow), nodes/label.npy, nodes/original_id.{npy,arrow}
  nodes/<name>.npy             node columns
  splits/{train,valid,test}.npy
  presample/<key>/, partition/<key>/
```
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _artifacts, _display, _document, _export, _types
from ._arrow import columns_of, one_line, open_arrow
from ._artifacts import Partition, Presample
from ._errors import DatasetError, damaged
from ._features import Features
from ._labels import MultiLabels
from ._npy import Array, open_npy
from ._types import AnyRelation, Relation, VertexType

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "gsplit-dataset"
FORMAT_VERSION = 2
_SPLITS = ("train", "valid", "test")


def open_dataset(path: str | os.PathLike[str]) -> Dataset:
    """Opens the dataset directory `path`.

    Reads the manifest, compares the length of every file with it and maps the topology. Raises `DatasetError`.
    """
    return Dataset(path)


class Dataset:
    """A graph with its features, labels and splits, as gsplit stores them. `n` vertices, `m` edges.

    Everything but the topology is opened when it is first asked for. A dataset pickles as its path, so it can be handed
    to worker processes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        """The directory."""
        document = self.path / "dataset.json"
        if not self.path.is_dir():
            raise DatasetError(self.path, "no such directory", "check the path")
        if not document.exists():
            remedy = "make one with `gsplit convert` or `gsplit generate`"
            raise DatasetError(self.path, "not a gsplit dataset (it has no dataset.json)", remedy)
        self._manifest = _document.read(document, FORMAT, FORMAT_VERSION)
        self.name: str = self._manifest.text("name")
        """Its name when it was made."""
        self.num_vertices: int = self._manifest.count("num_vertices")
        """`n`."""
        self.num_edges: int = self._manifest.count("num_edges")
        """`m`."""
        self.num_classes: int | None = self._manifest.optional_count("num_classes")
        """Number of classes, `None` without classes."""
        self.multi_label: bool = self._manifest.flag("multi_label")
        """Whether a vertex can have several classes."""
        self.numeric_label: bool = self._manifest.content.get("numeric_label") is True
        """Whether a vertex has a number to learn instead of a class."""
        self.indptr: npt.NDArray[np.uint64] = self._map("topology/indptr.npy", "<u8", (self.num_vertices + 1,))
        """uint64 `[n + 1]`, a memmap: the in-neighbours of `v` are `indices[indptr[v]:indptr[v + 1]]` (CSC)."""
        self.indices: npt.NDArray[np.uint32] = self._map("topology/indices.npy", "<u4", (self.num_edges,))
        """uint32 `[m]`, a memmap: in-neighbours, ascending within a vertex; with several types within each relation."""
        if self.indptr[0] != 0 or self.indptr[-1] != self.num_edges:
            problem = f"expected offsets from 0 to {self.num_edges}, found {self.indptr[0]} to {self.indptr[-1]}"
            raise damaged(self.path / "topology/indptr.npy", problem)

    @property
    def num_nodes(self) -> int:
        """`n`, as PyG and DGL call it."""
        return self.num_vertices

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of `dataset.json`: counts, types, files and how the dataset was made."""
        return self._manifest.content

    def in_neighbours(self, v: SupportsIndex) -> npt.NDArray[np.uint32]:
        """The in-neighbours of vertex `v` in their order: uint32 `[in-degree]`, a view of `indices`."""
        vertex = operator.index(v)
        if not 0 <= vertex < self.num_vertices:
            raise IndexError(f"vertex {vertex}, expected one from 0 to {self.num_vertices - 1}")
        return self.indices[int(self.indptr[vertex]) : int(self.indptr[vertex + 1])]

    @cached_property
    def types(self) -> dict[str, VertexType]:
        """The types of vertices by name, in the order of their ids; none if vertices have one type."""
        return _types.types_of(self._manifest)

    @cached_property
    def relations(self) -> list[Relation]:
        """The relations between the types: type of the sources, name, type of the targets."""
        return _types.relations_of(self._manifest)

    def relation_edges(self, relation: AnyRelation) -> npt.NDArray[np.int64]:
        """The edges of `relation`, given by its three names or by its own: int64 `[2, edges]`, sorted by target.

        Sources, then targets, as vertices of their types, which count from 0. A copy: 16 bytes an edge.
        """
        return _types.relation_edges(self, relation)

    @cached_property
    def edge_columns(self) -> Columns:
        """Edge columns by name, memmaps `[m]` or `[m, width]` in the order of `indices`.

        `weight` (float32) is the edge weight, `feat` holds edge features.
        """
        return Columns(self, "edges", "edge_columns", self.num_edges)

    @cached_property
    def columns(self) -> Columns:
        """Node columns other than features, labels and ids by name, memmaps `[n]` or `[n, width]`."""
        return Columns(self, "nodes", "columns", self.num_vertices)

    @cached_property
    def original_ids(self) -> npt.NDArray[np.uint64] | pa.ChunkedArray | None:
        """The id of each vertex in the raw input.

        uint64 `[n]` for numbers, a memmap unless they count from a first one; a pyarrow array of `n` strings, not
        copied, for strings; `None` when they are the dataset's own.
        """
        self._expect_whole("original ids")
        if self._manifest.flag("string_ids"):
            return self._string_ids(self._part("nodes/original_id.arrow", "original ids", "convert it again"))
        if "nodes/original_id.npy" not in self._manifest.section("files").content:
            first = self.manifest.get("first_id", 0)
            return np.arange(first, first + self.num_vertices, dtype=np.uint64) if first else None
        return self._map("nodes/original_id.npy", "<u8", (self.num_vertices,))

    @property
    def has_features(self) -> bool:
        """Whether there are features, of all vertices or of some types."""
        return self.manifest.get("features") is not None or bool(self._types_with_features)

    @cached_property
    def features(self) -> Features:
        """The features, float32 `[n, dim]` when indexed. Raises `DatasetError` when there are none."""
        self._expect_whole("features")
        self._expect_one_type("table of all features", "features_by_type has one of each type")
        remedy = "convert or generate it with --features random:D or --features fastrp:D"
        path = self._part("nodes/feat.arrow", "features", remedy)
        info = self._manifest.section("features")
        return Features(path, self.num_vertices, info.count("dim"), info.text("dtype"))

    @cached_property
    def features_by_type(self) -> dict[str, Features]:
        """The features of each type of vertices that has any: row i is that of its vertex i. Needs several types."""
        found = {}
        for name, info in self._types_with_features.items():
            path = self._part(f"nodes/feat.{name}.arrow", f"features of {name}", "make the dataset again")
            found[name] = Features(path, self.types[name].count, info.count("dim"), info.text("dtype"))
        return found

    @cached_property
    def _types_with_features(self) -> dict[str, _document.Document]:
        """The manifest's entry about the features of each type that has any."""
        types = _types.described(self._manifest, "vertices")
        return {of.text("name"): of.section("features") for of in types if of.content.get("features") is not None}

    @property
    def feature_names(self) -> list[str] | None:
        """The name of each value of a feature row; `None` unless the features are columns of a table."""
        return (self.manifest.get("features") or {}).get("names")

    @property
    def class_names(self) -> list[str] | None:
        """The name of each class; `None` when the input numbers them."""
        return self.manifest.get("class_names")

    @property
    def has_labels(self) -> bool:
        """Whether there are labels."""
        return self.num_classes is not None or self.numeric_label

    @cached_property
    def labels(self) -> npt.NDArray[np.int32] | npt.NDArray[np.float32] | MultiLabels:
        """The label of each vertex. Raises `DatasetError` when there are none.

        int32 `[n]`, a memmap, -1 = unlabelled; for multi-label targets a `MultiLabels`, bool `[n, num_classes]` when
        indexed, whose `known` says which cells have a value; for numbers to learn float32 `[n]`, a memmap, NaN =
        unlabelled.
        """
        self._expect_whole("labels")
        path = self._part("nodes/label.npy", "labels", "labels come with the raw graph")
        if self.numeric_label:
            return open_npy(path, "<f4", (self.num_vertices,))
        if not self.multi_label:
            return open_npy(path, "<i4", (self.num_vertices,))
        classes = self._manifest.count("num_classes")
        shape, known = (self.num_vertices, -(-classes // 8)), "nodes/label.known.npy"
        has_known = known in self._manifest.section("files").content
        return MultiLabels(open_npy(path, "|u1", shape), classes, self._map(known, "|u1", shape) if has_known else None)

    @cached_property
    def splits(self) -> dict[str, npt.NDArray[np.uint32]]:
        """The splits there are, of `train`, `valid` and `test`: vertices, ascending, uint32, memmaps."""
        files = self._manifest.section("files").content
        return {name: self._split(name) for name in _SPLITS if f"splits/{name}.npy" in files}

    def split(self, name: str) -> npt.NDArray[np.uint32]:
        """The vertices of the split `train`, `valid` or `test`, ascending: uint32, a memmap."""
        if name not in self.splits:
            there = ", ".join(self.splits) or "none"
            remedy = f"there is {there}; convert it with --schema split-name=NAME or --random-split TRAIN,VALID,TEST"
            raise DatasetError(self.path, f"has no {name} split", remedy)
        return self.splits[name]

    @property
    def presamples(self) -> list[str]:
        """The keys of the presamples there are, sorted."""
        return _artifacts.keys(self.path, "presample")

    def presample(self, key: str) -> Presample:
        """The counters of the presample `key`. One of another graph or training split is refused."""
        return _artifacts.open_presample(self.path, self._manifest, key)

    @property
    def partitions(self) -> list[str]:
        """The keys of the partitions there are, sorted."""
        return _artifacts.keys(self.path, "partition")

    def partition(self, key: str) -> Partition:
        """The partition `key`; `tried/KEY` is one that `plan` or `compare` made. One of another graph is refused."""
        return _artifacts.open_partition(self.path, self._manifest, key)

    def to_scipy(self, values: str | None = None) -> Any:
        """The adjacency matrix, of vertices of one type, as a `scipy.sparse.csc_matrix` `[n, n]`.

        Entry `(u, v)` is the edge from u to v.

        `values` names the edge column of the entries; without it they are `weight` where there is one and float32 ones
        (4 m bytes of memory) otherwise. SciPy wants offsets and indices in one signed type, so with m and n below 2^31
        `indices` is shared and `indptr` is copied to int32 (4 n bytes); from 2^31 edges on `indptr` is shared and
        `indices` copied to int64 (8 m bytes); from 2^31 vertices on too. What is shared cannot be written to.
        """
        return _export.to_scipy(self, values)

    def to_torch(self) -> _export.Tensors:
        """The splits, labels and features as torch tensors: `t = ds.to_torch(); t.labels[t.split("train")]`.

        `ds.split` and `ds.labels` are views of the files, uint32 and int32; PyTorch indexes with int64, and losses take
        that. So these are copies: 8 bytes a vertex.
        """
        return _export.Tensors(self)

    def to_pyg(self, features: bool = True, sparse: bool = False) -> Any:
        """A `torch_geometric.data.Data` of the whole graph; a `HeteroData` of one with several types of vertices.

        `edge_index` int64 `[2, m]`, sorted by target (16 m bytes, copied; sampling loaders may be told
        `is_sorted=True`). With `sparse`, in its place `adj_t`, a `torch.sparse_csr` tensor whose offsets are shared and
        whose indices are copied to int64 (8 m bytes); torch_sparse is not needed for either.

        `x` float32 `[n, dim]` (copied), `y` int64 `[n]` or, multi-label, float32 `[n, num_classes]`, NaN for a cell
        without a value, or float32 `[n]` of numbers, `train_mask`, `val_mask`, `test_mask`, `edge_weight` and
        `edge_attr` where there are such columns; node columns keep their names (`node_<name>` where that is taken),
        further edge columns are `edge_<name>`. Columns share memory with the file where torch has their type, and
        writing to them leaves the file alone.

        A `HeteroData` has these for each type, `edge_index` for each relation, and no `sparse`. A type has `x` if it
        has features, `y` if any of its vertices has a label, the masks of the splits that it is in, and the node
        columns that are not 0 for all its vertices.
        """
        return _export.to_pyg(self, features, sparse)

    def to_dgl(self, features: bool = True, idtype: Literal["int32", "int64"] = "int64") -> Any:
        """A DGL graph of vertices of one type, built from CSC without a COO copy. Edge ids are positions in `indices`.

        `idtype` int64 shares `indptr` and copies `indices` (8 m bytes); int32, for fewer than 2^31 vertices and edges,
        shares `indices` and copies `indptr` (4 n bytes).

        `ndata`: `feat` float32 `[n, dim]` (copied), `label` int64 `[n]` or, multi-label, float32 `[n, num_classes]`,
        NaN for a cell without a value, or float32 `[n]` of numbers, `train_mask`, `val_mask`, `test_mask` and the node
        columns; `edata`: the edge columns, all by their names.
        """
        return _export.to_dgl(self, features, idtype)

    def to_graphbolt(self) -> Any:
        """A GraphBolt `FusedCSCSamplingGraph` of the topology, with the edge columns as `edge_attributes`.

        `csc_indptr` int64 and, below 2^31 vertices, `indices` int32 share memory with the files, and so do edge columns
        whose type torch has; from 2^31 vertices on `indices` is copied to int64 (8 m bytes). Seeds must have the type
        of `indices`. Features and labels are not part of such a graph: `ds.features[:]` and `ds.labels` feed
        GraphBolt's `TorchBasedFeature`.
        """
        return _export.to_graphbolt(self)

    def __reduce__(self) -> tuple[type[Dataset], tuple[Path]]:
        """Pickles as the path: another process maps the files again."""
        return Dataset, (self.path,)

    def __repr__(self) -> str:
        """Its name and sizes."""
        return f"<gsplit.Dataset {self.name!r}: {self.num_vertices} vertices, {self.num_edges} edges>"

    def _repr_html_(self) -> str:
        """Shows the dataset and its parts as a table, for notebooks."""
        return _display.table(self)

    def _map(self, name: str, descr: str, shape: tuple[int, ...], mode: Literal["r", "c"] = "r") -> Array:
        return open_npy(self._part(name, name, "make the dataset again"), descr, shape, mode)

    def _expect_whole(self, what: str) -> None:
        """Refuses a shard, which has rows of only some vertices."""
        if "shard" in self.manifest:
            shard = self._manifest.section("shard")
            which = f"it is the shard of host {shard.count('host')} of {shard.count('hosts')}"
            raise DatasetError(self.path, f"has no {what} of all vertices", f"{which}: open what it was cut from")

    def _expect_one_type(self, what: str, remedy: str) -> None:
        """Refuses vertices of several types, which `what` does not know."""
        if self.types:
            raise DatasetError(self.path, f"has vertices of several types, for which there is no {what}", remedy)

    def _part(self, name: str, what: str, remedy: str) -> Path:
        """The path of a file that the manifest must list."""
        if name not in self._manifest.section("files").content:
            raise DatasetError(self.path, f"has no {what}", remedy)
        return self.path / name

    def _split(self, name: str) -> npt.NDArray[np.uint32]:
        path = self.path / f"splits/{name}.npy"
        vertices = open_npy(path, "<u4", None)
        if len(vertices) and vertices[-1] >= self.num_vertices:
            raise damaged(path, f"expected vertices below {self.num_vertices}, found {vertices[-1]}")
        return vertices

    def _string_ids(self, path: Path) -> pa.ChunkedArray:
        import pyarrow as pa

        reader = open_arrow(path)
        found = columns_of(reader, path)
        if found != "original_id: large_string":
            raise damaged(path, f"expected columns original_id: large_string, found {found}")
        try:
            table = reader.read_all()
            # Offsets and UTF-8 too: pyarrow follows offsets wherever they lead.
            table.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise damaged(path, f"cannot be read ({one_line(error)})") from error
        if table.num_rows != self.num_vertices or table.column(0).null_count:
            problem = (
                f"expected {self.num_vertices} ids, found {table.num_rows}, {table.column(0).null_count} of them null"
            )
            raise damaged(path, problem)
        return table.column(0)


class Columns(Mapping[str, Array]):
    """Columns by name; each is mapped when it is looked up."""

    def __init__(self, dataset: Dataset, folder: str, section: str, rows: int) -> None:
        self._dataset = dataset
        self._folder = folder
        self._rows = rows
        self._columns = dataset._manifest.section(section)

    def __getitem__(self, name: str) -> Array:
        """The column `name`, a read-only memmap."""
        if name not in self._columns.content:
            raise KeyError(f"{name}: expected one of {', '.join(self) or 'no column'}")
        return self.open(name)

    def open(self, name: str, mode: Literal["r", "c"] = "r") -> Array:
        """The column `name`; with mode `c` in memory that can be written to, without changing the file."""
        column = self._columns.section(name)
        shape = (self._rows, column.count("width"))
        return self._dataset._map(f"{self._folder}/{name}.npy", column.text("descr"), shape, mode)

    def __iter__(self) -> Iterator[str]:
        """The names, in the manifest's order."""
        return iter(self._columns.content)

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._columns.content)

    def __repr__(self) -> str:
        """The names."""
        return f"<gsplit.Columns: {', '.join(self) or 'none'}>"
