"""The public names of the package."""
