"""Opens gsplit dataset directories where they lie on disk, draws mini-batches of them, and runs gsplit's commands.

>>> import gsplit
>>> ds = gsplit.open("arxiv")  # doctest: +SKIP
>>> loader = gsplit.NeighborLoader(ds, [15, 10, 5], batch_size=1024)  # doctest: +SKIP
>>> report = gsplit.train(ds, layers=3, fanouts=[15, 10, 5])  # doctest: +SKIP

Arrays are memory maps: opening reads the manifest and the lengths of the files, and nothing else. They are read-only.
Values are not checked here; `gsplit verify` does that, by checksum. Only format version 2 is read.
"""

from ._artifacts import Partition, Presample
from ._batches import Block, MiniBatch, Subgraph
from ._commands import (
    clean,
    convert,
    evaluate,
    export,
    generate,
    infer,
    partition,
    place,
    plan,
    presample,
    report,
    run,
    train,
)
from ._dataset import Dataset
from ._dataset import open_dataset as open
from ._errors import CommandError, DatasetError
from ._export import Tensors
from ._features import FeatureBatch, Features
from ._labels import MultiLabels
from ._loader import NeighborLoader
from ._types import VertexType

__version__ = "0.1.0"

__all__ = [
    "Block",
    "CommandError",
    "Dataset",
    "DatasetError",
    "FeatureBatch",
    "Features",
    "MiniBatch",
    "MultiLabels",
    "NeighborLoader",
    "Partition",
    "Presample",
    "Subgraph",
    "Tensors",
    "VertexType",
    "__version__",
    "clean",
    "convert",
    "evaluate",
    "export",
    "generate",
    "infer",
    "open",
    "partition",
    "place",
    "plan",
    "presample",
    "report",
    "run",
    "train",
]
