"""What can be wrong with a message."""


class MalformedMessage(Exception):
    """Bytes that are no message of this type, or a value that its field cannot hold."""
