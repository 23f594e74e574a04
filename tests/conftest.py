"""Hypothesis draws the same examples in every run of `make test`, and new ones in `make explore`."""

import signal

from hypothesis import settings

# A shell that runs this in the background ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False, print_blob=True)
settings.load_profile("same")
