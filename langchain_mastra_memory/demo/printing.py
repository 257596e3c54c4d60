"""How the demonstration looks on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text


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
        self.console.print(Text.assemble((f"{who:>6}  ", f"bold {color}"), text))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table; numbers stand to the right."""
        table = Table(show_edge=False, pad_edge=False, header_style="bold", box=None, padding=(0, 2, 0, 0))
        cells = [list(row) for row in rows]
        for number, column in enumerate(columns):
            numeric = bool(cells) and all(isinstance(row[number], int | float) for row in cells)
            table.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(f"{cell:.0f}" if isinstance(cell, float) else str(cell)) for cell in row))
        self.console.print(table)

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
