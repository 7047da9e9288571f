#!/usr/bin/env python3
"""Counts the blocks of 4 KiB that training reads from a feature file, by what memory keeps, how far it looks ahead, and the order of rows.

    blocks.py DATASET [--fanouts 10,10,5] [--batch-size 64] [--partition KEY]

Of a memory for a share of the rows, a window of w mini-batches takes the room of their rows, the hottest rows take the rest. Rows lie
by id, by hotness, or by the parts of a partition. Nothing is read but the graph; the loads are those of gsplit's own sampler, the
hottest rows those of 120 other mini-batches.
"""

import argparse

import gsplit
import numpy as np

BLOCK, TAKEN, OTHERS = 4096, 32, 120


def blocks(places, row):
    """Blocks that have a byte of the rows at `places`."""
    return len(np.unique(np.concatenate([places * row // BLOCK, ((places + 1) * row - 1) // BLOCK])))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--fanouts", default="10,10,5")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--partition")
    args = parser.parse_args()
    ds = gsplit.open(args.dataset)
    n = ds.num_vertices
    options = {"form": "blocks", "numpy": True, "features": False, "labels": False, "seeds": "all"}
    loader = gsplit.NeighborLoader(ds, args.fanouts, args.batch_size, **options)

    def batches(epoch, count):
        loader.set_epoch(epoch)
        return [np.sort(batch.n_id) for batch, _ in zip(loader, range(count))]

    loads = np.zeros(n, np.int64)
    for batch in batches(2, OTHERS):
        loads[batch] += 1
    taken = batches(1, TAKEN)
    rows = sum(map(len, taken)) / len(taken)
    by_heat = np.argsort(-loads, kind="stable")
    heat = np.empty(n, np.int64)
    heat[by_heat] = np.arange(n)
    orders = {"id": np.arange(n), "hotness": heat}
    if args.partition:
        place = np.empty(n, np.int64)
        place[np.lexsort((heat, ds.partition(args.partition).assignment))] = np.arange(n)
        orders["part"] = place
    print(f"{ds.name}: {n} rows, {rows:.0f} a mini-batch ({rows / n:.1%}); blocks a mini-batch, rows by {', '.join(orders)}")
    for row in (200, 512, 1024):
        for memory in (0.1, 0.25, 0.5):
            for window in (1, 2, 4, 8):
                kept = int(memory * n - window * rows)
                if kept < 0:
                    continue
                read = dict.fromkeys(orders, 0)
                for first in range(0, len(taken), window):
                    asked = np.unique(np.concatenate(taken[first : first + window]))
                    asked = asked[heat[asked] >= kept]
                    for name, place in orders.items():
                        read[name] += blocks(place[asked], row)
                counts = "  ".join(f"{count / len(taken):8.0f}" for count in read.values())
                print(f"  rows of {row:4} B, memory for {memory:4.0%}, {kept / n:4.0%} kept, window {window}: {counts}")


if __name__ == "__main__":
    main()
