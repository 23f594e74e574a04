"""A no-op callback for the parts of a lost connection.

The parts of a connection call it back. When the connection is lost, they get this callback instead, so that
nothing refers to the connection and its memory is freed without the garbage collector.
"""


def noop(*_: object) -> None:
    pass
