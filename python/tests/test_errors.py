"""Bad directories: one line that names the file, the expected content and a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import six_vertices as six
import writer
from conftest import flip_bits

import gsplit

Change = Callable[[dict[str, Any]], None]


def refused(path: Path) -> str:
    with pytest.raises(gsplit.DatasetError) as caught:
        gsplit.open(path)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message


def edit(path: Path, change: Change) -> None:
    """Changes the envelope of `dataset.json`."""
    envelope = json.loads((path / "dataset.json").read_text())
    change(envelope)
    (path / "dataset.json").write_text(json.dumps(envelope))


def test_not_a_dataset(tmp_path: Path) -> None:
    assert "no such directory; check the path" in refused(tmp_path / "absent")
    assert "not a gsplit dataset (it has no dataset.json); make one with `gsplit convert`" in refused(tmp_path)
    (tmp_path / "file").write_text("")
    assert "no such directory" in refused(tmp_path / "file")


def test_shards_have_no_rows_of_all_vertices(tmp_path: Path) -> None:
    path = six.write(tmp_path / "ds")
    edit(path, lambda envelope: envelope["content"].update(shard={"host": 1, "hosts": 2}))
    ds = gsplit.open(path)
    for what in ("features", "labels", "original_ids"):
        with pytest.raises(gsplit.DatasetError, match="of all vertices; it is the shard of host 1 of 2: open what"):
            getattr(ds, what)


@pytest.mark.parametrize("version", [1, 3, "2", None])
def test_other_versions(tmp_path: Path, version: object) -> None:
    path = six.write(tmp_path / "ds")
    edit(path, lambda envelope: envelope.update(format_version=version))
    message = refused(path)
    assert f"expected gsplit-dataset format version 2, found gsplit-dataset version {version}" in message
    assert "make it again with the gsplit of this package" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected JSON, found none"),
        ("{", "expected JSON, found none"),
        ("[" * 100_000, "expected JSON, found none"),
        ("\xff", "expected JSON, found none"),
        ("[]", "expected a gsplit-dataset document, found list"),
        ("{}", "expected gsplit-dataset format version 2, found None version None"),
        ('{"format": "gsplit-dataset", "format_version": 2, "checksum": ""}', "has no `content`"),
        ('{"format": "gsplit-dataset", "format_version": 2, "content": {}}', "has no `checksum`"),
    ],
)
def test_damaged_json(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "dataset.json").write_bytes(text.encode("latin-1"))
    message = refused(tmp_path)
    assert expected in message and "dataset.json" in message


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("name", 3, "`name` is 3, expected a string"),
        ("num_vertices", "6", "`num_vertices` is '6', expected a number that is not negative"),
        ("num_vertices", -1, "expected a number that is not negative"),
        ("num_vertices", 2**60, "indptr.npy: expected shape (1152921504606846977,), found (7,)"),
        ("num_vertices", 7, "indptr.npy: expected shape (8,), found (7,)"),
        ("num_edges", 8, "indices.npy: expected shape (8,), found (9,)"),
        ("num_edges", True, "expected a number that is not negative"),
        ("num_classes", 0.5, "`num_classes` is 0.5"),
        ("multi_label", None, "`multi_label` is None, expected true or false"),
        ("files", [], "`files` is [], expected an object"),
        ("files", {"a": 1}, "`a` is 1, expected an object"),
        ("files", {}, "has no topology/indptr.npy; make the dataset again"),
        ("files", {"a\0b": {"bytes": 1}}, "cannot be read"),
    ],
)
def test_wrong_fields(tmp_path: Path, key: str, value: object, expected: str) -> None:
    path = six.write(tmp_path / "ds")
    edit(path, lambda envelope: envelope["content"].update({key: value}))
    assert expected in refused(path)


def test_a_missing_field(tmp_path: Path) -> None:
    path = six.write(tmp_path / "ds")
    edit(path, lambda envelope: envelope["content"].pop("multi_label"))
    assert "dataset.json: has no `multi_label`; run `gsplit verify`" in refused(path)


def test_every_file_is_checked_on_opening(tmp_path: Path) -> None:
    path = six.write_full(tmp_path / "ds")
    for name in json.loads((path / "dataset.json").read_text())["content"]["files"]:
        good = (path / name).read_bytes()
        (path / name).write_bytes(good[:-1])
        expected = f"{name}: expected {len(good)} bytes, found {len(good) - 1}; run `gsplit verify` and rebuild"
        assert expected in refused(path)
        (path / name).unlink()
        assert f"{name}: the file is missing; copy the whole directory again" in refused(path)
        (path / name).write_bytes(good)
    gsplit.open(path)


def rewrite(path: Path, name: str, data: bytes) -> None:
    """Replaces a file and its length in the manifest."""
    (path / name).write_bytes(data)
    edit(path, lambda envelope: envelope["content"]["files"][name].update(bytes=len(data)))


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    width = 2 if version == 1 else 4
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text + data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "expected a .npy header, found none"),
        (b"\x93NUMPY\x01\x00", "expected a .npy header, found none"),
        (b"PK\x03\x04" + bytes(60), "expected a .npy header, found none"),
        (npy("{", version=1), "expected a .npy header, found none"),
        (npy("[1, 2]"), "expected a .npy header, found none"),
        (npy("(" * 9000), "expected a .npy header, found none"),
        (npy("{}"), "expected elements <u4, found None"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (9,)}"), "expected elements <u4, found '|O'"),
        (
            npy("{'descr': '<i4', 'fortran_order': False, 'shape': (9,)}", bytes(36)),
            "elements <u4, found '<i4'",
        ),
        (npy("{'descr': '<u4', 'fortran_order': False, 'shape': (3, 3)}", bytes(36)), "found (3, 3)"),
        (npy("{'descr': '<u4', 'fortran_order': False, 'shape': (2**62,)}"), "expected a .npy header, found none"),
        (npy("{'descr': '<u4', 'fortran_order': False, 'shape': (9,)}", bytes(35)), "bytes for shape (9,), found"),
        (npy("{'descr': '<u4', 'fortran_order': False, 'shape': (9,)}", bytes(37)), "bytes for shape (9,), found"),
        (npy("{'descr': '<u4', 'fortran_order': False, 'shape': 9}", bytes(36)), "expected shape (9,), found 9"),
    ],
)
def test_damaged_npy(tmp_path: Path, data: bytes, expected: str) -> None:
    path = six.write(tmp_path / "ds")
    rewrite(path, "topology/indices.npy", data)
    message = refused(path)
    assert expected in message and "topology/indices.npy: " in message


def test_other_npy_versions_are_read(tmp_path: Path) -> None:
    path = six.write(tmp_path / "ds")
    header = "{'descr': '<u4', 'fortran_order': False, 'shape': (9,)}" + " " * 8
    for version in (1, 2, 3):
        rewrite(path, "topology/indices.npy", npy(header, six.INDICES.tobytes(), version))
        np.testing.assert_array_equal(gsplit.open(path).indices, six.INDICES)


def test_offsets_must_end_at_the_edges(tmp_path: Path) -> None:
    path = writer.write_dataset(tmp_path / "ds", six.INDPTR + 1, six.INDICES)
    assert "indptr.npy: expected offsets from 0 to 9, found 1 to 10" in refused(path)


def test_flipped_bits_of_ids_never_crash(tmp_path: Path) -> None:
    path = six.write(tmp_path / "ds", original_ids=six.STRING_IDS)

    def read(bad: bytes) -> None:
        rewrite(path, "nodes/original_id.arrow", bad)
        ids = gsplit.open(path).original_ids
        assert isinstance(ids, pa.ChunkedArray)
        assert len(ids) == 6 and len(ids.to_pylist()) == 6

    flip_bits((path / "nodes/original_id.arrow").read_bytes(), 7, read)


def test_what_is_opened_later(tmp_path: Path) -> None:
    path = six.write(
        tmp_path / "ds", columns={"table": np.asfortranarray(np.ones((6, 2)))}, original_ids=six.STRING_IDS
    )
    with pytest.raises(gsplit.DatasetError, match=r"table.npy: expected shape .* found .* in Fortran order"):
        gsplit.open(path).columns["table"]
    objects = npy("{'descr': '|O', 'fortran_order': False, 'shape': (6, 2)}", bytes(96))
    rewrite(path, "nodes/table.npy", objects)
    edit(path, lambda envelope: envelope["content"]["columns"]["table"].update(descr="|O"))
    with pytest.raises(gsplit.DatasetError, match=r"table.npy: has elements '\|O', expected little-endian numbers"):
        gsplit.open(path).columns["table"]
    rewrite(path, "nodes/original_id.arrow", b"ARROW1" + bytes(40))
    with pytest.raises(gsplit.DatasetError, match=r"original_id.arrow: expected an Arrow file"):
        _ = gsplit.open(path).original_ids
    writer.write_string_ids(path / "nodes/original_id.arrow", six.STRING_IDS[:5], 2)
    rewrite(path, "nodes/original_id.arrow", (path / "nodes/original_id.arrow").read_bytes())
    with pytest.raises(gsplit.DatasetError, match="expected 6 ids, found 5"):
        _ = gsplit.open(path).original_ids
    rewrite(path, "nodes/feat.arrow", b"ARROW1" + bytes(40))
    with pytest.raises(gsplit.DatasetError, match=r"feat.arrow: expected an Arrow file"):
        _ = gsplit.open(path).features
    for split, expected in [
        (np.array([7], np.uint32), "expected vertices below 6, found 7"),
        (np.array([[1]], np.uint32), r"expected one dimension, found shape \(1, 1\)"),
    ]:
        writer.write_npy(path / "splits/train.npy", split)
        rewrite(path, "splits/train.npy", (path / "splits/train.npy").read_bytes())
        with pytest.raises(gsplit.DatasetError, match=expected):
            gsplit.open(path).split("train")
    with pytest.raises(gsplit.DatasetError, match=r"has no \.\. split"):
        gsplit.open(six.write(tmp_path / "again")).split("..")
