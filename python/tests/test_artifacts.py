"""Presamples and partitions; artifacts of another graph are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import six_vertices as six
import writer
import xxhash

import gsplit
from gsplit._xxh3 import xxh3_128_medium


def test_presample(golden: gsplit.Dataset) -> None:
    assert golden.presamples == ["fan"]
    presample = golden.presample("fan")
    assert presample.num_batches == 3 and presample.meta["config"]["fanouts"] == "2,2"
    for name, length in [("input", 6), ("appear", 6), ("work", 6), ("edge", 9)]:
        counter = getattr(presample, name)
        assert isinstance(counter, np.memmap) and counter.dtype == np.uint32 and counter.shape == (length,)
    assert presample.appear.tolist() == [0, 2, 4, 6, 8, 10] and presample.edge.tolist() == list(range(1, 10))


def test_partition(golden: gsplit.Dataset) -> None:
    assert golden.partitions == ["two"]
    partition = golden.partition("two")
    assert partition.num_parts == 2 and partition.part_sizes == (4, 2) and partition.report["cut"] == 2
    assert isinstance(partition.assignment, np.memmap) and partition.assignment.dtype == np.uint16
    for part in range(2):
        vertices = partition.vertices(part)
        assert np.shares_memory(vertices, partition.cache_order)
        assert sorted(vertices) == np.flatnonzero(partition.assignment == part).tolist()
    with pytest.raises(IndexError, match="part 2, expected one below 2"):
        partition.vertices(2)


def test_what_was_tried_is_named_so_and_never_listed(golden: gsplit.Dataset) -> None:
    (golden.path / "tried").mkdir()
    shutil.move(golden.path / "partition", golden.path / "tried/partition")
    assert golden.partitions == []
    assert golden.partition("tried/two").part_sizes == (4, 2)
    with pytest.raises(gsplit.DatasetError, match="has no partition `two`"):
        golden.partition("two")
    with pytest.raises(gsplit.DatasetError, match="has no partition `tried/three`"):
        golden.partition("tried/three")


def test_an_absent_key_names_those_there_are(golden: gsplit.Dataset) -> None:
    with pytest.raises(gsplit.DatasetError, match="has no presample `x`; there are fan; or run `gsplit presample`"):
        golden.presample("x")
    with pytest.raises(gsplit.DatasetError, match=r"has no partition `\.\./partition/two`"):
        golden.partition("../partition/two")
    shutil.rmtree(golden.path / "partition")
    with pytest.raises(gsplit.DatasetError, match="has no partition `two`; run `gsplit partition`"):
        golden.partition("two")


def test_one_of_another_graph_or_split_is_refused(golden: gsplit.Dataset, tmp_path: Path) -> None:
    edges = [*six.EDGES[:-1], (5, 3)]
    other = writer.write_dataset(tmp_path / "other", *writer.to_csc(edges, 6), splits=six.SPLITS)
    shutil.copytree(golden.path / "partition", other / "partition")
    with pytest.raises(gsplit.DatasetError, match=r"made from `six`, whose graph is not the one of .*other now"):
        gsplit.open(other).partition("two")
    split = six.write(tmp_path / "split", splits={**six.SPLITS, "train": [0, 2]})
    shutil.copytree(golden.path / "presample", split / "presample")
    with pytest.raises(gsplit.DatasetError, match="whose training split is not the one of"):
        gsplit.open(split).presample("fan")


def test_damaged_artifacts(golden: gsplit.Dataset) -> None:
    counter = golden.path / "presample/fan/work.npy"
    counter.write_bytes(counter.read_bytes()[:-4])
    with pytest.raises(gsplit.DatasetError, match=r"work\.npy: expected 152 bytes, found 148"):
        golden.presample("fan")
    document = golden.path / "partition/two/partition.json"
    envelope = json.loads(document.read_text())
    for sizes in ([4, 3], None, ["4", 2], [7, -1]):
        envelope["content"]["report"]["part_sizes"] = sizes
        document.write_text(json.dumps(envelope))
        with pytest.raises(gsplit.DatasetError, match="expected part sizes that add up to 6 vertices"):
            golden.partition("two")


def test_oracle_xxh3() -> None:
    rng = np.random.default_rng(1)
    for length in range(17, 129):
        data = rng.bytes(length)
        assert xxh3_128_medium(data) == xxhash.xxh3_128_intdigest(data), length
    for length in (16, 129):
        with pytest.raises(ValueError, match="expected 17 to 128"):
            xxh3_128_medium(bytes(length))
