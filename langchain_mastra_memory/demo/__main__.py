"""The demonstration; with `tell URL RUN [MODEL]`, one act of it in this process."""

from __future__ import annotations

import logging
import sys

from langchain_mastra_memory.demo.acts import play
from langchain_mastra_memory.errors import MastraMemoryError

if __name__ == "__main__":
    if len(sys.argv) < 4:  # the command plays its acts in processes of their own
        from langchain_mastra_memory.cli import app

        app(["demo", *sys.argv[1:]], prog_name="python -m langchain_mastra_memory.demo")
    act, url, run, *model = sys.argv[1:]
    # Whether tokens are estimated stands below the table that shows them.
    logging.getLogger("langchain_mastra_memory.tokens").setLevel(logging.ERROR)
    try:
        play(act, url=url, run=run, model=model[0] if model else None)
    except MastraMemoryError as error:
        sys.exit(f"{type(error).__name__}: {error}")
