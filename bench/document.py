"""Tables of REPRODUCTION.md: each is between `<!-- begin NAME -->` and `<!-- end NAME -->`, and is written there by its benchmark."""

import measure

DOCUMENT = measure.ROOT / "REPRODUCTION.md"


class Table:
    """A table under construction, with the commands that its numbers are from."""

    def __init__(self, *columns):
        self.columns, self.rows, self.commands, self.notes = columns, [], [], []

    def add(self, *cells):
        self.rows.append([format_cell(cell) for cell in cells])

    def text(self):
        fences = ["```", *dict.fromkeys(self.commands), "```", ""] if self.commands else []
        head = ["| " + " | ".join(self.columns) + " |", "|" + " --- |" * len(self.columns)]
        return "\n".join([*fences, *head, *("| " + " | ".join(row) + " |" for row in self.rows), *self.notes])


def format_cell(cell):
    return f"{cell:.3g}" if isinstance(cell, float) and abs(cell) < 1000 else f"{cell:,.0f}" if isinstance(cell, (int, float)) else cell


def write(name, text):
    """Puts `text` into its place in the document."""
    document = DOCUMENT.read_text()
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    if document.count(begin) != 1 or document.count(end) != 1:
        raise measure.BenchError(f"{DOCUMENT.name} has no place for {name}")
    before, rest = document.split(begin)
    DOCUMENT.write_text(f"{before}{begin}{text}\n{end}{rest.split(end)[1]}")
