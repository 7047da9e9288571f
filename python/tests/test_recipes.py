"""The recipes of docs/formats.md for formats that gsplit does not read, run as they are printed."""

from __future__ import annotations

import ast
import re
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import six_vertices as six
from conftest import REPOSITORY

import gsplit

PACKAGES = {"dgl", "gsplit", "networkx", "numpy", "scipy", "tarfile", "torch", "torch_geometric"}
SECTION = (REPOSITORY / "docs/formats.md").read_text().split("### Other formats\n")[1].split("\n### ")[0]
RECIPES = {
    found[2]: found[1]
    for found in re.finditer(r"```python\n(.*?out=\"(?:from-)?([a-z]+)\"\)\n)```", SECTION, re.DOTALL)
}


def write_inputs() -> None:
    """The files that the recipes open, of the graph with 6 vertices."""
    for name, array in {
        "edges/edges": np.array(six.EDGES).T,
        "data/feat": six.FEATURES,
        **{f"set/{split}-seeds": np.array(ids) for split, ids in six.SPLITS.items()},
        **{f"set/{split}-labels": six.LABELS[ids] for split, ids in six.SPLITS.items()},
    }.items():
        path = Path("graphbolt", f"{name}.npy")
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)
    with tarfile.open("downloaded.tar", "w") as archive:
        archive.add(REPOSITORY / "tests/data/mtx/general.mtx", "mtx/general.mtx")


def write_matlab() -> None:
    io, sparse = pytest.importorskip("scipy.io"), pytest.importorskip("scipy.sparse")
    ends = np.array(six.EDGES).T
    network = sparse.coo_matrix((np.ones(len(six.EDGES)), ends), (6, 6))
    io.savemat("graph.mat", {"network": network, "attributes": six.FEATURES, "label": six.LABELS})


def downloaded() -> dict[str, Any]:
    """Stand-ins for DGL, whose data set is the graph with 6 vertices, and for torch."""
    data: dict[str, Any] = {"feat": six.FEATURES, "label": six.LABELS}
    data.update({f"{split}_mask": np.isin(range(6), ids) for split, ids in six.SPLITS.items()})
    graph = SimpleNamespace(edges=lambda: tuple(np.array(six.EDGES).T), ndata=data)
    return {
        "dgl": SimpleNamespace(data=SimpleNamespace(CoraGraphDataset=lambda: [graph])),
        "torch": SimpleNamespace(stack=np.stack),
    }


def check_six(ds: gsplit.Dataset) -> None:
    np.testing.assert_array_equal(ds.indptr, six.INDPTR)
    np.testing.assert_array_equal(ds.indices, six.INDICES)


@pytest.mark.parametrize("name", ["matlab", "graphbolt", "networkx", "pyg", "dgl", "tar"])
def test_recipe(name: str, binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = RECIPES[name]
    assert len(recipe.splitlines()) <= 5
    names = {node.id for node in ast.walk(ast.parse(recipe)) if isinstance(node, ast.Name)}
    modules = downloaded() if name == "dgl" else {}
    modules.update({package: pytest.importorskip(package) for package in sorted(PACKAGES & names - modules.keys())})
    monkeypatch.setenv("GSPLIT", str(binary))
    monkeypatch.chdir(tmp_path)
    write_inputs()
    if name == "matlab":
        write_matlab()
    exec(recipe, dict(modules))
    ds = gsplit.open(f"from-{name}")
    if name in ("networkx", "pyg"):
        assert (ds.num_vertices, ds.num_edges) == (34, 156)
        assert len(np.unique(ds.labels)) == (2 if name == "networkx" else 4)
        return
    check_six(ds)
    if name != "tar":
        np.testing.assert_array_equal(ds.features[:], six.FEATURES)
        np.testing.assert_array_equal(ds.labels, six.LABELS)
    if name in ("dgl", "graphbolt"):
        assert {split: ds.split(split).tolist() for split in six.SPLITS} == six.SPLITS


def test_every_recipe_is_run() -> None:
    assert sorted(RECIPES) == ["dgl", "graphbolt", "matlab", "networkx", "pyg", "tar"]
    assert SECTION.count("```python") == len(RECIPES)
