"""PyG and DGL take the graph. Skipped where torch is not installed: `make test-python` does not install it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import six_vertices as six
from mapped import lies_in

import gsplit

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("default")


def edges_of(sources: list[int], targets: list[int]) -> list[tuple[int, int]]:
    return sorted(zip(sources, targets))


@pytest.mark.parametrize("at_once", [1, 4, 1 << 20])
def test_pyg(golden: gsplit.Dataset, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr("gsplit._export._VERTICES_AT_ONCE", at_once)
    data = golden.to_pyg()
    assert data.validate() and data.num_nodes == 6 and data.num_edges == 9
    assert edges_of(*data.edge_index.tolist()) == sorted(six.EDGES)
    assert data.edge_index.dtype == torch.int64 and data.is_sorted(sort_by_row=False)
    assert data.x.dtype == torch.float32 and data.x.tolist() == six.FEATURES.tolist()
    assert data.y.dtype == torch.int64 and data.y.tolist() == six.LABELS.tolist()
    assert data.train_mask.nonzero().ravel().tolist() == [0, 3] and data.val_mask.sum() == 1
    assert data.edge_weight.tolist() == six.WEIGHTS.tolist() and data.edge_attr.tolist() == six.EDGE_FEATURES.tolist()
    assert data.edge_time.tolist() == list(range(9)) and data.year.tolist() == list(range(2000, 2006))
    assert data.place.dtype == torch.int32 and data.place.shape == (6, 2)
    assert "x" not in golden.to_pyg(features=False)


def test_pyg_sparse(golden: gsplit.Dataset) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("torch_geometric")
    data = golden.to_pyg(sparse=True)
    assert data.adj_t.layout == torch.sparse_csr and "edge_index" not in data
    expected = golden.to_scipy().toarray().T
    np.testing.assert_array_equal(data.adj_t.to_dense().numpy(), expected)
    assert lies_in(data.adj_t.crow_indices().numpy(), golden.path / "topology/indptr.npy")
    assert lies_in(data.adj_t.values().numpy(), golden.path / "edges/weight.npy")


def test_pyg_multi_label_and_taken_names(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    columns = {"x": np.arange(6, dtype=np.uint64), "id": np.arange(6, dtype=np.uint32)}
    data = gsplit.open(six.write(tmp_path / "ds", labels=six.MANY_LABELS, columns=columns)).to_pyg()
    assert data.y.dtype == torch.float32 and data.y.tolist() == six.MANY_LABELS.astype(float).tolist()
    assert data.node_x.dtype == data.id.dtype == torch.int64 and data.node_x.tolist() == list(range(6))


def test_numbers_that_torch_cannot_hold(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    ds = gsplit.open(six.write(tmp_path / "ds", columns={"big": np.full(6, 2**63, np.uint64)}))
    with pytest.raises(gsplit.DatasetError, match=r"big.npy: has values from 2\^63 on"):
        ds.to_pyg()


@pytest.mark.parametrize("idtype", ["int32", "int64"])
def test_dgl(golden: gsplit.Dataset, idtype: str) -> None:
    pytest.importorskip("dgl")
    graph = golden.to_dgl(idtype=idtype)  # type: ignore[arg-type]
    assert (graph.num_nodes(), graph.num_edges()) == (6, 9) and graph.idtype == getattr(torch, idtype)
    sources, targets = graph.edges(order="eid")
    assert sources.tolist() == six.INDICES.tolist()
    assert edges_of(sources.tolist(), targets.tolist()) == sorted(six.EDGES)
    assert (
        graph.ndata["feat"].tolist() == six.FEATURES.tolist() and graph.ndata["label"].tolist() == six.LABELS.tolist()
    )
    assert graph.ndata["year"].tolist() == list(range(2000, 2006)) and graph.ndata["test_mask"].sum() == 2
    assert graph.edata["weight"].tolist() == six.WEIGHTS.tolist()
    indptr, indices, _ = graph.adj_tensors("csc")
    assert indptr.tolist() == six.INDPTR.tolist() and indices.tolist() == six.INDICES.tolist()
    shared, name = (indices, "indices") if idtype == "int32" else (indptr, "indptr")
    assert lies_in(shared.numpy(), golden.path / f"topology/{name}.npy")


def test_writing_to_a_tensor_leaves_the_file_alone(golden: gsplit.Dataset) -> None:
    pytest.importorskip("torch_geometric")
    data = golden.to_pyg()
    assert lies_in(data.edge_weight.numpy(), golden.path / "edges/weight.npy")
    data.edge_weight += 1
    data.year += 1
    assert golden.edge_columns["weight"].tolist() == six.WEIGHTS.tolist()
    assert golden.columns["year"].tolist() == list(range(2000, 2006))


def test_dgl_refuses_what_does_not_fit(golden: gsplit.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dgl")
    monkeypatch.setattr("gsplit._export._INT32_END", 9)
    with pytest.raises(ValueError, match="6 vertices and 9 edges do not fit int32"):
        golden.to_dgl(idtype="int32")
    with pytest.raises(ValueError, match="expected int32 or int64"):
        golden.to_dgl(idtype="int8")  # type: ignore[arg-type]


def test_graphbolt(golden: gsplit.Dataset) -> None:
    pytest.importorskip("dgl")
    pytest.importorskip("dgl.graphbolt")
    graph = golden.to_graphbolt()
    assert graph.total_num_nodes == 6 and graph.total_num_edges == 9
    assert graph.csc_indptr.tolist() == six.INDPTR.tolist() and graph.indices.tolist() == six.INDICES.tolist()
    assert lies_in(graph.csc_indptr.numpy(), golden.path / "topology/indptr.npy")
    assert lies_in(graph.indices.numpy(), golden.path / "topology/indices.npy")
    assert graph.edge_attributes["weight"].tolist() == six.WEIGHTS.tolist()
    drawn = graph.sample_neighbors(torch.tensor([3, 4], dtype=torch.int32), torch.tensor([-1]))
    assert drawn.sampled_csc.indices.tolist() == [2, 3, 3, 5]


def test_loader_gives_what_pyg_gives(golden: gsplit.Dataset) -> None:
    pytest.importorskip("gsplit._native")
    data = pytest.importorskip("torch_geometric.data")
    utils = pytest.importorskip("torch_geometric.utils")
    (batch,) = gsplit.NeighborLoader(golden, [2, 2], 6, seeds=[5, 0])
    assert isinstance(batch, data.Data) and batch.validate() and batch.batch_size == 2
    assert batch.n_id.dtype == batch.edge_index.dtype == batch.y.dtype == torch.int64
    assert batch.x.dtype == torch.float32 and batch.num_nodes == len(batch.n_id) == sum(batch.num_sampled_nodes)
    assert sorted(batch.n_id[:2].tolist()) == [0, 5]
    pairs = edges_of(*batch.n_id[batch.edge_index].tolist())
    assert set(pairs) <= set(six.EDGES)
    np.testing.assert_array_equal(batch.x.numpy(), golden.features[batch.n_id.numpy()])
    x, edges, _ = utils.trim_to_layer(
        layer=1,
        num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
        x=batch.x,
        edge_index=batch.edge_index,
    )
    assert edges.shape[1] == batch.num_sampled_edges[0] and len(x) == sum(batch.num_sampled_nodes[:2])


def test_loader_gives_tensors(tmp_path: Path) -> None:
    pytest.importorskip("gsplit._native")
    for dtype, expected in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f32", torch.float32)):
        ds = gsplit.open(six.write(tmp_path / dtype, dtype=dtype))
        (batch,) = gsplit.NeighborLoader(ds, [2], 6, form="blocks")
        assert batch.x.dtype == expected and batch.blocks[0].indices.dtype == torch.int32
        np.testing.assert_array_equal(batch.x.float().numpy(), ds.features[batch.n_id.numpy()])
        (plain,) = gsplit.NeighborLoader(ds, [2], 6, form="blocks", numpy=True)
        assert isinstance(plain.n_id, np.ndarray)


def test_blocks_in_dgl(golden: gsplit.Dataset) -> None:
    pytest.importorskip("gsplit._native")
    pytest.importorskip("dgl")
    for numpy in (True, False):
        (batch,) = gsplit.NeighborLoader(golden, [2, 2], 6, form="blocks", numpy=numpy)
        blocks = batch.to_dgl()
        assert [block.num_dst_nodes() for block in blocks] == [batch.blocks[0].num_dst, 2]
        sources, targets = blocks[0].edges(order="eid")
        assert sources.tolist() == batch.blocks[0].indices.tolist() and len(targets) == len(sources)
        assert blocks[0].srcdata["feat"].tolist() == batch.x.tolist()


def test_arrays_as_tensors(golden: gsplit.Dataset, tmp_path: Path) -> None:
    tensors = golden.to_torch()
    train, labels = tensors.split("train"), tensors.labels
    assert train.dtype == labels.dtype == torch.int64 and labels[train].tolist() == six.LABELS[[0, 3]].tolist()
    assert tensors.features[train].tolist() == six.FEATURES[[0, 3]].tolist()
    many = gsplit.open(six.write(tmp_path / "many", labels=six.MANY_LABELS)).to_torch().labels
    assert many.dtype == torch.float32 and many.tolist() == six.MANY_LABELS.astype(float).tolist()


@pytest.mark.parametrize("form", ["pyg", "blocks"])
def test_loader_of_tensors_on_a_device(golden: gsplit.Dataset, form: Any) -> None:
    pytest.importorskip("gsplit._native")
    mask = golden.to_torch().labels >= 0
    options: dict[str, Any] = {"num_neighbors": [2, 2], "form": form, "shuffle": False}
    loader = gsplit.NeighborLoader(golden, input_nodes=mask, device="cpu", **options)
    assert loader.seeds.tolist() == mask.nonzero().ravel().tolist()
    (batch,), (plain,) = loader, gsplit.NeighborLoader(golden, input_nodes=mask.nonzero().ravel(), **options)
    assert batch.x.device.type == "cpu" and batch.x.equal(plain.x) and batch.n_id.equal(plain.n_id)
    assert str(pickle.loads(pickle.dumps(loader))) == str(loader)  # noqa: S301
    if form == "blocks":
        (meta,) = gsplit.NeighborLoader(golden, input_nodes=mask, device="meta", **options)
        assert meta.x.is_meta and meta.blocks[0].indices.is_meta and meta.blocks[0].num_dst == batch.blocks[0].num_dst
        (arrays,) = gsplit.NeighborLoader(golden, input_nodes=mask, numpy=True, **options)
        with pytest.raises(TypeError, match="leave out numpy=True"):
            arrays.to("cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device cuda: PyTorch finds no GPU"):
            gsplit.NeighborLoader(golden, [2], device="cuda")


class Wrapped(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    """A loader inside PyTorch's own."""

    def __init__(self, loader: gsplit.NeighborLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def test_workers_of_a_data_loader_are_refused(golden: gsplit.Dataset) -> None:
    pytest.importorskip("gsplit._native")
    loader = gsplit.NeighborLoader(golden, [2])
    around = torch.utils.data.DataLoader(Wrapped(loader), batch_size=None)
    assert len(list(around)) == 1
    for context in ("fork", "spawn"):
        around = torch.utils.data.DataLoader(
            Wrapped(loader), batch_size=None, num_workers=1, multiprocessing_context=context
        )
        with pytest.raises(RuntimeError, match=r"would draw the whole epoch .* pass num_workers=0"):
            next(iter(around))
    with pytest.raises(TypeError, match="needs no DataLoader around it"):
        next(iter(torch.utils.data.DataLoader(loader)))
