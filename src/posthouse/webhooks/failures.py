"""Why a request has no answer."""


class NoAnswer(Exception):
    """Says in a sentence what happened: a name that is unknown, a connection that was refused, a timeout."""
