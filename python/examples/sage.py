"""The GraphSAGE that `gsplit train` has made, in plain PyTorch: sage.py DATASET CHECKPOINT

Prints the test accuracy of exact inference; CHECKPOINT is a folder like run/best, of a run
without --normalise-features. Needs torch and safetensors.
"""

import sys

import torch
from safetensors.torch import load_file

import gsplit


def logits(ds: gsplit.Dataset, checkpoint: str) -> torch.Tensor:
    """[n, classes], every layer over all in-neighbours."""
    weights = load_file(f"{checkpoint}/model.safetensors")
    indptr, indices = (torch.from_numpy(array.astype("int64")) for array in (ds.indptr, ds.indices))
    degrees = indptr.diff()
    shares = degrees.reciprocal().repeat_interleave(degrees)
    mean = torch.sparse_csr_tensor(indptr, indices, shares, (len(degrees), len(degrees)))
    h = torch.from_numpy(ds.features[:])
    last = max(int(name.split(".")[1]) for name in weights)
    for layer in range(last + 1):
        own, neighbours, bias = (weights[f"layers.{layer}.{name}"] for name in ("weight_self", "weight_neigh", "bias"))
        h = h @ own + (mean @ h) @ neighbours + bias
        h = h if layer == last else h.relu()
    return h


if __name__ == "__main__":
    ds = gsplit.open(sys.argv[1])
    test = ds.split("test").astype("int64")
    right = logits(ds, sys.argv[2]).argmax(1).numpy() == ds.labels
    print(f"test accuracy {right[test].mean():.4f}")
