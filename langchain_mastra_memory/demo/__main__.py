"""Play one act in this process: `python -m langchain_mastra_memory.demo tell URL RUN [MODEL]`."""

from __future__ import annotations

import logging
import sys

from langchain_mastra_memory.demo.acts import play
from langchain_mastra_memory.errors import MastraMemoryError

if __name__ == "__main__":
    act, url, run, *model = sys.argv[1:]
    # Whether tokens are estimated stands below the table that shows them.
    logging.getLogger("langchain_mastra_memory.tokens").setLevel(logging.ERROR)
    try:
        play(act, url=url, run=run, model=model[0] if model else None)
    except MastraMemoryError as error:
        sys.exit(f"{type(error).__name__}: {error}")
