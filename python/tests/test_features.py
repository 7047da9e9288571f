"""Feature rows in every stored type, of one record batch and of several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import six_vertices as six
import writer
from conftest import flip_bits
from mapped import lies_in

import gsplit
from gsplit import Features

Stored = tuple[Features, npt.NDArray[np.float32]]
DTYPES = ["f32", "f16", "bf16", "i8"]
ROWS = 2 * writer.ROWS_PER_BATCH + 17
DIM = 5


def values_of(rows: int) -> npt.NDArray[np.float32]:
    values = np.random.default_rng(7).normal(size=(rows, DIM)).astype(np.float32)
    values[rows // 2] = 0
    return values


def narrowed(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[np.float32]:
    """The `values` after storing them, computed differently than in the package."""
    if dtype == "i8":
        stored, scale = writer.to_i8(values)
        return np.array([[scale[row] * np.float32(x) for x in stored[row]] for row in range(len(values))], np.float32)
    if dtype == "bf16":
        stored16 = writer.to_bf16(values)
        raw = b"".join(b"\0\0" + int(x).to_bytes(2, "little") for x in stored16.ravel())
        return np.frombuffer(raw, "<f4").reshape(values.shape)
    return values.astype(np.float16).astype(np.float32) if dtype == "f16" else values


@pytest.fixture(scope="module", params=DTYPES)
def many(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    path = tmp_path_factory.mktemp("features") / "feat.arrow"
    values = values_of(ROWS)
    writer.write_features(path, values, request.param)
    return Features(path, ROWS, DIM, request.param), narrowed(values, request.param)


def test_golden(tmp_path: Path) -> None:
    for dtype in DTYPES:
        features = gsplit.open(six.write(tmp_path / dtype, dtype=dtype)).features
        assert features.dtype == dtype and features.shape == (6, 3) and len(features) == 6
        tolerance = 5.5 / 254 if dtype == "i8" else 0
        np.testing.assert_allclose(features[:], six.FEATURES, rtol=0, atol=tolerance)
        assert features[:].dtype == np.float32


def test_every_index_gives_the_rows_numpy_would(many: Stored) -> None:
    features, expected = many
    rng = np.random.default_rng(3)
    edge = writer.ROWS_PER_BATCH
    keys: list[Any] = [
        0,
        edge - 1,
        edge,
        -1,
        np.uint32(2 * edge),
        slice(None),
        slice(edge - 2, edge + 2),
        slice(-20, None),
        slice(5, 5),
        slice(9, 3),
        slice(None, None, -4099),
        [],
        [3, edge, 3, -1],
        rng.integers(0, ROWS, 5000),
        rng.integers(0, ROWS, 500).astype(np.uint32),
        rng.integers(0, ROWS, (20, 30)),
        rng.random(ROWS) < 0.1,
    ]
    for key in keys:
        found = features[key]
        assert found.dtype == np.float32 and found.flags.writeable
        expect = expected[np.asarray(key, np.int64)] if isinstance(key, list) else expected[key]
        np.testing.assert_array_equal(found, expect, err_msg=str(key))
    np.testing.assert_array_equal(np.asarray(features), expected)


def test_rows_are_copies(many: Stored) -> None:
    features, expected = many
    for key in (0, slice(0, 3), [0, 1, 2]):
        features[key][:] = 7
    np.testing.assert_array_equal(features[:3], expected[:3])


def test_wrong_indices_are_refused(many: Stored) -> None:
    features, _ = many
    for key in (ROWS, -ROWS - 1, [0, ROWS], 2**40, np.array([2**63], np.uint64)):
        with pytest.raises(IndexError, match=f"expected one below {ROWS}"):
            features[key]
    for wrong in (0.5, "a", [1.5], np.ones(3, bool)):
        with pytest.raises(IndexError, match="expected"):
            features[wrong]
    with pytest.raises(TypeError, match="indexed only by vertex"):
        features[0, 1]


def test_batches_lie_in_the_file(many: Stored) -> None:
    features, expected = many
    path = features._path
    batches = list(features.batches())
    assert [(batch.start, len(batch.values)) for batch in batches] == [(0, 16384), (16384, 16384), (32768, 17)]
    stored = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i8": np.int8}[features.dtype]
    for batch in batches:
        assert batch.values.dtype == stored and lies_in(batch.values, path)
        assert not batch.values.flags.writeable
        assert (batch.scale is None) == (features.dtype != "i8")
        assert batch.scale is None or lies_in(batch.scale, path)
        np.testing.assert_array_equal(batch.to_float32(), expected[batch.start : batch.start + len(batch.values)])


def test_array_is_a_view_of_one_batch_and_a_copy_of_several(many: Stored, tmp_path: Path) -> None:
    features, _ = many
    with pytest.raises(ValueError, match="3 pieces"):
        features.array(copy=False)
    stored = features.array()
    assert stored.shape == (ROWS, DIM)
    np.testing.assert_array_equal(stored, np.concatenate([batch.values for batch in features.batches()]))
    path = tmp_path / "feat.arrow"
    writer.write_features(path, values_of(100), features.dtype)
    small = Features(path, 100, DIM, features.dtype)
    assert lies_in(small.array(copy=False), path)
    assert not np.shares_memory(small.array(copy=True), small.array())
    if features.dtype == "i8":
        assert small.scale is not None and lies_in(small.scale, path)
        assert features.scale is not None and features.scale.shape == (ROWS,)
        np.testing.assert_array_equal(small.array() * small.scale[:, None], small[:])
    else:
        assert features.scale is None


def test_a_file_of_another_shape_or_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "feat.arrow"
    writer.write_features(path, values_of(100), "f32")
    for rows, dim, dtype, message in [
        (100, DIM + 1, "f32", r"expected columns feat: float\[6\], found feat: float\[5\]"),
        (100, DIM, "f16", r"expected columns feat: halffloat\[5\]"),
        (100, DIM, "i8", r"expected columns feat: int8\[5\], scale: float"),
        (100, DIM, "f64", "expected features of type f32, f16, bf16, i8, found f64"),
        (20000, DIM, "f32", "expected 2 record batches of 16384 rows, found 1"),
        (2**60, DIM, "f32", "record batches of 16384 rows, found 1"),
    ]:
        with pytest.raises(gsplit.DatasetError, match=message):
            Features(path, rows, dim, dtype)
    with pytest.raises(gsplit.DatasetError, match="record batch 0 has 100 rows, expected 99"):
        Features(path, 99, DIM, "f32")[0]
    writer.write_features(path, values_of(100), "f32", rows_per_batch=60)
    with pytest.raises(gsplit.DatasetError, match="expected 1 record batches of 16384 rows, found 2"):
        Features(path, 100, DIM, "f32")


def test_nulls_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "feat.arrow"
    kind = pa.list_(pa.float32(), 1)
    schema = pa.schema([pa.field("feat", kind)])
    with pa.ipc.new_file(path, schema) as out:
        out.write_batch(pa.record_batch([pa.array([[1.0], None], kind)], schema=schema))
    with pytest.raises(gsplit.DatasetError, match="record batch 0 has nulls"):
        Features(path, 2, 1, "f32")[:]


def test_flipped_bits_never_crash(tmp_path: Path) -> None:
    path = tmp_path / "feat.arrow"
    writer.write_features(path, values_of(4), "i8")

    def read(bad: bytes) -> None:
        path.write_bytes(bad)
        with np.errstate(all="ignore"):
            assert Features(path, 4, DIM, "i8")[:].shape == (4, DIM)

    flip_bits(path.read_bytes(), 11, read)
