"""Contents of a dataset, and that they are not copied."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import six_vertices as six
import writer
from mapped import lies_in

import gsplit


def test_counts_and_manifest(golden: gsplit.Dataset) -> None:
    assert (golden.name, golden.num_vertices, golden.num_edges, golden.num_classes) == ("six", 6, 9, 3)
    assert golden.manifest["provenance"]["command"] == "test"
    assert repr(golden) == "<gsplit.Dataset 'six': 6 vertices, 9 edges>"


def test_topology_is_mapped(golden: gsplit.Dataset) -> None:
    assert golden.indptr.dtype == np.uint64 and golden.indices.dtype == np.uint32
    assert isinstance(golden.indptr, np.memmap) and isinstance(golden.indices, np.memmap)
    assert lies_in(golden.indices, golden.path / "topology/indices.npy")
    edges = [(int(u), v) for v in range(6) for u in golden.in_neighbours(v)]
    assert sorted(edges) == sorted(six.EDGES)
    assert np.shares_memory(golden.in_neighbours(np.uint32(4)), golden.indices)
    for vertex in (-1, 6, 2**70):
        with pytest.raises(IndexError, match="expected one from 0 to 5"):
            golden.in_neighbours(vertex)
    with pytest.raises(ValueError, match="read-only"):
        golden.indices[0] = 1


def test_columns(golden: gsplit.Dataset) -> None:
    assert list(golden.columns) == ["year", "place"] and len(golden.edge_columns) == 3
    assert golden.columns["year"].tolist() == list(range(2000, 2006))
    assert golden.columns["place"].shape == (6, 2) and golden.columns["place"].dtype == np.uint16
    np.testing.assert_array_equal(golden.edge_columns["feat"], six.EDGE_FEATURES)
    weight = golden.edge_columns["weight"]
    assert isinstance(weight, np.memmap) and weight.dtype == np.float32 and weight.shape == (9,)
    assert "year" in golden.columns and "feat" not in golden.columns
    with pytest.raises(KeyError, match="feat: expected one of year, place"):
        golden.columns["feat"]


def test_a_column_of_width_one_may_have_one_dimension_or_two(tmp_path: Path) -> None:
    columns = {"flat": np.arange(6, dtype=np.float32), "tall": np.arange(6, dtype=np.float32).reshape(6, 1)}
    ds = gsplit.open(six.write(tmp_path / "ds", columns=columns))
    assert ds.columns["flat"].shape == (6,) and ds.columns["tall"].shape == (6, 1)


def test_original_ids(golden: gsplit.Dataset, tmp_path: Path) -> None:
    assert isinstance(golden.original_ids, np.memmap)
    assert golden.original_ids.tolist() == [10, 20, 30, 2**63, 50, 60]
    strings = gsplit.open(six.write(tmp_path / "strings", original_ids=six.STRING_IDS))
    ids = strings.original_ids
    assert isinstance(ids, pa.ChunkedArray) and ids.to_pylist() == six.STRING_IDS
    texts = np.frombuffer(ids.chunk(0).buffers()[2], np.uint8)
    assert lies_in(texts, tmp_path / "strings/nodes/original_id.arrow")
    assert gsplit.open(six.write(tmp_path / "plain")).original_ids is None
    counted = gsplit.open(six.write(tmp_path / "counted", first_id=1)).original_ids
    assert isinstance(counted, np.ndarray) and counted.dtype == np.uint64 and counted.tolist() == [1, 2, 3, 4, 5, 6]


def test_labels_and_splits(golden: gsplit.Dataset) -> None:
    labels = golden.labels
    assert isinstance(labels, np.memmap) and labels.dtype == np.int32
    assert labels.tolist() == six.LABELS.tolist()
    assert {name: vertices.tolist() for name, vertices in golden.splits.items()} == six.SPLITS
    assert isinstance(golden.split("train"), np.memmap)


def test_multi_label_targets_are_unpacked_row_by_row(tmp_path: Path) -> None:
    labels = gsplit.open(six.write(tmp_path / "ds", labels=six.MANY_LABELS)).labels
    assert isinstance(labels, gsplit.MultiLabels) and labels.shape == (6, 11) and len(labels) == 6
    assert isinstance(labels.packed, np.memmap) and labels.packed.shape == (6, 2)
    np.testing.assert_array_equal(labels, six.MANY_LABELS)
    for rows in (3, slice(1, 4), [5, 0, 0], np.array([[1, 2], [3, 4]]), np.arange(6) % 2 == 0):
        np.testing.assert_array_equal(labels[rows], six.MANY_LABELS[rows])
    assert labels[:].dtype == np.bool_ and labels.known is None
    with pytest.raises(TypeError, match="indexed only by vertex"):
        labels[1, 2]


def test_missing_cells_of_multi_label_targets_are_nan_among_floats(tmp_path: Path) -> None:
    known = ~six.MANY_LABELS | (np.arange(66).reshape(6, 11) % 3 > 0)
    has = six.MANY_LABELS & known
    labels = gsplit.open(six.write(tmp_path / "ds", labels=has, known=known)).labels
    assert isinstance(labels, gsplit.MultiLabels) and labels.known is not None
    np.testing.assert_array_equal(labels, has)
    np.testing.assert_array_equal(labels.known, known)
    expected = np.where(known, has, np.nan)
    np.testing.assert_array_equal(labels.floats(), expected)
    np.testing.assert_array_equal(labels.floats([4, 1]), expected[[4, 1]])


def test_numbers_to_learn_are_floats(tmp_path: Path) -> None:
    ds = gsplit.open(six.write(tmp_path / "ds", labels=six.NUMBERS))
    assert ds.numeric_label and ds.has_labels and ds.num_classes is None
    assert isinstance(ds.labels, np.memmap) and ds.labels.dtype == np.float32
    np.testing.assert_array_equal(ds.labels, six.NUMBERS)
    assert "a number a vertex" in ds._repr_html_()
    assert not gsplit.open(six.write(tmp_path / "classes")).numeric_label


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    ds = gsplit.open(writer.write_dataset(tmp_path / "bare", six.INDPTR, six.INDICES))
    assert not ds.has_features and not ds.has_labels and ds.num_classes is None
    assert ds.splits == {} and not ds.columns and ds.presamples == ds.partitions == []
    with pytest.raises(gsplit.DatasetError, match="has no features; convert or generate it with --features"):
        _ = ds.features
    with pytest.raises(gsplit.DatasetError, match="has no labels"):
        _ = ds.labels
    with pytest.raises(
        gsplit.DatasetError, match="has no train split; there is none; convert it with --schema split-name"
    ):
        ds.split("train")


def test_a_graph_without_edges_or_vertices(tmp_path: Path) -> None:
    for n in (0, 3):
        empty = np.zeros((n, 2), np.float32)
        path = tmp_path / f"empty-{n}"
        writer.write_dataset(path, np.zeros(n + 1, np.uint64), np.zeros(0, np.uint32), features=empty)
        ds = gsplit.open(path)
        assert (ds.num_vertices, ds.num_edges, len(ds.indices)) == (n, 0, 0)
        assert ds.features[:].shape == ds.features.array().shape == (n, 2)


def test_a_dataset_pickles_as_its_path(golden: gsplit.Dataset) -> None:
    data = pickle.dumps((golden, golden.features))
    assert len(data) < 1000
    again, features = pickle.loads(data)  # noqa: S301
    np.testing.assert_array_equal(again.indices, golden.indices)
    np.testing.assert_array_equal(features[:], six.FEATURES)


def test_num_nodes_and_the_table_for_notebooks(golden: gsplit.Dataset, tmp_path: Path) -> None:
    assert golden.num_nodes == golden.num_vertices == 6
    shown = golden._repr_html_()
    for words in (">edges<", ">9<", "3 f32 values a vertex", "train 2, valid 1, test 2", "year, place", "fan"):
        assert words in shown, words
    assert "&lt;b&gt;" in gsplit.open(six.write(tmp_path / "<b>"))._repr_html_()
    bare = gsplit.open(six.write(tmp_path / "bare", features=None, labels=None, splits=None))._repr_html_()
    assert "features" not in bare and "classes" not in bare and "splits" not in bare
