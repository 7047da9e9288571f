"""Says how long an epoch takes under split and under data parallelism, and why, by what the logs of two runs have.

verdict.py SPLIT.jsonl DATA.jsonl
"""

import json
import statistics
import sys

# Ratios nearer to 1 than this are within the noise of two runs.
NOISE = 0.05


def means(path):
    """The median seconds of an epoch and of its exchange with waiting, and the work of an epoch: edges and rows loaded."""
    with open(path) as log:
        epochs = [epoch for epoch in map(json.loads, log) if "step" not in epoch]
    return {key: statistics.median(epoch[key] for epoch in epochs) for key in ["seconds", "exchange_s", "edges", "rows_loaded"]}


def main():
    split, data = map(means, sys.argv[1:3])
    ratio = split["seconds"] / data["seconds"]
    print(f"split: {split['seconds']:.2f} s an epoch; data: {data['seconds']:.2f} s; split takes {ratio:.2f} of data's time")
    work = [f"{100 * split[key] / data[key]:.0f} %" for key in ["edges", "rows_loaded"]]
    saved = f"split computes {work[0]} of data's edges and loads {work[1]} of its rows"
    if ratio <= 1 - NOISE:
        print(f"Here the work decides: {saved}, which saves more than its exchange costs.")
    elif ratio < 1 + NOISE:
        print(f"Here neither is faster: {saved}, and its exchange ({split['exchange_s']:.2f} s an epoch) takes as much time again.")
    else:
        print(
            f"Here the exchange decides, and split is slower: {saved}, but ranks exchange and wait for {split['exchange_s']:.2f} s an "
            "epoch. Wider layers, more of them, or larger fanouts give the work more weight."
        )


if __name__ == "__main__":
    main()
