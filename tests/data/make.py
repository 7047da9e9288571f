#!/usr/bin/env python3
"""Writes one graph of 6 vertices in every raw format that gsplit reads. Standard library only; the same bytes every time.

Vertex 2 is unlabelled, 3 has a self-loop, and the edge 0 -> 1 is listed twice.
"""

import collections
import gzip
import io
import json
import math
import pickle
import struct
import sys
import types
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
EDGES = [(0, 1), (0, 2), (1, 2), (2, 0), (2, 3), (3, 3), (3, 4), (4, 5), (5, 4), (0, 1)]
FEATURES = [[vertex + column / 4 for column in range(3)] for vertex in range(6)]
LABELS = [0, 1, None, 2, 1, 0]
SPLITS = {"train": [3, 0], "valid": [1], "test": [4, 5]}


def write(name, content):
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_csv(name, rows):
    text = "".join(",".join(str(value) for value in row) + "\n" for row in rows)
    write(name + ".csv.gz", gzip.compress(text.encode(), mtime=0))


def write_splits(folder):
    for split, vertices in SPLITS.items():
        write_csv(f"{folder}/split/only/{split}", [[vertex] for vertex in vertices])


def npy(descr, shape, values):
    """An array in the .npy format, version 1."""
    order = "|" if descr in ("b1", "u1") else "<"
    header = f"{{'descr': '{order}{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    code = {"i8": "q", "i4": "i", "f2": "e", "f4": "f", "f8": "d", "b1": "?", "u1": "B"}[descr]
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}{code}", *values)


