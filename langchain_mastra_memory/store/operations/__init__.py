"""Units of work as plain data, grouped as the protocol groups them."""
