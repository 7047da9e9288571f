#!/usr/bin/env python3
"""Counts clipped English in comments, documents and messages, and fails if it has become more.

    words.py          the number of places; fails above MOST
    words.py --list   every place: file, line and the words

A place may be right as it is ("the vector stands for ..."), so the number need not be 0; it may only fall. CONTRIBUTING.md says how to write.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 243
# Words, and better ones.
CLIPPED = {
    "say the noun": r"\b[Ww]hat (?:an?|are|can|comes|could|did|do(?:es)?|each|fits|follows|goes|ha[ds]|have|is|it|lies|ma[dk]es?|may|moves|must|needs"
    r"|one|others?|reads?|remains|takes?|that|the|they|this|training|was|were|will|would)\b(?!.*\?)",
    "repeat the noun": r"\b[Tt]hose (?:in|of|that|which|who|whose|with)\b",
    "name the number": r"\b[Ss]o (?:many|much|often)\b",
    "prints, reports": r"\b(?:are|is|was|were) told\b|\btells\b",
    "is": r"\b(?:lies?|stands?)\b",
    "next to, as well as, compared with": r"\bbeside\b",
    "except": r"\bbut for\b",
    "only": r"\b\w+ alone\b",
    "the caller": r"\b(?:by|for|of) who(?:ever)?\b",
    "is not a": r"\b(?:are|is) (?:no|none) \w+",
    "e.g.": r"\bas [0-9`'\"]",
    "checked, detected": r"\b(?:found out|looked at)\b",
    "a full sentence": r"^(?:As|The same)[,. ]",
}
SKIPPED = ("LICENSE", "fuzz/corpus/", "scripts/words.py", "tests/data/")
COMMENT = re.compile(r"\s*(?://[/!]?|#(?![!\[]))\s?(.*)")
MESSAGE = re.compile(r'"([A-Za-z][^"]{25,})"')


def texts(path: str):
    """Yields the line number and text of each comment, message and line of a document."""
    fenced = False
    for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1):
        if path.endswith(".md"):
            fenced ^= line.lstrip().startswith("```")
            found = [] if fenced else [re.sub(r"`[^`]*`", "`x`", line)]
        else:
            comment = COMMENT.match(line)
            found = [comment.group(1)] if comment else MESSAGE.findall(line)
        yield from ((number, text) for text in found)


def main() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    kinds = (".rs", ".cu", ".cuh", ".cpp", ".h", ".py", ".pyi", ".sh", ".md")
    places = 0
    for path in files:
        if not path.endswith(kinds) or path.startswith(SKIPPED) or not (ROOT / path).exists():
            continue
        for number, text in texts(path):
            for better, pattern in CLIPPED.items():
                found = [match[0] for match in re.finditer(pattern, text)]
                places += len(found)
                if found and "--list" in sys.argv:
                    print(f"{path}:{number}: {', '.join(found)} ({better}): {text.strip()[:120]}")
    print(f"clipped English in {places} places, at most {MOST}")
    if places > MOST:
        sys.exit("error: write the new sentences in full, or see `python3 scripts/words.py --list`")


if __name__ == "__main__":
    main()
