"""Opens gsplit dataset directories where they lie on disk.

>>> import gsplit
>>> ds = gsplit.open("arxiv")  # doctest: +SKIP

Arrays are memory maps: opening reads the manifest and the lengths of the files, and nothing else. They are read-only.
Values are not checked here; `gsplit verify` does that, by checksum. Only format version 2 is read.
"""

from ._artifacts import Partition, Presample
from ._dataset import Dataset
from ._dataset import open_dataset as open
from ._errors import DatasetError
from ._features import FeatureBatch, Features
from ._labels import MultiLabels

__all__ = ["Dataset", "DatasetError", "FeatureBatch", "Features", "MultiLabels", "Partition", "Presample", "open"]