def write_npz(name, compression, **members):
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for member, content in members.items():
            info = zipfile.ZipInfo(member + ".npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(info, content, compress_type=compression)


def write_npy(name, descr, shape, values):
    write(name + ".npy", npy(descr, shape, values))


def raw_strings(text):
    """An array of one byte string, as scipy writes the format of a matrix."""
    header = f"{{'descr': '|S{len(text)}', 'fortran_order': False, 'shape': (), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + text.encode()


def masks():
    return {split: [vertex in vertices for vertex in range(6)] for split, vertices in SPLITS.items()}


def compressed(by_source):
    """indptr, indices and the numbers of the edges, in the order of a CSR or a CSC."""
    key = 0 if by_source else 1
    order = sorted(range(len(EDGES)), key=lambda edge: EDGES[edge][key])
    indptr = [sum(edge[key] < row for edge in EDGES) for row in range(7)]
    return indptr, [EDGES[edge][1 - key] for edge in order], order


def integer_labels():
    return [-1 if label is None else label for label in LABELS]


def real_labels():
    return [float("nan") if label is None else float(label) for label in LABELS]


def npy_folders():
    m = len(EDGES)
    sources, targets = zip(*EDGES)
    flat = [value for row in FEATURES for value in row]
    write_npy("npy/edge_index", "i8", (2, m), sources + targets)
    write_npy("npy/feat", "f4", (6, 3), flat)
    write_npy("npy/labels", "i8", "(6,)", integer_labels())
    write_npy("npy/edge_weight", "f4", f"({m},)", [edge / 2 for edge in range(m)])
    write_npy("npy/edge_attr", "i4", (m, 2), [value for edge in range(m) for value in (edge, -edge)])
    for split, mask in masks().items():
        write_npy(f"npy/{split}_mask", "b1", "(6,)", mask)
    write_npy("npy-pairs/edges", "i4", (m, 2), [vertex for edge in EDGES for vertex in edge])
    write_npy("npy-coo/row", "i4", f"({m},)", sources)
    write_npy("npy-coo/col", "i8", f"({m},)", targets)
    for split, vertices in SPLITS.items():
        write_npy(f"npy-coo/{split}_idx", "i8", f"({len(vertices)},)", vertices)
    for name, by_source in (("csr", True), ("csc", False)):
        indptr, indices, order = compressed(by_source)
        prefix = "" if by_source else "csc_"
        write_npy(f"npy-{name}/{prefix}indptr", "i8", "(7,)", indptr)
        write_npy(f"npy-{name}/{prefix}indices", "i4", f"({m},)", indices)
        write_npy(f"npy-{name}/weight", "f8", f"({m},)", [edge / 2 for edge in order])


def npz_archives():
    m = len(EDGES)
    sources, targets = zip(*EDGES)
    two_masks = {f"{name}_masks": npy("b1", (2, 6), [False] * 6 + mask) for name, mask in masks().items()}
    write_npz(
        "npz/graph.npz",
        zipfile.ZIP_DEFLATED,
        edges=npy("i8", (m, 2), [vertex for edge in EDGES for vertex in edge]),
        node_features=npy("f4", (6, 3), sum(FEATURES, [])),
        node_labels=npy("i8", "(6,)", integer_labels()),
        edge_weight=npy("f4", f"({m},)", [edge / 2 for edge in range(m)]),
        **two_masks,
    )
    indptr, indices, order = compressed(True)
    shape = npy("i8", "(2,)", [6, 6])
    for name, data in (("ones", [1.0] * m), ("weights", [edge / 2 for edge in order])):
        write_npz(
            f"npz/csr-{name}.npz",
            zipfile.ZIP_DEFLATED,
            indices=npy("i4", f"({m},)", indices),
            indptr=npy("i4", "(7,)", indptr),
            format=raw_strings("csr"),
            shape=shape,
            data=npy("f8", f"({m},)", data),
        )
    write_npz(
        "npz/coo.npz",
        zipfile.ZIP_STORED,
        row=npy("i4", f"({m},)", sources),
        col=npy("i4", f"({m},)", targets),
        format=raw_strings("coo"),
        shape=shape,
        data=npy("f4", f"({m},)", [edge / 2 for edge in range(m)]),
    )


def igb():
    m = len(EDGES)
    write_npy("igb/processed/paper__cites__paper/edge_index", "i8", (m, 2), [v for edge in EDGES for v in edge])
    write_npy("igb/processed/paper/node_feat", "f4", (6, 3), sum(FEATURES, []))
    write_npy("igb/processed/paper/node_label_19", "f4", "(6,)", real_labels())
    write_npy("igb/processed/paper/node_label_2K", "f4", "(6,)", [label + 100 for label in real_labels()])
    # The large ones have no headers, and 1024 features.
    write_npy("igb-raw/paper__cites__paper/edge_index", "i8", (m, 2), [v for edge in EDGES for v in edge])
    write("igb-raw/paper/node_feat.npy", struct.pack("<6144f", *(at // 1024 + at % 1024 / 1024 for at in range(6144))))
    write("igb-raw/paper/node_label_19.npy", struct.pack("<6f", *real_labels()))


def mag240m():
    sources, targets = zip(*EDGES)
    folder = "mag240m/processed"
    write_npy(f"{folder}/paper___cites___paper/edge_index", "i8", (2, len(EDGES)), sources + targets)
    write_npy(f"{folder}/paper/node_feat", "f2", (6, 3), sum(FEATURES, []))
    write_npy(f"{folder}/paper/node_label", "f4", "(6,)", real_labels())
    write_npy(f"{folder}/paper/node_year", "i4", "(6,)", [2010 + vertex for vertex in range(6)])


def graphsaint():
    indptr, indices, _ = compressed(True)
    m = len(EDGES)
    for folder in ("graphsaint", "graphsaint-multi"):
        write_npz(
            f"{folder}/adj_full.npz",
            zipfile.ZIP_DEFLATED,
            indices=npy("i4", f"({m},)", indices),
            indptr=npy("i4", "(7,)", indptr),
            format=raw_strings("csr"),
            shape=npy("i8", "(2,)", [6, 6]),
            data=npy("i4", f"({m},)", [1] * m),
        )
        names = {"train": "tr", "valid": "va", "test": "te"}
        write(f"{folder}/role.json", json.dumps({names[split]: SPLITS[split] for split in SPLITS}).encode())
    write_npy("graphsaint/feats", "f8", (6, 3), sum(FEATURES, []))
    # In an order of its own, and without the unlabelled vertex.
    classes = {str(vertex): LABELS[vertex] for vertex in (5, 3, 0, 1, 4)}
    write("graphsaint/class_map.json", json.dumps(classes).encode())
    several = {str(vertex): [vertex % 2, 1, int(vertex > 2)] for vertex in range(6)}
    write("graphsaint-multi/class_map.json", json.dumps(several).encode())


def mtx():
    lines = ["%%MatrixMarket matrix coordinate real general", "% a comment", "", f"6 6 {len(EDGES)}"]
    lines += [f"{source + 1} {target + 1} {edge / 2}" for edge, (source, target) in enumerate(EDGES)]
    write("mtx/general.mtx", "".join(line + "\n" for line in lines).encode())
    pairs = [(2, 1), (3, 1), (3, 3), (6, 5)]
    lines = ["%%MatrixMarket matrix coordinate pattern symmetric", f"6 6 {len(pairs)}"]
    write("mtx/symmetric.mtx", "".join(line + "\n" for line in lines + [f"{i} {j}" for i, j in pairs]).encode())


def metis():
    """The graph without directions, loops and repetitions: METIS has none of them."""
    pairs = {(min(edge), max(edge)) for edge in EDGES if edge[0] != edge[1]}
    lists = [sorted(w for w in range(6) if (min(v, w), max(v, w)) in pairs) for v in range(6)]
    plain = ["% neighbours of each vertex", f"6 {len(pairs)}"]
    plain += [" ".join(str(w + 1) for w in neighbours) for neighbours in lists]
    write("metis/plain.graph", "".join(line + "\n" for line in plain).encode())
    weighted = [f"6 {len(pairs)} 111 2"]
    for v, neighbours in enumerate(lists):
        entries = [str(10 + v), str(v), str(2 * v)] + [f"{w + 1} {v * w + 1}" for w in neighbours]
        weighted += ["% a comment"] * (v == 3) + [" ".join(entries)]
    write("metis/weighted.graph", "".join(line + "\n" for line in weighted).encode())


def ogb_csv():
    write_csv("ogb-csv/raw/num-node-list", [[6]])
    write_csv("ogb-csv/raw/num-edge-list", [[len(EDGES)]])
    write_csv("ogb-csv/raw/edge", EDGES)
    write_csv("ogb-csv/raw/node-feat", FEATURES)
    write_csv("ogb-csv/raw/node-label", [["nan" if label is None else label] for label in LABELS])
    write_splits("ogb-csv")


def ogb_npz():
    sources, targets = zip(*EDGES)
    write_npz(
        "ogb-npz/raw/data.npz",
        zipfile.ZIP_STORED,
        edge_index=npy("i8", (2, len(EDGES)), sources + targets),
        node_feat=npy("f4", (6, 3), sum(FEATURES, [])),
        num_nodes_list=npy("i8", "(1,)", [6]),
        num_edges_list=npy("i8", "(1,)", [len(EDGES)]),
    )
    labels = [float("nan") if label is None else float(label) for label in LABELS]
    write_npz("ogb-npz/raw/node-label.npz", zipfile.ZIP_DEFLATED, node_label=npy("f4", (6, 1), labels))
    write_splits("ogb-npz")


# A split of links, and its negatives: pairs for all, or targets for the source of each pair.
LINKS = {"train": [(0, 1), (0, 2), (1, 2), (2, 0), (3, 4), (0, 1)], "valid": [(2, 5), (1, 3)], "test": [(5, 0)]}
NO_LINKS = {"valid": [(0, 5), (1, 5), (5, 3)], "test": [(4, 0), (4, 1)]}
NO_TARGETS = {"valid": [[3, 4, 5], [0, 5, 4]], "test": [[1, 2, 3]]}


def fake(name, kind):
    """Stands for `name` in a pickle, a function or class of a module that need not be installed."""
    module, short = name.rsplit(".", 1)
    for at in range(1, module.count(".") + 2):
        parent = ".".join(module.split(".")[:at])
        sys.modules.setdefault(parent, types.ModuleType(parent))
    made = types.FunctionType(compile("0", short, "eval"), {}, short) if kind == "function" else type(short, (), {})
    made.__module__, made.__qualname__ = module, short
    setattr(sys.modules[module], short, made)
    return made


LONG_STORAGE, REBUILD = fake("torch.LongStorage", "class"), fake("torch._utils._rebuild_tensor_v2", "function")
NDARRAY, DTYPE = fake("numpy.ndarray", "class"), fake("numpy.dtype", "class")
RECONSTRUCT = fake("numpy.core.multiarray._reconstruct", "function")
DTYPE.__reduce__ = lambda self: (DTYPE, ("i8", False, True), (3, "<", None, None, None, -1, -1, 0))
I8 = DTYPE()


class Storage:
    """Elements of tensors; torch numbers them as it meets them."""

    def __init__(self, values):
        self.values = values


class Tensor:
    """What torch.save writes of an int64 tensor: a view of a storage."""

    def __init__(self, shape, values):
        self.shape, self.storage = shape, Storage(values)

    def __reduce__(self):
        stride = tuple(math.prod(self.shape[at + 1 :]) for at in range(len(self.shape)))
        return REBUILD, (self.storage, 0, self.shape, stride, False, collections.OrderedDict())


class Array:
    """What pickle writes of an int64 array of NumPy."""

    def __init__(self, shape, values):
        self.shape, self.values = shape, values

    def __reduce__(self):
        content = struct.pack(f"<{len(self.values)}q", *self.values)
        return RECONSTRUCT, (NDARRAY, (0,), b"b"), (1, self.shape, I8, False, content)


class TorchPickler(pickle.Pickler):
    def __init__(self, out, protocol, legacy):
        super().__init__(out, protocol)
        self.legacy, self.storages = legacy, []

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        if value not in self.storages:
            self.storages.append(value)
        name = str(self.storages.index(value))
        return ("storage", LONG_STORAGE, name, "cpu", len(value.values)) + ((None,) if self.legacy else ())


def pickled(content, protocol, legacy):
    out = io.BytesIO()
    pickler = TorchPickler(out, protocol, legacy)
    pickler.dump(content)
    return out.getvalue(), [struct.pack(f"<{len(s.values)}q", *s.values) for s in pickler.storages]


def torch_zip(name, content, protocol=2):
    """What torch.save writes since 1.6."""
    head, storages = pickled(content, protocol, False)
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    members = {"data.pkl": head, "byteorder": b"little", **{f"data/{at}": s for at, s in enumerate(storages)}, "version": b"3\n"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for member, data in members.items():
            info = zipfile.ZipInfo(f"{path.stem}/{member}", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(info, data, compress_type=zipfile.ZIP_STORED)


def torch_legacy(name, content):
    """What torch.save wrote before."""
    head, storages = pickled(content, 2, True)
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    before = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, machine)]
    keys = pickle.dumps([str(at) for at in range(len(storages))], 2)
    lengths = [struct.pack("<q", len(s) // 8) + s for s in storages]
    write(name, b"".join(before + [head, keys] + lengths))


def matrix(kind, rows):
    return kind((len(rows), len(rows[0])), sum((list(row) for row in rows), []))


def pairs_of(kind, split):
    found = {"edge": matrix(kind, LINKS[split]), "year": kind((len(LINKS[split]),), [2010] * len(LINKS[split]))}
    return {**found, "edge_neg": matrix(kind, NO_LINKS[split])} if split in NO_LINKS else found


def targets_of(kind, split):
    ends = zip(("source_node", "target_node"), zip(*LINKS[split]))
    found = {name: kind((len(ids),), list(ids)) for name, ids in ends}
    return {**found, "target_node_neg": matrix(kind, NO_TARGETS[split])} if split in NO_TARGETS else found


def ogb_links():
    """Writes only splits of links: the graph is ogb-csv's."""
    for split in LINKS:
        torch_zip(f"ogb-links/zip/{split}.pt", pairs_of(Tensor, split))
        torch_zip(f"ogb-links/numpy/{split}.pt", pairs_of(Array, split))
        torch_zip(f"ogb-links/protocol-4/{split}.pt", pairs_of(Array, split), 4)
        torch_legacy(f"ogb-links/legacy/{split}.pt", pairs_of(Tensor, split))
        torch_legacy(f"ogb-links/legacy-targets/{split}.pt", targets_of(Array, split))
        torch_zip(f"ogb-links/targets/{split}.pt", targets_of(Tensor, split))
        arrays = {name: npy("i8", array.shape, array.values) for name, array in pairs_of(Array, split).items()}
        write_npz(f"ogb-links/npz/{split}.npz", zipfile.ZIP_DEFLATED, **arrays)
    torch_zip("ogb-links/dict/split_dict.pt", {split: pairs_of(Array, split) for split in LINKS})


def snap():
    lines = [f"{source}\t{target}" for source, target in EDGES]
    header = ["# Directed graph", f"# Nodes: 6 Edges: {len(EDGES)}", "# FromNodeId\tToNodeId"]
    write("snap/edges.txt", "".join(line + "\r\n" for line in header + lines).encode())
    # A copy with gaps between the ids, two gzip members, blanks, and no header.
    lines = [f"{source * source + 10} {target * target + 10}\n".encode() for source, target in EDGES]
    members = [gzip.compress(b"".join(part), mtime=0) for part in (lines[:4], lines[4:])]
    write("snap/gaps.txt.gz", b"".join(members))


if __name__ == "__main__":
    ogb_csv()
    ogb_npz()
    ogb_links()
    snap()
    npy_folders()
    npz_archives()
    igb()
    mag240m()
    graphsaint()
    mtx()
    metis()
