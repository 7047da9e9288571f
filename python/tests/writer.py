"""Writes dataset directories of format version 2 as `store` lays them out, so that tests need no gsplit binary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

Array = npt.NDArray[Any]
CHUNK = 1 << 20
ROWS_PER_BATCH = 16384
NO_CHECKSUM = "xxh3:" + "0" * 32


def checksum(data: bytes) -> str:
    """XXH3-128 of every MiB, and of those digests where there are several."""
    digests = [xxhash.xxh3_128_intdigest(data[at : at + CHUNK]) for at in range(0, max(len(data), 1), CHUNK)]
    if len(digests) > 1:
        digests = [xxhash.xxh3_128_intdigest(b"".join(digest.to_bytes(16, "little") for digest in digests))]
    return f"xxh3:{digests[0]:032x}"


def write_document(path: Path, form: str, version: int, content: dict[str, Any]) -> str:
    """Writes a self-checking JSON document and returns its checksum."""
    envelope = {"format": form, "format_version": version, "checksum": NO_CHECKSUM, "content": content}
    text = json.dumps(envelope, indent=2) + "\n"
    digest = checksum(text.encode())
    path.write_text(text.replace(NO_CHECKSUM, digest, 1))
    return digest


def write_npy(path: Path, array: Array) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def records(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Length and checksum of each file."""
    contents = {name: (folder / name).read_bytes() for name in sorted(names)}
    return {name: {"bytes": len(data), "checksum": checksum(data)} for name, data in contents.items()}


def to_bf16(values: Array) -> npt.NDArray[np.uint16]:
    """The upper halves of float32 values, rounded to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def to_i8(values: Array) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Rows as int8, and their scales."""
    scale = (np.abs(values).max(axis=1) / 127).astype(np.float32)
    return np.rint(values / np.where(scale == 0, 1, scale)[:, None]).astype(np.int8), scale


