"""Types of vertices and relations, as a dataset has them and as PyG's `HeteroData` does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import REPOSITORY

import gsplit


@pytest.fixture(scope="module")
def mag(run: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> gsplit.Dataset:
    """A graph of ogbn-mag's shape."""
    path = tmp_path_factory.mktemp("types") / "mag"
    run("generate", "typed", "--shape", "ogbn-mag", "--scale", "0.0005", "--out", path)
    return gsplit.open(path)


def test_oracle_relations_are_the_rows_of_vertices(mag: gsplit.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsplit._types._VERTICES_AT_ONCE", 100)
    assert [*mag.types] == ["paper", "author", "institution", "field_of_study"]
    rows, edges, at = np.load(mag.path / "topology/rows.npy"), {each: [] for each in mag.relations}, 0  # type: ignore[var-annotated]
    for name, of in mag.types.items():
        assert of.vertices == slice(of.first, of.first + of.count)
        for v in range(of.count):
            for relation in (each for each in mag.relations if each[2] == name):
                sources = mag.indices[int(rows[at]) : int(rows[at + 1])].astype(int) - mag.types[relation[0]].first
                edges[relation] += [(u, v) for u in sources.tolist()]
                at += 1
    assert at == len(rows) - 1 and sum(map(len, edges.values())) == mag.num_edges
    for relation, expected in edges.items():
        found = mag.relation_edges(relation)
        assert found.dtype == np.int64 and list(map(tuple, found.T.tolist())) == expected
        np.testing.assert_array_equal(mag.relation_edges(relation[1]), found)
    with pytest.raises(KeyError, match="relation 'reads': expected one of paper/cites/paper, "):
        mag.relation_edges("reads")


def test_types_have_features_of_their_own(mag: gsplit.Dataset, golden: gsplit.Dataset) -> None:
    assert {name: of.shape for name, of in mag.features_by_type.items()} == {"paper": (mag.types["paper"].count, 128)}
    shown = mag._repr_html_()
    assert "paper 368" in shown and "author/writes/paper" in shown and "128 f32 values a paper" in shown
    assert (golden.types, golden.relations, golden.features_by_type) == ({}, [], {})
    with pytest.raises(KeyError, match="relation 'cites': expected one of none: vertices have one type"):
        golden.relation_edges("cites")
    damaged = json.loads((golden.path / "dataset.json").read_text())
    damaged["content"]["types"] = {"vertices": [{"name": "paper", "count": 6}], "relations": 3}
    (golden.path / "dataset.json").write_text(json.dumps(damaged))
    with pytest.raises(gsplit.DatasetError, match="`types` has no list of relations"):
        _ = gsplit.open(golden.path).relations


def test_a_hetero_data_comes_back_as_it_was(mag: gsplit.Dataset, commands: Path) -> None:
    pytest.importorskip("torch_geometric")
    data = mag.to_pyg()
    assert data.validate() and data.node_types == [*mag.types] and data.edge_types == mag.relations
    assert "x" not in data["author"] and "y" not in data["author"] and data["author"].num_nodes == 567
    seeds = data["paper"].train_mask.nonzero().ravel()
    assert seeds.tolist() == (mag.split("train") - mag.types["paper"].first).tolist()
    with pytest.raises(gsplit.DatasetError, match=r"several types, .* adj_t; leave sparse out"):
        mag.to_pyg(sparse=True)
    data["author"].year = 1900 + (data["author"].num_nodes - np.arange(567))
    data["paper", "cites", "paper"].weight = np.ones(data["cites"].num_edges)
    with pytest.warns(UserWarning, match=r"\('paper', 'cites', 'paper'\).weight is not read"):
        gsplit.convert(data, "ds", quiet=True)
    again = gsplit.open("ds").to_pyg()
    assert sorted(again.node_types) == sorted(data.node_types) and sorted(again.edge_types) == sorted(data.edge_types)
    for name in data.node_types:
        assert set(again[name].keys()) == set(data[name].keys())
        for key, value in data[name].items():
            assert np.array_equal(again[name][key], value), key
    for relation in data.edge_types:
        assert np.array_equal(again[relation].edge_index, data[relation].edge_index)


def test_a_hetero_data_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    hetero = pytest.importorskip("torch_geometric.data").HeteroData

    def graph(**paper: Any) -> Any:
        data = hetero()
        data["a", "to", "paper"].edge_index = np.zeros((2, 1), np.int64)
        data["a"].num_nodes = 1
        data["paper"].update(paper)
        return data

    far, named = graph(num_nodes=2), graph(num_nodes=2)
    far["a", "to", "paper"].edge_index = np.zeros((3, 1))
    named["a", "to/and fro", "paper"].edge_index = np.zeros((2, 1), np.int64)
    for data, line in (
        (far, r"edge_index: float64 \(3, 1\), expected integers \[2, edges\]"),
        (named, "type or relation 'to/and fro': expected 1 to 128 letters, digits"),
        (
            graph(num_nodes=2, train_mask=np.ones((2, 3), bool)),
            r"paper.train_mask: bool \(2, 3\), expected bool \(2,\)",
        ),
        (graph(), r"vertices of paper: expected x, or their number as data\['paper'\].num_nodes"),
    ):
        with pytest.raises(ValueError, match=line):
            gsplit.convert(data, tmp_path / "out")


def test_the_manuals_example_runs(mag: gsplit.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, functional = (pytest.importorskip(name) for name in ("torch", "torch.nn.functional"))
    pytest.importorskip("torch_geometric")
    pytest.importorskip("gsplit._native", reason="no gsplit._native: `make test-python` builds it")
    from gsplit.torch import SplitLoader, sum_gradients

    monkeypatch.chdir(mag.path.parent)
    examples = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/python.md").read_text(), re.DOTALL)
    (example,) = (text for text in examples if "HeteroConv" in text)
    given: dict[str, Any] = {"SplitLoader": SplitLoader, "sum_gradients": sum_gradients}
    names = {**given, "gsplit": gsplit, "torch": torch, "F": functional}
    exec(example, names)
    assert names["loss"].item() > 0
