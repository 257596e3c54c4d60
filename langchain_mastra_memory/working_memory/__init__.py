"""Working memory: document rules, channel, tool, state signal."""
