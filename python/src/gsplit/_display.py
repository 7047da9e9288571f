"""A dataset as a table for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._dataset import Dataset


def table(ds: Dataset) -> str:
    """`Dataset._repr_html_`. Reads nothing but the manifest and names of folders."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in _rows(ds)
    )
    return f"<table><caption>gsplit dataset {html.escape(ds.name)}</caption>{rows}</table>"


def _rows(ds: Dataset) -> Iterator[tuple[str, str]]:
    yield "path", str(ds.path)
    yield "vertices", f"{ds.num_vertices:,}"
    yield "edges", f"{ds.num_edges:,}"
    if ds.types:
        yield "types", ", ".join(f"{of.name} {of.count:,}" for of in ds.types.values())
        yield "relations", ", ".join(map("/".join, ds.relations))
        by_type = ds._types_with_features.items()
        yield "features", ", ".join(f"{of.count('dim')} {of.text('dtype')} values a {name}" for name, of in by_type)
    elif ds.has_features:
        info = ds.manifest["features"]
        yield "features", f"{info['dim']} {info['dtype']} values a vertex"
    if ds.numeric_label:
        yield "labels", "a number a vertex"
    elif ds.has_labels:
        yield "classes", f"{ds.num_classes:,}" + (", several a vertex" if ds.multi_label else "")
    if ds.splits:
        yield "splits", ", ".join(f"{name} {len(vertices):,}" for name, vertices in ds.splits.items())
    for name, found in (
        ("node columns", list(ds.columns)),
        ("edge columns", list(ds.edge_columns)),
        ("presamples", ds.presamples),
        ("partitions", ds.partitions),
    ):
        if found:
            yield name, ", ".join(found)
