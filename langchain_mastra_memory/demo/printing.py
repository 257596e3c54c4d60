"""How the demonstration looks on a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

# What a terminal would act on or cannot show: control characters but newline and tab, what turns the direction of
# writing, halves of surrogate pairs.
_UNSAFE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST_WHOLE_ID: Final = 40
WIDEST: Final = 100_000


class Stage:
    """Prints the demonstration; plain text where the output is no terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=False)

    def act(self, title: str, remarks: Sequence[str]) -> None:
        """Open an act: its title, and what the reader should know."""
        self.console.print()
        self.console.print(Rule(Text(title, "bold")))
        for remark in remarks:
            self.console.print(Text(remark, "dim"))

    def heading(self, text: str) -> None:
        """Print what comes next."""
        self.console.print()
        self.console.print(Text(text, "bold cyan"))

    def turn(self, question: str, answer: str) -> None:
        """Print one turn."""
        self._line("Ada", "green", question)
        self._line("agent", "magenta", answer)

    def _line(self, who: str, color: str, text: str) -> None:
        self.console.print(Text.assemble((f"{who:>6}  ", f"bold {color}"), self._visible(text)))

    def _visible(self, text: str) -> str:
        """Return a text with escapes for what a terminal would act on and what the output's encoding lacks."""
        safe = _UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)
        return safe.encode(self.console.encoding, "backslashreplace").decode(self.console.encoding)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table; numbers stand to the right, and the ids of the first column stay whole.

        Where the output is no terminal each row is one line, for `grep` and its like.
        """
        table = Table(show_edge=False, pad_edge=False, header_style="bold", box=None, padding=(0, 2, 0, 0))
        cells = [list(row) for row in rows]
        for number, column in enumerate(columns):
            numeric = bool(cells) and all(isinstance(row[number], int | float) for row in cells)
            longest = max((len(str(row[number])) for row in cells), default=0)
            table.add_column(
                column,
                justify="right" if numeric else "left",
                overflow="fold",
                no_wrap=number == 0 and longest <= LONGEST_WHOLE_ID,
            )
        for row in cells:
            table.add_row(*(Text(self._cell(cell)) for cell in row))
        whole = not self.console.is_terminal and "COLUMNS" not in os.environ
        console = Console(highlight=False, width=WIDEST) if whole else self.console
        console.print(table)

    def _cell(self, value: object) -> str:
        text = f"{value:.0f}" if isinstance(value, float) else str(value)
        return self._visible(text).replace("\n", "\\n").replace("\t", " ")

    def remark(self, text: str) -> None:
        """Print a remark."""
        self.console.print(Text(text, "dim"))

    def check(self, text: str) -> None:
        """Print something that was verified while the demonstration ran."""
        self.console.print(Text.assemble(("    ok  ", "bold green"), text))

    def closing(self, lines: Sequence[str]) -> None:
        """Print the last words in a frame."""
        self.console.print()
        self.console.print(Panel(Text("\n".join(lines)), expand=False, border_style="green"))


def shortened(text: str, length: int = 60) -> str:
    """Return a text on one line, cut to a length in characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"
