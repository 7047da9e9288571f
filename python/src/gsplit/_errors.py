"""The one error of this package."""

from __future__ import annotations

from pathlib import Path


class DatasetError(Exception):
    """A dataset cannot be read. One line: which file, what was expected and found, what to do."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__(path, problem, remedy)
        self.path = path
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        """`path: problem; remedy`."""
        return f"{self.path}: {self.problem}; {self.remedy}"


def damaged(path: Path, problem: str) -> DatasetError:
    """A file that is not what its format or the manifest promises."""
    return DatasetError(path, problem, "run `gsplit verify` and rebuild what it names")
