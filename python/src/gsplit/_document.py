"""Reads `dataset.json`, `presample.json` and `partition.json`.

Each is `{"format": ..., "format_version": ..., "checksum": ..., "content": {...}}`. The content lists every file beside
the document with its length, which is compared here; the checksums are for `gsplit verify`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ._errors import DatasetError, damaged


class Document:
    """The content of one document. Fields are read with the type they must have."""

    def __init__(self, path: Path, content: dict[str, Any], checksum: str) -> None:
        self.path = path
        self.content = content
        self.checksum = checksum

    def count(self, key: str) -> int:
        """A number that is not negative."""
        value = self._get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise damaged(self.path, f"`{key}` is {value!r:.80}, expected a number that is not negative")
        return value

    def text(self, key: str) -> str:
        """A string."""
        value = self._get(key)
        if not isinstance(value, str):
            raise damaged(self.path, f"`{key}` is {value!r:.80}, expected a string")
        return value

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise damaged(self.path, f"`{key}` is {value!r:.80}, expected true or false")
        return value

    def section(self, key: str) -> Document:
        """An object."""
        value = self._get(key)
        if not isinstance(value, dict):
            raise damaged(self.path, f"`{key}` is {value!r:.80}, expected an object")
        return Document(self.path, value, self.checksum)

    def optional_count(self, key: str) -> int | None:
        """A number that is not negative, or `None` where the document says null."""
        return None if self._get(key) is None else self.count(key)

    def file_checksum(self, name: str) -> str | None:
        """The recorded checksum of a file next to the document, `None` when it lists no such file."""
        files = self.section("files")
        return files.section(name).text("checksum") if name in files.content else None

    def _get(self, key: str) -> Any:
        if key not in self.content:
            raise damaged(self.path, f"has no `{key}`")
        return self.content[key]


def read(path: Path, expected_format: str, expected_version: int) -> Document:
    """Reads the document at `path` and compares the lengths of the files that it lists."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"expected JSON, found none ({error})") from error
    if not isinstance(envelope, dict):
        raise damaged(path, f"expected a {expected_format} document, found {type(envelope).__name__}")
    found = (envelope.get("format"), envelope.get("format_version"))
    if found != (expected_format, expected_version):
        problem = f"expected {expected_format} format version {expected_version}, found {found[0]} version {found[1]}"
        raise DatasetError(path, problem, "make it again with the gsplit of this package")
    whole = Document(path, envelope, "")
    document = Document(path, whole.section("content").content, whole.text("checksum"))
    files = document.section("files")
    for name in files.content:
        check_length(path.parent / name, files.section(name).count("bytes"))
    return document


def check_length(path: Path, expected: int) -> None:
    """Fails unless the file is there and has as many bytes as were recorded."""
    try:
        found = path.stat().st_size
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if found != expected:
        raise damaged(path, f"expected {expected} bytes, found {found}")


def unreadable(path: Path, error: Exception) -> DatasetError:
    """A file that the operating system does not give."""
    if isinstance(error, FileNotFoundError):
        return DatasetError(path, "the file is missing", "copy the whole directory again, or make it again with gsplit")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return DatasetError(path, f"cannot be read ({reason})", "check the path and its permissions")
