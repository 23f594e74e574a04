"""Text that a client made up, on its way into a log: short, and without characters that do something.

Names in requests may have tens of thousands of characters, and may hold line breaks, terminal escapes or
marks that turn the direction of writing around.
"""

EXCERPT_LENGTH = 256
"""Characters of a name that a log shows."""


def excerpt(text: str, limit: int = EXCERPT_LENGTH) -> str:
    """The text, or its beginning and how long it is."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters)"


def printable(text: str) -> str:
    """The text with everything that is no visible character escaped as Python escapes it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
