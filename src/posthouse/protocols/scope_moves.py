"""The spread scopes that a broker holds, and how they came and went since it has started."""

from collections import Counter
from dataclasses import dataclass, field

from posthouse.model.histogram import Histogram


@dataclass(slots=True, kw_only=True)
class ScopeMoves:
    """Owned by the event loop."""

    held: Counter[str] = field(default_factory=Counter)
    """By kind, as the others."""
    taken: Counter[str] = field(default_factory=Counter)
    handed_over: Counter[str] = field(default_factory=Counter)
    load_seconds: Histogram = field(default_factory=Histogram)
    """How long it took to load a scope, from the moment that this broker had taken it."""
    unload_seconds: Histogram = field(default_factory=Histogram)
    """How long it took to hand over a scope: its commits in flight end, then others may take it."""
