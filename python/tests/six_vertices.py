"""The graph of 6 vertices that `tests/data/make.py` writes in every raw format, and columns of every kind for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import writer

EDGES = [(0, 1), (0, 2), (1, 2), (2, 0), (2, 3), (3, 3), (3, 4), (4, 5), (5, 4)]
INDPTR, INDICES = writer.to_csc(EDGES, 6)
FEATURES = np.array([[vertex + column / 4 for column in range(3)] for vertex in range(6)], np.float32)
LABELS = np.array([0, 1, -1, 2, 1, 0], np.int32)
SPLITS = {"train": [0, 3], "valid": [1], "test": [4, 5]}
NUMBERS = np.array([1.5, np.nan, -2.0, 0.0, 7.25, 3.0], np.float32)
MANY_LABELS = np.array([[(vertex * 7 + label) % 3 == 0 for label in range(11)] for vertex in range(6)])
WEIGHTS = np.arange(9, dtype=np.float32) / 2
EDGE_FEATURES = np.arange(18, dtype=np.float64).reshape(9, 2)
STRING_IDS = ["ann", "bob", "", "d\u00f6rte", "eve", "a longer name than the others have"]


def write(path: Path, **changes: Any) -> Path:
    """The dataset with features, labels and splits; `changes` are further arguments of `writer.write_dataset`."""
    given: dict[str, Any] = {"features": FEATURES, "labels": LABELS, "splits": SPLITS, **changes}
    return writer.write_dataset(path, INDPTR, INDICES, **given)


def write_full(path: Path) -> Path:
    """With node and edge columns and original ids."""
    columns = {"year": np.arange(2000, 2006, dtype=np.int64), "place": np.arange(12, dtype=np.uint16).reshape(6, 2)}
    edge_columns = {"weight": WEIGHTS, "feat": EDGE_FEATURES, "time": np.arange(9, dtype=np.int64)}
    ids = np.array([10, 20, 30, 2**63, 50, 60], np.uint64)
    return write(path, columns=columns, edge_columns=edge_columns, original_ids=ids)


def write_presample(dataset: Path, key: str = "fan") -> Path:
    counters = {name: np.arange(6, dtype=np.uint32) * step for step, name in enumerate(["input", "appear", "work"], 1)}
    config = {"fanouts": "2,2", "batch_size": 2, "epochs": 3, "seed": 0}
    arrays = {**counters, "edge": np.arange(1, 10, dtype=np.uint32)}
    return writer.write_artifact(dataset, "presample", key, arrays, {"config": config, "num_batches": 3})


def write_partition(dataset: Path, key: str = "two") -> Path:
    arrays: dict[str, writer.Array] = {
        "assignment": np.array([0, 0, 0, 1, 1, 0], np.uint16),
        "cache_order": np.array([2, 0, 5, 1, 4, 3], np.uint32),
    }
    config = {"parts": 2, "partitioner": "metis", "weights": "presampled", "epsilon": 0.05, "seed": 0}
    balance = {"vertices": 4 / 3, "edges": 1.0, "targets": 1.0, "work": None}
    report = {
        "part_sizes": [4, 2],
        "cut": 2,
        "adjacent_pairs": 7,
        "weighted_cut": 3,
        "total_weight": 9,
        "imbalance": 4 / 3,
        "balance": balance,
        "expected_cross_share": 1 / 3,
        "expected_cross_edges": None,
    }
    return writer.write_artifact(dataset, "partition", key, arrays, {"config": config, "report": report})
