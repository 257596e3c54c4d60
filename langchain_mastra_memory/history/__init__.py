"""The message window: counts, token budget, boundary, tool-pair rules."""
