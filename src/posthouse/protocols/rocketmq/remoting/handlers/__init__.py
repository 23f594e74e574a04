"""One file for each group of request codes."""
