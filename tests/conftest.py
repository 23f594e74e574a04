"""Hypothesis draws the same examples in every run of `make test`, and new ones in `make explore`."""

from hypothesis import settings

settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False, print_blob=True)
settings.load_profile("same")
