"""Regular expressions over topic names, matched in time linear in the name.

Anybody may subscribe with any expression, and Python's own matcher can be made to run for ever. This one
follows all alternatives at once (Thompson's construction) and remembers the sets of states it has
been in. It has what RE2 has and subscriptions use: alternatives, groups, classes, repetition and anchors.
What RE2 lacks, such as back-references and look-around, is refused. An expression must match all of a name.
"""

import re
from collections.abc import Callable, Iterable

from posthouse.model.errors import InvalidPattern

MAX_LENGTH = 1000
_MAX_STATES = 5000
_MAX_REPEAT = 1000
_MAX_DEPTH = 50
_MAX_REMEMBERED = 20_000

_Accepts = Callable[[str], bool]
_Part = Callable[[int], int]
"""Given the state that follows, adds its own states before it and returns the first."""

_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")
_GROUP = re.compile(r"\(\?(?::|P?<[A-Za-z_]\w*>)")
_CLASS_ESCAPES = frozenset("dDwWsS")


class _States:
    """Each has a character test and one successor, or any number of successors that cost no character."""

    def __init__(self) -> None:
        self.tests: list[_Accepts | None] = []
        self.nexts: list[list[int]] = []
        self.at_start: set[int] = set()
        self.at_end: set[int] = set()

    def add(self, test: _Accepts | None, nexts: Iterable[int]) -> int:
        if len(self.tests) >= _MAX_STATES:
            raise InvalidPattern("the expression repeats too much")
        self.tests.append(test)
        self.nexts.append(list(nexts))
        return len(self.tests) - 1

    def reached(self, states: Iterable[int], *, start: bool = False, end: bool = False) -> frozenset[int]:
        """Everywhere one can get to from `states` without a character."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            blocked = (state in self.at_start and not start) or (state in self.at_end and not end)
            if state in found:
                continue
            found.add(state)
            if self.tests[state] is None and not blocked:
                waiting += self.nexts[state]
        return frozenset(found)


class TopicPattern:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidPattern(f"an expression may have {MAX_LENGTH} characters, this one has {len(text)}")
        self.text = text
        self._states = _States()
        self._accepting = self._states.add(None, ())
        first = _Parser(text, self._states).parsed()(self._accepting)
        self._start = self._states.reached([first], start=True)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        here = self._start
        for char in name:
            step = self._steps.get((here, char))
            if step is None:
                step = self._step(here, char)
            here = step
            if not here:
                return False
        return self._accepting in self._states.reached(here, start=not name, end=True)

    def _step(self, here: frozenset[int], char: str) -> frozenset[int]:
        if len(self._steps) >= _MAX_REMEMBERED:
            self._steps.clear()
        tests, nexts = self._states.tests, self._states.nexts
        hit = [nexts[state][0] for state in here if (test := tests[state]) is not None and test(char)]
        there = self._steps[here, char] = self._states.reached(hit)
        return there


class _Parser:
    def __init__(self, text: str, states: _States) -> None:
        self._text = text
        self._states = states
        self._pos = 0
        self._depth = 0

    def parsed(self) -> _Part:
        part = self._alternatives()
        if self._pos < len(self._text):
            raise self._wrong("an unexpected ')'")
        return part

    def _wrong(self, what: str) -> InvalidPattern:
        return InvalidPattern(f"the expression {self._text!r} has {what} at {self._pos}")

    def _peek(self) -> str:
        return self._text[self._pos : self._pos + 1]

    def _alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._pos += 1
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        return lambda then: self._states.add(None, [part(then) for part in parts])

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated())

        def build(then: int) -> int:
            for part in reversed(parts):
                then = part(then)
            return then

        return build

    def _repeated(self) -> _Part:
        part = self._atom()
        limits = self._limits()
        if limits is None:
            return part
        if self._peek() == "?":
            # Lazy or not makes no difference to whether a name matches.
            self._pos += 1
        if self._limits() is not None:
            raise self._wrong("a repetition of a repetition")
        return self._times(part, *limits)

    def _limits(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self._peek()
        if char in simple:
            self._pos += 1
            return simple[char]
        found = _REPEAT.match(self._text, self._pos) if char == "{" else None
        if found is None:
            return None
        low = int(found[1])
        high = low if found[2] is None else int(found[3]) if found[3] else None
        if max(low, high or 0) > _MAX_REPEAT or (high is not None and high < low):
            raise self._wrong("an impossible repetition")
        self._pos = found.end()
        return low, high

    def _times(self, part: _Part, low: int, high: int | None) -> _Part:
        states = self._states

        def build(then: int) -> int:
            if high is None:
                loop = states.add(None, [then])
                states.nexts[loop].append(part(loop))
                first = loop
            else:
                first = then
                for _ in range(high - low):
                    first = states.add(None, [part(first), then])
            for _ in range(low):
                first = part(first)
            return first

        return build

    def _atom(self) -> _Part:
        char = self._peek()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        self._pos += 1
        if char == ".":
            return self._char(lambda _: True)
        if char == "\\":
            return self._escape()
        if char == "^":
            return self._anchor(self._states.at_start)
        if char == "$":
            return self._anchor(self._states.at_end)
        if char in "*+?":
            raise self._wrong("nothing to repeat")
        return self._char(char.__eq__)

    def _group(self) -> _Part:
        found = _GROUP.match(self._text, self._pos)
        if found is None and self._text.startswith("(?", self._pos):
            raise self._wrong("a kind of group that is not supported")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._wrong("too many groups inside each other")
        self._pos = found.end() if found else self._pos + 1
        part = self._alternatives()
        if self._peek() != ")":
            raise self._wrong("an open group")
        self._pos += 1
        self._depth -= 1
        return part

    def _class(self) -> _Part:
        start = self._pos
        self._pos += 2 if self._text.startswith("[^", start) else 1
        while self._peek() != "]" or self._pos == start + 1 or self._text[start : self._pos] == "[^":
            if not self._peek():
                raise self._wrong("an open class")
            self._pos += 2 if self._peek() == "\\" else 1
        self._pos += 1
        return self._char(_single(self._text[start : self._pos].replace("[", "\\[").replace("\\[", "[", 1)))

    def _escape(self) -> _Part:
        char = self._peek()
        self._pos += 1
        if char in ("A", "z"):
            return self._anchor(self._states.at_start if char == "A" else self._states.at_end)
        if char in _CLASS_ESCAPES:
            return self._char(_single("\\" + char))
        if not char or char.isalnum():
            raise self._wrong("an escape that is not supported")
        return self._char(char.__eq__)

    def _char(self, test: _Accepts) -> _Part:
        return lambda then: self._states.add(test, [then])

    def _anchor(self, anchors: set[int]) -> _Part:
        def build(then: int) -> int:
            state = self._states.add(None, [then])
            anchors.add(state)
            return state

        return build


def _single(text: str) -> _Accepts:
    """One character against a class: Python's own matcher cannot go astray in that."""
    try:
        compiled = re.compile(text)
    except re.error as error:
        raise InvalidPattern(f"{text!r}: {error}") from None
    return lambda char: compiled.match(char) is not None
