"""Text of clients for log lines: shortened, and without control characters.

Names in requests may have tens of thousands of characters, and may contain line breaks, terminal escapes or
marks that change the direction of writing.
"""

EXCERPT_LENGTH = 256
"""Maximum number of characters of a name in a log line."""


def excerpt(text: str, limit: int = EXCERPT_LENGTH) -> str:
    """The text, or its beginning and its length."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters)"


def printable(text: str) -> str:
    """The text with all invisible characters escaped, in Python's notation."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
