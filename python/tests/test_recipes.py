"""The recipes of docs/formats.md for formats that gsplit does not read, run as they are printed."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import six_vertices as six
from conftest import REPOSITORY

import gsplit

PACKAGES = {"dgl", "gsplit", "networkx", "numpy", "torch", "torch_geometric"}
SECTION = (REPOSITORY / "docs/formats.md").read_text().split("### Other formats\n")[1].split("\n### ")[0]
RECIPES = {
    found[2]: found[1]
    for found in re.finditer(r"```python\n(.*?out=\"(?:from-)?([a-z]+)\"\)\n)```", SECTION, re.DOTALL)
}


def downloaded() -> dict[str, Any]:
    """Replaces DGL: its data set is the graph with 6 vertices."""
    data: dict[str, Any] = {"feat": six.FEATURES, "label": six.LABELS}
    masks = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
    data.update({masks[split]: np.isin(range(6), ids) for split, ids in six.SPLITS.items()})

    class Edges(dict[Any, Any]):
        def __call__(self, etype: tuple[str, str, str]) -> tuple[np.ndarray, ...]:
            return tuple(np.array(six.EDGES).T)

    relation = ("_N", "_E", "_N")
    graph = SimpleNamespace(
        ntypes=["_N"],
        canonical_etypes=[relation],
        edges=Edges({relation: SimpleNamespace(data={})}),
        nodes={"_N": SimpleNamespace(data=data)},
        num_nodes=lambda ntype: 6,
    )
    return {"dgl": SimpleNamespace(data=SimpleNamespace(CoraGraphDataset=lambda: [graph]))}


def check_six(ds: gsplit.Dataset) -> None:
    np.testing.assert_array_equal(ds.indptr, six.INDPTR)
    np.testing.assert_array_equal(ds.indices, six.INDICES)


@pytest.mark.parametrize("name", ["networkx", "pyg", "dgl"])
def test_recipe(name: str, binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = RECIPES[name]
    assert len(recipe.splitlines()) <= 5
    names = {node.id for node in ast.walk(ast.parse(recipe)) if isinstance(node, ast.Name)}
    modules = downloaded() if name == "dgl" else {}
    modules.update({package: pytest.importorskip(package) for package in sorted(PACKAGES & names - modules.keys())})
    monkeypatch.setenv("GSPLIT", str(binary))
    monkeypatch.chdir(tmp_path)
    exec(recipe, dict(modules))
    ds = gsplit.open(f"from-{name}")
    if name in ("networkx", "pyg"):
        assert (ds.num_vertices, ds.num_edges) == (34, 156)
        assert len(np.unique(ds.labels)) == (2 if name == "networkx" else 4)
        return
    check_six(ds)
    np.testing.assert_array_equal(ds.features[:], six.FEATURES)
    np.testing.assert_array_equal(ds.labels, six.LABELS)
    assert {split: ds.split(split).tolist() for split in six.SPLITS} == six.SPLITS


def test_every_recipe_is_run() -> None:
    assert sorted(RECIPES) == ["dgl", "networkx", "pyg"]
    assert SECTION.count("```python") == len(RECIPES)
