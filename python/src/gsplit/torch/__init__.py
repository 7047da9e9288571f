"""Split parallelism for PyTorch models: one's own, PyG's or DGL's layers.

```python
import torch, torch.distributed as dist, torch.nn.functional as F
from gsplit.torch import SplitLoader, sum_gradients

dist.init_process_group("gloo")        # under torchrun; in one process leave it out
loader = SplitLoader("products", [15, 10, 5], batch_size=1024)
for batch in loader:
    h = batch.x
    for conv, layer in zip(convs, batch.layers):      # from the features up
        h = layer.read(h)                             # this rank's rows, then those of others; gradients flow back
        h = conv((h, h[: layer.num_dst]), layer.edge_index).relu()
    loss = F.cross_entropy(h, batch.y, reduction="sum") / batch.num_seeds
    loss.backward()
    sum_gradients(model)
    optimizer.step(); optimizer.zero_grad()
```

The same script runs in one process, under torchrun and on several hosts; losses and gradients are equal.
With several types of vertices rows are dicts by type, as PyG's `HeteroConv` takes them. `LinkLoader` draws mini-batches
of edges, for link prediction.
"""

from ._exchange import sum_gradients
from ._inference import inference
from ._links import LinkBatch, LinkLoader
from ._loader import SplitBatch, SplitLayer, SplitLoader, TypedLayer

__all__ = [
    "LinkBatch",
    "LinkLoader",
    "SplitBatch",
    "SplitLayer",
    "SplitLoader",
    "TypedLayer",
    "inference",
    "sum_gradients",
]
