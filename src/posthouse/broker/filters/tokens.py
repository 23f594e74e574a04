"""The words, literals and symbols of an expression."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.broker.filters.limits import MAX_NUMBER_LENGTH
from posthouse.broker.filters.values import number
from posthouse.model.errors import InvalidFilter
from posthouse.model.excerpts import excerpt, printable


class TokenKind(Enum):
    NAME = auto()
    KEYWORD = auto()
    NUMBER = auto()
    TEXT = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    kind: TokenKind
    text: str
    """As in the expression; keywords in capitals."""
    position: int
    """Of its first character, counted from 1."""
    value: str | int | float = ""
    """Of a literal."""

    def __str__(self) -> str:
        return "the end" if self.kind is TokenKind.END else shown(self.text)


# LIKE and ESCAPE are names in RocketMQ: the parser knows them by their places.
KEYWORDS = frozenset(
    ("AND", "BETWEEN", "CONTAINS", "ENDSWITH", "FALSE", "IN", "IS", "NOT", "NULL", "OR", "STARTSWITH", "TRUE")
)

# Possessive quantifiers: text that is no token is read once.
_SKIPPED = re.compile(r"(?:[ \t\r\n\f]+|--[^\r\n]*|/\*(?s:.*?)\*/)*+")
_TOKEN = re.compile(
    r"""(?P<NAME> (?:[^\W\d]|\$) [\w$.]*+ )
      | (?P<NUMBER> (?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++) (?:[eE][+-]?[0-9]++)? )
      | (?P<TEXT> '[^']*+ (?:''[^']*+)*+ ' )
      | (?P<SYMBOL> <> | <= | >= | [=<>(),+-] )""",
    re.VERBOSE,
)


def tokens(expression: str) -> Iterator[Token]:
    """All tokens, one by one, and END for ever."""
    place = 0
    while True:
        skipped = _SKIPPED.match(expression, place)
        place = skipped.end() if skipped else place
        if place == len(expression):
            break
        match = _TOKEN.match(expression, place)
        if match is None:
            raise _unreadable(expression, place)
        token = _token(TokenKind[match.lastgroup or ""], match[0], place + 1)
        yield token
        place = match.end()
        if isinstance(token.value, int) and expression[place : place + 1] in ("l", "L"):
            place += 1  # as Java writes an integer of 64 bits
    end = Token(kind=TokenKind.END, text="", position=len(expression) + 1)
    while True:
        yield end


def _token(kind: TokenKind, text: str, position: int) -> Token:
    if kind is TokenKind.NAME and (keyword := text.upper()) in KEYWORDS:
        return Token(kind=TokenKind.KEYWORD, text=keyword, position=position)
    if kind is TokenKind.TEXT:
        return Token(kind=kind, text=text, position=position, value=text[1:-1].replace("''", "'"))
    if kind is TokenKind.NUMBER:
        value = number(text)
        if value is None:
            expected = f"a number of at most {MAX_NUMBER_LENGTH} characters that a double can hold"
            raise InvalidFilter(position, expected, shown(text))
        return Token(kind=kind, text=text, position=position, value=value)
    return Token(kind=kind, text=text, position=position)


def _unreadable(expression: str, place: int) -> InvalidFilter:
    end = len(expression) + 1
    if expression[place] == "'":
        return InvalidFilter(
            end, f"the closing ' of the text that begins at character {place + 1}", "the end"
        )
    if expression.startswith("/*", place):
        expected = f"the closing */ of the comment that begins at character {place + 1}"
        return InvalidFilter(end, expected, "the end")
    if expression.startswith("!=", place):
        return InvalidFilter(place + 1, "<> for unequal", "!=")
    return InvalidFilter(place + 1, "a property, a value or an operator", shown(expression[place]))


def shown(text: str) -> str:
    return printable(excerpt(text, 40))
