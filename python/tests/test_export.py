"""SciPy shares memory with the files; a missing package is named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import six_vertices as six
from mapped import lies_in
from scipy import sparse

import gsplit


def dense(values: npt.ArrayLike = 1) -> npt.NDArray[np.float64]:
    matrix = np.zeros((6, 6))
    targets = np.repeat(np.arange(6), np.diff(six.INDPTR.astype(int)))
    matrix[six.INDICES, targets] = values
    return matrix


def test_scipy_shares_indices_and_weights(golden: gsplit.Dataset) -> None:
    matrix = golden.to_scipy()
    np.testing.assert_array_equal(matrix.toarray(), dense(six.WEIGHTS))
    assert np.shares_memory(matrix.indices, golden.indices)
    assert not np.shares_memory(matrix.indptr, golden.indptr)
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    assert matrix.data.dtype == np.float32 and lies_in(matrix.data, golden.path / "edges/weight.npy")
    assert matrix.has_sorted_indices and matrix.has_canonical_format
    np.testing.assert_array_equal(matrix @ np.ones(6), dense(six.WEIGHTS).sum(axis=1))
    np.testing.assert_array_equal(golden.to_scipy("time").toarray(), dense(np.arange(9)))


def test_scipy_without_weights(tmp_path: Path) -> None:
    matrix = gsplit.open(six.write(tmp_path / "ds")).to_scipy()
    np.testing.assert_array_equal(matrix.toarray(), dense())
    assert matrix.dtype == np.float32


def test_scipy_of_2_31_edges_shares_the_offsets(golden: gsplit.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[npt.NDArray[Any], ...]] = []
    make = sparse.csc_matrix

    def csc_matrix(arrays: tuple[npt.NDArray[Any], ...], **rest: Any) -> Any:
        given.append(arrays)
        return make(arrays, **rest)

    monkeypatch.setattr("gsplit._export._INT32_END", 9)
    monkeypatch.setattr(sparse, "csc_matrix", csc_matrix)
    matrix = golden.to_scipy()
    _, indices, indptr = given[0]
    assert indices.dtype == indptr.dtype == np.int64
    assert np.shares_memory(indptr, golden.indptr) and not np.shares_memory(indices, golden.indices)
    np.testing.assert_array_equal(matrix.toarray(), dense(six.WEIGHTS))


def test_scipy_refuses_wide_and_unknown_columns(golden: gsplit.Dataset) -> None:
    with pytest.raises(ValueError, match="edge column `feat` has 2 values an edge"):
        golden.to_scipy("feat")
    with pytest.raises(KeyError, match="expected one of weight, feat, time"):
        golden.to_scipy("year")


@pytest.mark.parametrize(
    ("method", "module", "package"),
    [
        ("to_scipy", "scipy.sparse", "scipy"),
        ("to_pyg", "torch", "torch"),
        ("to_dgl", "torch", "torch"),
    ],
)
def test_what_is_not_installed_is_named(
    golden: gsplit.Dataset, monkeypatch: pytest.MonkeyPatch, method: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"Dataset.{method} needs {package}: run `pip install {package}`"):
        getattr(golden, method)()
