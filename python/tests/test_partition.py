"""Partitions of graphs in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gsplit


def edges(vertices: int = 600, count: int = 4000) -> np.ndarray:
    """Distinct random edges, most of them within blocks of 100 vertices."""
    draws = np.random.default_rng(7)
    source = draws.integers(0, vertices, count)
    near = source // 100 * 100 + draws.integers(0, 100, count)
    target = np.where(draws.random(count) < 0.9, near, draws.integers(0, vertices, count))
    return np.unique(np.stack([source, target]), axis=1)


def test_parts_are_those_of_the_command(commands: Path) -> None:
    edge_index = edges()
    parts = gsplit.partition(edge_index, 4, seed=3)
    assert parts.dtype == np.int64 and parts.shape == (600,)
    assert np.array_equal(parts, gsplit.partition(edge_index.astype(np.int32), 4, seed=3, threads=1))
    gsplit.convert(edges=edge_index, out="ds", quiet=True)
    ds = gsplit.open("ds")
    key = gsplit.partition(ds, parts=4, weights="unit", seed=3, quiet=True)["key"]
    assert np.array_equal(parts, ds.partition(key).assignment)


def test_vertices_without_edges_have_a_part_too() -> None:
    parts = gsplit.partition([[0, 1], [1, 0]], 3, num_vertices=6)
    assert sorted(np.bincount(parts)) == [2, 2, 2] and parts[0] == parts[1]
    assert gsplit.partition(np.empty((2, 0), dtype=int), 2, num_vertices=4).size == 4


@pytest.mark.parametrize(
    ("edge_index", "parts", "options", "message"),
    [
        ([0, 1], 2, {}, "expected integers of shape"),
        ([[0.5], [1.0]], 2, {}, "expected integers of shape"),
        ([[0, -1], [1, 1]], 2, {}, "vertices from -1 to 1"),
        ([[0, 5], [1, 1]], 2, {"num_vertices": 5}, "vertices from 0 to 5"),
        ([[0, 1], [1, 0]], 3, {}, "the graph has 2 vertices"),
        ([[0, 1], [1, 0]], 0, {}, "expected 1 to 65535"),
        ([[0, 1], [1, 0]], 2, {"quality": "best"}, "expected fast, default or high"),
        ([[0, 1], [1, 0]], 2, {"epsilon": 0}, "expected a number above 0"),
        ([[0, 1], [1, 0]], 2, {"threads": 0}, "threads 0"),
    ],
)
def test_bad_input(edge_index: object, parts: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gsplit.partition(edge_index, parts, **options)
    with pytest.raises(TypeError, match="number of parts"):
        gsplit.partition(np.array([[0], [1]]))
