"""How many examples Hypothesis draws: all in `make explore`, which draws other ones each time, and fewer in
`make test`, which would only see the same ones again."""

from hypothesis import settings

_ALL_UP_TO = 20
_SHARE = 3


def examples(most: int) -> int:
    """For settings that a module makes when it is imported: the profile is chosen by then."""
    if not settings().derandomize:
        return most
    return max(most // _SHARE, min(most, _ALL_UP_TO))