def write_features(path: Path, values: Array, dtype: str, rows_per_batch: int = ROWS_PER_BATCH) -> None:
    """`nodes/feat.arrow` with the float32 matrix `values` narrowed to `dtype`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stored: Array
    scale = None
    if dtype == "i8":
        stored, scale = to_i8(values)
    else:
        stored = to_bf16(values) if dtype == "bf16" else values.astype({"f32": np.float32, "f16": np.float16}[dtype])
    dim = values.shape[1]
    item = pa.field("item", pa.from_numpy_dtype(stored.dtype), nullable=False)
    fields = [pa.field("feat", pa.list_(item, dim), nullable=False, metadata={"gsplit.dtype": dtype})]
    if scale is not None:
        fields.append(pa.field("scale", pa.float32(), nullable=False))
    schema = pa.schema(fields)
    with pa.ipc.new_file(path, schema) as out:
        for start in range(0, len(stored), rows_per_batch):
            rows = slice(start, start + rows_per_batch)
            columns = [pa.FixedSizeListArray.from_arrays(pa.array(stored[rows].ravel()), type=fields[0].type)]
            if scale is not None:
                columns.append(pa.array(scale[rows]))
            out.write_batch(pa.record_batch(columns, schema=schema))


def write_string_ids(path: Path, ids: list[str], rows_per_batch: int) -> None:
    schema = pa.schema([pa.field("original_id", pa.large_string(), nullable=False)])
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.ipc.new_file(path, schema) as out:
        for start in range(0, len(ids), rows_per_batch):
            batch = pa.array(ids[start : start + rows_per_batch], pa.large_string())
            out.write_batch(pa.record_batch([batch], schema=schema))


def to_csc(edges: list[tuple[int, int]], num_vertices: int) -> tuple[Array, Array]:
    """`indptr` and `indices` of the edges, duplicates merged."""
    distinct = sorted({(target, source) for source, target in edges})
    degrees = np.bincount([target for target, _ in distinct], minlength=num_vertices)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.uint64)
    return indptr, np.array([source for _, source in distinct], np.uint32)


def described(columns: dict[str, Array]) -> dict[str, Any]:
    return {
        name: {"descr": values.dtype.str, "width": values.shape[1] if values.ndim > 1 else 1}
        for name, values in columns.items()
    }


def write_dataset(
    path: Path,
    indptr: Array,
    indices: Array,
    *,
    features: Array | None = None,
    dtype: str = "f32",
    labels: Array | None = None,
    num_classes: int | None = None,
    known: Array | None = None,
    splits: dict[str, list[int]] | None = None,
    columns: dict[str, Array] | None = None,
    edge_columns: dict[str, Array] | None = None,
    original_ids: Array | list[str] | None = None,
    first_id: int = 0,
) -> Path:
    """Writes a dataset. Labels: int `[n]`; bool `[n, num_classes]` for several a vertex; float32 `[n]`, numbers.

    `known` says which cells of several a vertex have a value, all by default.
    """
    write_npy(path / "topology/indptr.npy", indptr)
    write_npy(path / "topology/indices.npy", indices)
    info = None
    if features is not None:
        write_features(path / "nodes/feat.arrow", features, dtype)
        narrowing = None if dtype == "f32" else {"max_abs_error": 0.0, "rms_error": 0.0, "max_abs_value": 0.0}
        info = {"dim": features.shape[1], "dtype": dtype, "generated": None, "narrowing": narrowing}
    multi_label = labels is not None and labels.dtype == np.bool_
    numeric_label = labels is not None and labels.dtype == np.float32
    if labels is not None and numeric_label:
        write_npy(path / "nodes/label.npy", labels)
    elif labels is not None:
        num_classes = num_classes or (labels.shape[1] if multi_label else int(labels.max()) + 1)
        packed = np.packbits(labels, axis=1, bitorder="little") if multi_label else labels.astype(np.int32)
        write_npy(path / "nodes/label.npy", packed)
    if known is not None:
        write_npy(path / "nodes/label.known.npy", np.packbits(known, axis=1, bitorder="little"))
    string_ids = isinstance(original_ids, list)
    if isinstance(original_ids, list):
        write_string_ids(path / "nodes/original_id.arrow", original_ids, 4)
    elif original_ids is not None:
        write_npy(path / "nodes/original_id.npy", original_ids.astype(np.uint64))
    for name, vertices in (splits or {}).items():
        write_npy(path / f"splits/{name}.npy", np.array(sorted(vertices), np.uint32))
    for folder, given in (("nodes", columns or {}), ("edges", edge_columns or {})):
        for name, values in given.items():
            write_npy(path / folder / f"{name}.npy", values)
    names = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
    content = {
        "name": path.name,
        "num_vertices": len(indptr) - 1,
        "num_edges": len(indices),
        "features": info,
        "num_classes": num_classes,
        "multi_label": multi_label,
        **({"numeric_label": True} if numeric_label else {}),
        "columns": described(columns or {}),
        "edge_columns": described(edge_columns or {}),
        "string_ids": string_ids,
        **({"first_id": first_id} if first_id else {}),
        "files": records(path, [name for name in names if name != "dataset.json"]),
        "provenance": {"tool_version": "0", "command": "test", "options": {}, "sources": [], "facts": {}},
    }
    write_document(path / "dataset.json", "gsplit-dataset", 2, content)
    return path


def made_from(dataset: Path) -> dict[str, Any]:
    """The record in an artifact of the dataset at `dataset`."""
    content = json.loads((dataset / "dataset.json").read_text())["content"]
    files = {name: record["checksum"] for name, record in content["files"].items()}
    topology = checksum(f"{files['topology/indptr.npy']}\n{files['topology/indices.npy']}".encode())
    origin = {"dataset": content["name"], "topology": topology, "train": files.get("splits/train.npy")}
    return {key: value for key, value in origin.items() if value is not None}


def write_artifact(dataset: Path, kind: str, key: str, arrays: dict[str, Array], content: dict[str, Any]) -> Path:
    """Writes the presample or partition `key` of the dataset at `dataset`."""
    folder = dataset / kind / key
    for name, array in arrays.items():
        write_npy(folder / f"{name}.npy", array)
    files = records(folder, [f"{name}.npy" for name in arrays])
    content = {"made_from": made_from(dataset), **content, "files": files, "tool_version": "0"}
    write_document(folder / f"{kind}.json", f"gsplit-{kind}", 1, content)
    return folder
