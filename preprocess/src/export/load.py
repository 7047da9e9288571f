"""Opens this folder as a torch_geometric.data.Data: `from load import load; data = load()`."""
import json
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data


def load(folder=Path(__file__).parent, mmap_mode=None):
    arrays = {path.stem: np.load(path, mmap_mode) for path in sorted(Path(folder).glob("*.npy"))}
    data = Data(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    for name in [name for name in arrays if name.endswith("_mask")]:
        data[name] = data[name].bool()
    for names in ["class_names", "feature_names"]:
        path = Path(folder) / f"{names}.json"
        if path.exists():
            data[names] = json.loads(path.read_text(encoding="utf-8"))
    data.num_nodes = int((Path(folder) / "num_nodes.txt").read_text())
    return data
