"""What `gsplit train` leaves is read by the tools it is for: check_training.py DATASET RUN

RUN holds `checkpoints`, `log.jsonl` and `tb` of a run that was resumed once, and `plateau.jsonl` of another.
PyTorch loads the weights and computes the same accuracies; TensorBoard shows every epoch once, and every record of
mini-batches; torch's schedulers have had the same learning rates.
"""

import json
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import torch
from dataset import check

ROOT = Path(__file__).resolve().parent.parent.parent

TAGS = {
    "loss/train": "loss",
    "metric/train": "train",
    "metric/valid": "valid",
    "metric/test": "test",
    "optimizer/learning_rate": "learning_rate",
    "optimizer/gradient_norm": "gradient_norm",
    "work/edges": "edges",
}
STEP_TAGS = {
    "loss/train": "loss",
    "optimizer/learning_rate": "learning_rate",
    "seconds/steps": "seconds",
    "work/edges_per_s": "edges_per_s",
}


def weights(path, run, epochs):
    sys.path[:0] = [str(ROOT / "python" / "src"), str(ROOT / "python" / "examples")]
    import gsplit
    import sage
    from safetensors.torch import load_file

    ds = gsplit.open(path)
    for name in ("epoch-00006", "best"):
        checkpoint = run / "checkpoints" / name
        document = json.loads((checkpoint / "checkpoint.json").read_text())["content"]
        epoch = epochs[document["history"][-1]["epoch"] - 1]
        right = sage.logits(ds, checkpoint).argmax(1).numpy() == ds.labels
        for split in ("valid", "test"):
            found = right[ds.split(split).astype(np.int64)].mean()
            one = 1.5 / len(ds.split(split))  # one row may round to the other side
            assert abs(found - epoch[split]) < one, f"{name}, {split}: torch {found}, gsplit {epoch[split]}"
    best = max(epoch["valid"] for epoch in epochs)
    check("torch: the best checkpoint is of the best epoch", (epoch["valid"], best))
    state, model = (load_file(checkpoint / f"{name}.safetensors") for name in ("optimizer", "model"))
    count = sum(tensor.numel() for tensor in model.values())
    shapes = {name: list(tensor.shape) for name, tensor in state.items()}
    assert shapes == {"first_moment": [count], "second_moment": [count]}, shapes
    assert all(tensor.dtype == torch.float32 for tensor in model.values())
    print("ok      torch: weights and the optimizer's state load; the same accuracies come of them", flush=True)


def event_files(folder, records, axis, tags):
    """The scalars `tags` in `folder` equal the values in `records`, over the values of `axis`."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    for tag, key in tags.items():
        scalars, name = events.Scalars(tag), f"tensorboard's reader: {folder.name}: {tag}"
        check(f"{name}: steps", ([s.step for s in scalars], [record[axis] for record in records]))
        found, expected = [s.value for s in scalars], [record[key] for record in records]
        check(name, (np.float32(found), np.float32(expected)))


def server(run, epochs):
    """As a browser asks for it."""
    from tensorboard import program

    board = program.TensorBoard()
    board.configure(argv=["tensorboard", "--logdir", str(run), "--host", "localhost", "--port", "0"])
    port = urllib.parse.urlsplit(board.launch()).port

    def get(path):
        with urllib.request.urlopen(f"http://localhost:{port}/data/plugin/scalars/{path}", timeout=30) as answer:
            return json.load(answer)

    query = urllib.parse.urlencode({"run": "tb", "tag": "loss/train"})
    for _ in range(120):
        if "loss/train" in get("tags").get("tb", {}) and len(get(f"scalars?{query}")) >= len(epochs):
            break
        time.sleep(0.5)
    shown = [(step, np.float32(value)) for _, step, value in get(f"scalars?{query}")]
    check("tensorboard's server: the loss", (shown, [(e["epoch"], np.float32(e["loss"])) for e in epochs]))


def schedules(run, epochs, seeds):
    config = json.loads((run / "checkpoints/best/checkpoint.json").read_text())["content"]["config"]
    per_epoch = -(-seeds // config["data"]["batch_size"])
    steps = per_epoch * len(epochs)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=config["run"]["optimizer"]["lr"])
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, config["run"]["schedule"]["min_lr"] or 0.0)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        cosine.step()
    ours = [epoch["learning_rate"] for epoch in epochs]
    assert np.allclose(ours, rates[per_epoch - 1 :: per_epoch], rtol=1e-9), (ours, rates)
    print("ok      torch: CosineAnnealingLR has had the same learning rates", flush=True)

    plateau = [json.loads(line) for line in (run / "plateau.jsonl").read_text().splitlines()]
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=plateau[0]["learning_rate"])
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=1)
    rates = []
    for epoch in plateau:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step(epoch["valid"])
    ours = [epoch["learning_rate"] for epoch in plateau]
    assert np.allclose(ours, rates, rtol=1e-12) and len(set(ours)) > 2, (ours, rates)
    print("ok      torch: ReduceLROnPlateau has had the same learning rates", flush=True)


def main(path, run):
    run = Path(run)
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    epochs = [record for record in records if "step" not in record]
    steps = [record for record in records if "step" in record]
    per_epoch = -(-len(np.load(Path(path) / "splits/train.npy")) // 256)
    check("jsonl: mini-batches", ([s["step"] for s in steps], list(range(2, len(epochs) * per_epoch + 1, 2))))
    weights(path, run, epochs)
    schedules(run, epochs, len(np.load(Path(path) / "splits/train.npy")))
    event_files(run / "tb", epochs, "epoch", TAGS)
    event_files(run / "tb" / "steps", steps, "step", STEP_TAGS)
    server(run, epochs)


if __name__ == "__main__":
    main(*sys.argv[1:])
