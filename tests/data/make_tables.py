#!/usr/bin/env python3
"""Writes the graph of make.py as tables, by the programs whose tables people have. Needs pyarrow and duckdb.

pip install pyarrow==26.0.1 duckdb==2.0.0; the bytes depend on their versions, so what is committed was written with these.
"""

import csv
import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
from make import EDGES, FEATURES, LABELS, SPLITS

HERE = Path(__file__).parent / "tables"
NAMES = ["zero", "one", "two", "three", "four", "five"]
SOURCES, TARGETS = (list(ends) for ends in zip(*EDGES))
ROWS = len(EDGES)
# Vertices in an order of their own.
ORDER = [4, 2, 0, 5, 1, 3]


def edges():
    """Integers: weight (null in row 4), time, a flag, two features; and what cannot be kept."""
    weights = [row / 4 if row != 4 else None for row in range(ROWS)]
    pairs = pa.array([[row, row + 0.5] for row in range(ROWS)], pa.list_(pa.float32()))
    return pa.table({
        "dst": pa.array(TARGETS, pa.int32()),
        "src": pa.array(SOURCES, pa.uint64()),
        "weight": pa.array(weights, pa.float64()),
        "time": pa.array([row - 3 for row in range(ROWS)], pa.int16()),
        "flag": pa.array([row % 2 == 0 for row in range(ROWS)]),
        "pair": pairs,
        "day": pa.array(range(ROWS), pa.date32()),
        "kind": pa.array(["a", "b"] * (ROWS // 2)),
    })


def named(encode):
    text = lambda ids: encode(pa.array([NAMES[vertex] for vertex in ids]))
    return pa.table({"from": text(SOURCES), "to": text(TARGETS)})


def nodes(ids, **more):
    pick = lambda values: [values[vertex] for vertex in ORDER]
    split = {vertex: name for name, vertices in SPLITS.items() for vertex in vertices}
    return pa.table({
        "id": ids,
        "feat": pa.array(pick(FEATURES), pa.list_(pa.float32(), 3)),
        "label": pa.array(pick(LABELS), pa.int64()),
        "split": pa.array(pick([split.get(vertex) for vertex in range(6)])),
        "year": pa.array([2000 + vertex for vertex in ORDER], pa.int16()),
        **more,
    })


def masks():
    columns = {"nid": pa.array(ORDER), "x": pa.array([[float(v), -v] for v in ORDER], pa.large_list(pa.float64()))}
    columns["y"] = pa.array([[v & 1, v >> 1 & 1, v >> 2] for v in ORDER], pa.list_(pa.uint8(), 3))
    for name, mask in {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}.items():
        columns[mask] = pa.array([vertex in SPLITS[name] for vertex in ORDER])
    return pa.table(columns)


def parquet():
    pq.write_table(edges(), HERE / "snappy.parquet", compression="snappy", row_group_size=4)
    pq.write_table(edges(), HERE / "plain.parquet", compression="none", use_dictionary=False, data_page_version="2.0")
    pq.write_table(named(pa.Array.dictionary_encode), HERE / "names.parquet", compression="zstd")
    pq.write_table(named(lambda names: names.cast(pa.large_string())), HERE / "large.parquet", compression="lz4")
    shutil.rmtree(HERE / "spark.parquet", ignore_errors=True)
    table = edges()
    for part, (start, length) in enumerate([(0, 4), (4, 0), (4, 6)]):
        path = HERE / f"spark.parquet/year={2020 + part}/part-{part:05}-c000.snappy.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table.slice(start, length), path, compression="snappy")
        (path.parent / f".{path.name}.crc").write_bytes(b"crc\0")
    (HERE / "spark.parquet/_SUCCESS").write_bytes(b"")
    duckdb.sql("SET threads = 1")
    edge_table = edges().drop_columns(["flag", "day"])
    duckdb.sql("SELECT * FROM edge_table").write_parquet(str(HERE / "duckdb.parquet"), compression="zstd")
    pq.write_table(nodes(pa.array(ORDER)), HERE / "nodes.parquet", row_group_size=4)
    pq.write_table(masks(), HERE / "masks.parquet")


def arrow():
    with pa.ipc.new_file(HERE / "file.arrow", edges().schema) as writer:
        writer.write_table(edges(), max_chunksize=4)
    pa.feather.write_feather(edges(), HERE / "lz4.feather", compression="lz4")
    table = named(pa.Array.dictionary_encode)
    with pa.ipc.new_stream(HERE / "names.arrows", table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, max_chunksize=4)
    names = pa.array([NAMES[vertex] for vertex in ORDER]).cast(pa.string_view())
    table = nodes(names)
    with pa.ipc.new_file(HERE / "nodes.arrow", table.schema) as writer:
        writer.write_table(table)


def text():
    table = edges().drop_columns(["flag", "pair"])
    with open(HERE / "edges.csv", "w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(table.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in table.columns)))
    vertices = nodes(pa.array(ORDER)).drop_columns(["feat"])
    with open(HERE / "nodes.tsv", "w", newline="") as file:
        writer = csv.writer(file, dialect="excel-tab")
        writer.writerow(vertices.column_names)
        writer.writerows(zip(*(column.to_pylist() for column in vertices.columns)))


def folder():
    target = HERE / "graph"
    target.mkdir(exist_ok=True)
    pq.write_table(edges().select(["src", "dst", "time"]), target / "edges.parquet")
    pq.write_table(nodes(pa.array(ORDER)), target / "nodes.parquet")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    parquet()
    arrow()
    text()
    folder()
