"""Whom to tell when there is nobody any more.

What belongs to a connection calls it back. When the connection is lost, these callbacks become this one, so
that nothing refers to it and it goes without the help of the collector.
"""


def nobody(*_: object) -> None:
    pass
