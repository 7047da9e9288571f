"""Splits of links are read as OGB reads them and scored as it scores: check_links.py write FOLDER, check_links.py check FOLDER

`write` makes a graph of communities in OGB's layout twice, as ogbl-collab (pairs that all links are ranked among, torch tensors in
today's files) and as ogbl-citation2 (targets for each link, NumPy arrays in those of torch 1.5); gsplit then converts NAME to
NAME-ds, trains a model of links on it with its logs in NAME.jsonl, and writes all rows to NAME.npy. `check` reads the splits by
the package `ogb`, compares them with the dataset's, and gives the rows' dot products to its evaluator.
"""

import functools
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import torch

# ogb is of the time when torch.load ran pickles.
torch.load = functools.partial(torch.load, weights_only=False)
from dataset import check  # noqa: E402
from ogb.linkproppred import Evaluator, LinkPropPredDataset  # noqa: E402

KINDS = {"collab": "ogbl-collab", "citation": "ogbl-citation2"}
N, SIZE = 1200, 20


def table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(str(value) for value in np.atleast_1d(row)) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()))


def write(folder, name):
    random = np.random.default_rng(3)
    source = random.integers(0, N, 9000)
    target = source // SIZE * SIZE + random.integers(0, SIZE, len(source))
    pairs = np.stack([source, target], 1)[source != target]
    # The reverse of an edge is the same link.
    _, first = np.unique(np.sort(pairs, 1), axis=0, return_index=True)
    pairs = pairs[random.permutation(first)]
    held = len(pairs) // 10
    parts = {"train": pairs[2 * held :], "valid": pairs[:held], "test": pairs[held : 2 * held]}
    parts["train"] = np.concatenate([parts["train"], parts["train"][:50]])
    raw = folder / name / "raw"
    table(raw / "edge.csv.gz", parts["train"])
    table(raw / "num-edge-list.csv.gz", [len(parts["train"])])
    table(raw / "num-node-list.csv.gz", [N])
    community = random.normal(size=(N // SIZE, 8)).repeat(SIZE, axis=0)
    table(raw / "node-feat.csv.gz", np.round(community + random.normal(size=(N, 8)) / 4, 4))
    (folder / name / "RELEASE_v1.txt").touch()
    split = folder / name / "split/time"
    split.mkdir(parents=True)
    for part, edge in parts.items():
        if name == "collab":
            content = {"edge": torch.from_numpy(edge), "year": torch.full((len(edge),), 2017)}
            if part != "train":
                content["edge_neg"] = torch.from_numpy(random.integers(0, N, (5000, 2)))
            torch.save(content, split / f"{part}.pt")
        else:
            content = {"source_node": edge[:, 0].copy(), "target_node": edge[:, 1].copy()}
            if part != "train":
                content["target_node_neg"] = random.integers(0, N, (len(edge), 100))
            torch.save(content, split / f"{part}.pt", _use_new_zipfile_serialization=False)


def of_ogb(path, kind):
    meta = {"dir_path": str(path), "download_name": "x", "version": 1, "task type": "link prediction", "split": "time"}
    meta |= {"eval metric": "", "is hetero": "False", "binary": "False", "url": "", "add_inverse_edge": "False"}
    meta |= {"additional node files": "None", "additional edge files": "None", "has_node_attr": "True"}
    # ogb caches its data there, and makes the folder when it downloads.
    (path / "processed").mkdir(exist_ok=True)
    found = LinkPropPredDataset(name=kind, meta_dict=meta).get_edge_split()
    return {part: {key: np.asarray(value) for key, value in content.items()} for part, content in found.items()}


def compare(folder, name):
    kind = KINDS[name]
    dataset, evaluator = folder / f"{name}-ds", Evaluator(name=kind)
    rows = np.load(folder / f"{name}.npy")
    score = lambda pairs: torch.from_numpy(np.einsum("ij,ij->i", rows[pairs[:, 0]], rows[pairs[:, 1]]))
    last = json.loads((folder / f"{name}.jsonl").read_text().splitlines()[-1])
    for part, content in of_ogb(folder / name, kind).items():
        pairs = np.load(dataset / f"links/{part}.npy").astype(np.int64)
        ends = [content["source_node"], content["target_node"]] if name == "citation" else content["edge"].T
        check(f"{kind}: the {part} split", (pairs, np.stack(ends, 1)))
        if part == "train":
            continue
        negatives = np.load(dataset / f"links/{part}_negative.npy").astype(np.int64)
        theirs = content["target_node_neg" if name == "citation" else "edge_neg"]
        check(f"{kind}: negatives of {part}", (negatives, theirs))
        if name == "citation":
            each = np.repeat(pairs[:, 0], negatives.shape[1])
            against = score(np.stack([each, negatives.ravel()], 1)).reshape(negatives.shape)
            expected = evaluator.eval({"y_pred_pos": score(pairs), "y_pred_neg": against})["mrr_list"].mean().item()
        else:
            expected = evaluator.eval({"y_pred_pos": score(pairs), "y_pred_neg": score(negatives)})["hits@50"]
        near = abs(expected - last[part]) < 2e-3 and expected > 0.05
        check(f"{kind}: {part} scores {last[part]:.4f}, {expected:.4f} by ogb's evaluator", (near, True))


if __name__ == "__main__":
    work = {"write": write, "check": compare}[sys.argv[1]]
    for name in KINDS:
        work(Path(sys.argv[2]), name)
