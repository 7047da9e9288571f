"""The errors of this package."""

from __future__ import annotations

from pathlib import Path


class DatasetError(Exception):
    """A dataset cannot be read. One line: the file, the expected and the found content, and a remedy."""

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


class CommandError(Exception):
    """A gsplit command failed. One line: its error message."""

    def __init__(self, command: list[str], exit_code: int | None, message: str) -> None:
        super().__init__(command, exit_code, message)
        self.command = command
        """The program and its arguments."""
        self.exit = exit_code
        """1 for a failure, 2 for wrong options, -n for signal n; `None` where it could not be started."""
        self.message = message
        """What it said."""

    def __str__(self) -> str:
        """The message."""
        return self.message
