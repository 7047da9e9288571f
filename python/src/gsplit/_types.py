"""Types of vertices and relations between them, as `dataset.json` and `topology/rows.npy` have them.

Vertices of a type have consecutive ids. A vertex has a row of in-edges for each relation into its type, in the order of
the relations, and its rows are adjacent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from ._document import Document
from ._errors import damaged

if TYPE_CHECKING:
    from ._dataset import Dataset

Relation = tuple[str, str, str]
"""Type of the sources, name, type of the targets."""
AnyRelation = Union[str, Relation]
_VERTICES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class VertexType:
    """A type of vertices."""

    name: str
    """Its name."""
    first: int
    """The id of its first vertex among all."""
    count: int
    """Number of its vertices, which have consecutive ids."""

    @property
    def vertices(self) -> slice:
        """Its vertices in arrays of all vertices, as in `ds.labels[ds.types["paper"].vertices]`."""
        return slice(self.first, self.first + self.count)


def described(manifest: Document, key: str) -> list[Document]:
    """The `vertices` or `relations` of the types of `manifest`; none if vertices have one type."""
    if manifest.content.get("types") is None:
        return []
    items = manifest.section("types").content.get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise damaged(manifest.path, f"`types` has no list of {key}")
    return [Document(manifest.path, item, "") for item in items]


def types_of(manifest: Document) -> dict[str, VertexType]:
    """The types by name, in the order of their ids."""
    types, first = {}, 0
    for item in described(manifest, "vertices"):
        of = VertexType(item.text("name"), first, item.count("count"))
        types[of.name], first = of, first + of.count
    return types


def relations_of(manifest: Document) -> list[Relation]:
    """The relations, in the order of the rows of a vertex."""
    return [(item.text("source"), item.text("name"), item.text("target")) for item in described(manifest, "relations")]


def named(relations: Sequence[Relation], relation: AnyRelation) -> Relation:
    """The one of `relations` that is `relation`: its name, or `SOURCE/NAME/TARGET` as text or as a tuple."""
    text = relation if isinstance(relation, str) else "/".join(relation)
    found = [each for each in relations if text in (each[1], "/".join(each))]
    if len(found) != 1:
        listed = ", ".join(map("/".join, found or relations)) or "none: vertices have one type"
        raise KeyError(f"relation {text!r}: expected one of {listed}")
    return found[0]


def relation_edges(ds: Dataset, relation: AnyRelation) -> npt.NDArray[np.int64]:
    """`Dataset.relation_edges`."""
    source, name, target = named(ds.relations, relation)
    into = {kind: [each for each in ds.relations if each[2] == kind] for kind in ds.types}
    sizes = {kind: of.count * len(into[kind]) for kind, of in ds.types.items()}
    rows = ds._map("topology/rows.npy", "<u8", (sum(sizes.values()) + 1,)).view(np.int64)
    before = sum(sizes[kind] for kind, of in ds.types.items() if of.first < ds.types[target].first)
    first, step = before + into[target].index((source, name, target)), len(into[target])
    count = ds.types[target].count
    starts, ends = (rows[at : at + count * step : step] for at in (first, first + 1))
    edges = np.empty((2, int((ends - starts).sum())), np.int64)
    filled = 0
    for at in range(0, count, _VERTICES_AT_ONCE):
        begin, end = starts[at : at + _VERTICES_AT_ONCE], ends[at : at + _VERTICES_AT_ONCE]
        degrees = end - begin
        after = filled + np.cumsum(degrees)
        part = slice(filled, filled + int(degrees.sum()))
        positions = np.arange(part.start, part.stop) + np.repeat(begin - (after - degrees), degrees)
        edges[0, part] = ds.indices[positions]
        edges[1, part] = np.repeat(np.arange(at, at + len(degrees)), degrees)
        filled = part.stop
    edges[0] -= ds.types[source].first
    return edges


def fanouts_text(fanouts: Mapping[Any, Any]) -> str:
    """Fanouts by relation as the command line has them: `10+cites=5,10+cites=5`."""
    lists = {
        key: [part.strip() for part in value.split(",")] if isinstance(value, str) else [str(each) for each in value]
        for key, value in fanouts.items()
    }
    if len({len(layers) for layers in lists.values()}) != 1:
        told = ", ".join(f"{key!r} {len(layers)}" for key, layers in lists.items()) or "none"
        raise ValueError(f"fanouts by relation: expected lists of equally many layers, found {told}")
    names = {key: key if isinstance(key, str) else "/".join(key) for key in lists if key is not None}
    ordered = ([] if None not in lists else [("", lists[None])]) + [
        (f"{name}=", lists[key]) for key, name in names.items()
    ]
    return ",".join("+".join(f"{name}{layers[k]}" for name, layers in ordered) for k in range(len(ordered[0][1])))
