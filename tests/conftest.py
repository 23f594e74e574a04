"""The same surroundings for every run.

Hypothesis draws the same examples in every run of `make test`, and new ones in `make explore`.
"""

import os
import signal

from hypothesis import settings

from tests.surroundings import isolate

isolate(os.environ)

# A shell that runs this in the background ignores Ctrl-C, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without deadlines: how long an example takes says more of the machine's other work than of the test.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("new", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("same")
