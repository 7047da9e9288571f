"""A model of one's own, on one rank or split over several.

    python split.py DATASET
    torchrun --nproc-per-node 4 split.py DATASET

Each rank computes the vertices of its part; PyTorch's layers run as they are. With `--device cuda` each rank has the
GPU of its number on its host, or shares the only one. Prints the loss of every epoch, which does not depend on the
ranks.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from gsplit.torch import SplitLoader, sum_gradients


class Sage(torch.nn.Module):
    """GraphSAGE with means, in plain PyTorch."""

    def __init__(self, dims: list[int]) -> None:
        """Layers from `dims[i]` to `dims[i + 1]`."""
        super().__init__()
        pairs = list(zip(dims, dims[1:]))
        self.own = torch.nn.ModuleList([torch.nn.Linear(*pair) for pair in pairs])
        self.of = torch.nn.ModuleList([torch.nn.Linear(*pair, bias=False) for pair in pairs])

    def forward(self, batch) -> torch.Tensor:
        """Rows of this rank's seeds."""
        h = batch.x
        for k, layer in enumerate(batch.layers):  # from the features up
            rows = layer.read(h)  # this rank's rows, then those of other ranks
            # By CSR: rows[source] would copy a row for each edge.
            means = F.embedding_bag(layer.indices, rows, layer.indptr, mode="mean", include_last_offset=True)
            h = self.own[k](rows[: layer.num_dst]) + self.of[k](means)
            h = h.relu() if k + 1 < len(batch.layers) else h
        return h


def main() -> None:
    """Trains, and prints the loss of each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--parallelism", default="split", choices=["split", "owned", "data"])
    parser.add_argument("--fanouts", default="15,10,5")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cache", help="feature rows that the device keeps, e.g. 20%% or bytes")
    parser.add_argument(
        "--topology",
        default="host",
        choices=["host", "device", "pinned"],
        help="where the graph is: `host` is sampled by the CPU",
    )
    parser.add_argument("--backend", help="of torch.distributed [gloo on CPUs, nccl on GPUs]")
    args = parser.parse_args()

    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(args.backend or ("gloo" if args.device == "cpu" else "nccl"))
    options = {"parallelism": args.parallelism, "device": device, "cache": args.cache, "topology": args.topology}
    loader = SplitLoader(args.dataset, args.fanouts, args.batch_size, **options)
    torch.manual_seed(0)  # the same parameters on all ranks
    ds = loader.dataset
    layers = args.fanouts.count(",") + 1
    model = Sage([ds.features.shape[1], *[args.hidden] * (layers - 1), ds.num_classes or 1]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    for epoch in range(1, args.epochs + 1):
        began, total, seeds = time.monotonic(), torch.zeros(1, device=device), 0
        for batch in loader:
            loss = F.cross_entropy(model(batch), batch.y, reduction="sum") / batch.num_seeds
            loss.backward()
            sum_gradients(model)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach() * batch.num_seeds
            seeds += batch.num_seeds
        if loader.size > 1:
            dist.all_reduce(total)
        if loader.rank == 0:
            print(f"epoch {epoch}: loss {total.item() / seeds:.6f}, {time.monotonic() - began:.2f} s", flush=True)
    if loader.size > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
