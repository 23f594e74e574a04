"""Errors of properties of a message."""


class PropertyError(Exception):
    """The publisher is at fault."""

    code: int

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class InvalidProperty(PropertyError):
    """A property that can be read but means nothing. The channel ends with PRECONDITION_FAILED."""

    code = 406


class MalformedProperties(PropertyError):
    """Bytes that are no property list. The connection ends with SYNTAX_ERROR."""

    code = 502
