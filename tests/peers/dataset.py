"""A gsplit dataset directory, read with only numpy and pyarrow: every export is compared with it."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa


class Dataset:
    def __init__(self, path):
        self.path = Path(path)
        self.manifest = json.loads((self.path / "dataset.json").read_text())["content"]
        self.n, self.m = self.manifest["num_vertices"], self.manifest["num_edges"]
        self.indptr = self.array("topology/indptr.npy").astype(np.int64)
        self.indices = self.array("topology/indices.npy").astype(np.int64)
        self.targets = np.repeat(np.arange(self.n), np.diff(self.indptr))
        self.columns = {name: self.array(f"nodes/{name}.npy") for name in self.manifest.get("columns", {})}
        self.edge_columns = {name: self.array(f"edges/{name}.npy") for name in self.manifest.get("edge_columns", {})}

    def has(self, name):
        return name in self.manifest["files"]

    def array(self, name):
        return np.load(self.path / name)

    def features(self):
        """(n, d) float32, or None."""
        if not self.has("nodes/feat.arrow"):
            return None
        table = pa.ipc.open_file(pa.memory_map(str(self.path / "nodes/feat.arrow"))).read_all()
        dtype, dim = self.manifest["features"]["dtype"], self.manifest["features"]["dim"]
        chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table["feat"].chunks]
        values = np.concatenate(chunks).reshape(self.n, dim)
        if dtype == "bf16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        values = values.astype(np.float32)
        return values * table["scale"].to_numpy()[:, None] if dtype == "i8" else values

    def labels(self):
        """(n,) int64, or (n, classes) float32 for several classes a vertex, or None."""
        if not self.has("nodes/label.npy"):
            return None
        labels = self.array("nodes/label.npy")
        if not self.manifest.get("multi_label"):
            return labels.astype(np.int64)
        bits = np.unpackbits(labels, axis=1, bitorder="little")
        return bits[:, : self.manifest["num_classes"]].astype(np.float32)

    def split(self, name):
        return self.array(f"splits/{name}.npy").astype(np.int64) if self.has(f"splits/{name}.npy") else None

    def original_ids(self):
        """A list of numbers or strings, or None."""
        if self.has("nodes/original_id.npy"):
            return self.array("nodes/original_id.npy").tolist()
        if self.has("nodes/original_id.arrow"):
            reader = pa.ipc.open_file(pa.memory_map(str(self.path / "nodes/original_id.arrow")))
            return reader.read_all()["original_id"].to_pylist()
        return None


def check(what, *pairs):
    """Prints one line; ends the program at the first difference. A pair is (found, expected)."""
    for i, (found, expected) in enumerate(pairs):
        found, expected = np.asarray(found), np.asarray(expected)
        if found.dtype != object and found.dtype.kind != expected.dtype.kind:
            raise SystemExit(f"FAILED {what} (pair {i}): type {found.dtype}, expected {expected.dtype}")
        if found.shape != expected.shape:
            raise SystemExit(f"FAILED {what} (pair {i}): shape {found.shape}, expected {expected.shape}")
        if not np.array_equal(found, expected, equal_nan=found.dtype.kind == "f"):
            where = np.argwhere(found != expected)[0].tolist()
            raise SystemExit(f"FAILED {what} (pair {i}): differs at {where}")
    print(f"ok      {what}", flush=True)


def skip(what, why):
    print(f"skipped {what}: {why}", flush=True)
