"""The package reads the gsplit binary's files, and the binary accepts the files of the tests' own writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import six_vertices as six
from conftest import REPOSITORY

import gsplit

Run = Callable[..., str]


def test_differential_the_binary_and_the_writer_agree(run: Run, tmp_path: Path) -> None:
    run("convert", REPOSITORY / "tests/data/ogb-csv", "--out", tmp_path / "ogb", "--quiet")
    ours, theirs = gsplit.open(six.write(tmp_path / "six")), gsplit.open(tmp_path / "ogb")
    np.testing.assert_array_equal(theirs.indptr, ours.indptr)
    np.testing.assert_array_equal(theirs.indices, ours.indices)
    np.testing.assert_array_equal(theirs.features[:], ours.features[:])
    np.testing.assert_array_equal(theirs.labels, ours.labels)
    assert theirs.num_classes == ours.num_classes
    assert {name: ids.tolist() for name, ids in theirs.splits.items()} == six.SPLITS


def test_the_binary_verifies_what_the_writer_writes(run: Run, tmp_path: Path) -> None:
    path = six.write_full(tmp_path / "full")
    six.write_presample(path)
    six.write_partition(path)
    run("verify", path)
    for dtype in ("f16", "bf16", "i8"):
        run("verify", six.write(tmp_path / dtype, dtype=dtype, original_ids=six.STRING_IDS))
    run("verify", six.write(tmp_path / "many", labels=six.MANY_LABELS))
    run("verify", six.write(tmp_path / "numbers", labels=six.NUMBERS))


def test_generated_features_of_every_type(run: Run, tmp_path: Path) -> None:
    found = {}
    for dtype in ("f32", "f16", "bf16", "i8"):
        path = tmp_path / dtype
        run("generate", "community", "--vertices", "20000", "--edges", "40000", "--feature-dim", "8", "--feature-dtype",
            dtype, "--quiet", "--out", path)  # fmt: skip
        found[dtype] = gsplit.open(path).features
        assert found[dtype].dtype == dtype
    exact = found["f32"][:]
    np.testing.assert_allclose(found["f16"][:], exact, rtol=2**-11, atol=2**-24)
    np.testing.assert_allclose(found["bf16"][:], exact, rtol=2**-8)
    scale = found["i8"].scale
    assert scale is not None
    np.testing.assert_allclose(scale, np.abs(exact).max(axis=1) / 127, rtol=1e-6)
    assert (np.abs(found["i8"][:] - exact) <= scale[:, None] * 0.501).all()


def test_artifacts_and_counts(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ds"
    run("generate", "community", "--vertices", "500", "--edges", "4000", "--quiet", "--out", path)
    run("presample", path, "--fanouts", "5,5", "--epochs", "2", "--quiet")
    run("partition", path, "--parts", "3", "--quiet")
    ds = gsplit.open(path)
    shown = json.loads(run("inspect", path, "--json"))
    assert str(ds.num_edges) in json.dumps(shown) and ds.num_vertices == 500
    (presample,), (partition,) = map(ds.presample, ds.presamples), map(ds.partition, ds.partitions)
    assert presample.num_batches > 0 and presample.edge.sum() == presample.work.sum() > 0
    assert partition.num_parts == 3
    assert np.bincount(partition.assignment).tolist() == list(partition.part_sizes)
    for part in range(3):
        assert (partition.assignment[partition.vertices(part)] == part).all()
