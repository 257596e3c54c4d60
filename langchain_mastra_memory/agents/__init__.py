"""Agent middleware, graph nodes, sub-agents, multi-user turns."""
