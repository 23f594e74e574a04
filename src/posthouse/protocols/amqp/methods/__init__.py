"""Handlers of the methods of channels, one module per class of methods, and the table of them all."""
