"""One sentence and one exit code for each kind of error."""

import errno

import typer

FAILED = 1
MISUSED = 2

# The base of Typer's errors about a command line; it has no public name in all versions of Typer.
CommandLineError = typer.BadParameter.__mro__[2]

_OS_SENTENCES = {
    errno.ENOENT: "there is no {file}; check the path",
    errno.EACCES: "no permission to use {file}; change its rights, or choose another place",
    errno.EPERM: "no permission to use {file}; change its rights, or choose another place",
    errno.EROFS: "{file} can only be read; choose another place",
    errno.EISDIR: "{file} is a directory; name a file",
    errno.ENOTDIR: "{file} is not a directory; name one",
    errno.EEXIST: "{file} exists and is not a directory; choose another place",
    errno.ENOSPC: "no space is left for {file}; free some, or choose another disk",
    errno.EMFILE: "too many files are open; allow more with 'ulimit -n'",
}


def explain(error: Exception) -> tuple[str, int]:
    """The sentence and the exit code for an error that reached the top."""
    from posthouse.client.errors import BadArgument, ClientError
    from posthouse.consistency.errors import ConsistencyError
    from posthouse.model.errors import InvalidConfig, PosthouseError
    from posthouse.spark.errors import SparkError

    if isinstance(error, CommandLineError):
        return _usage(error), getattr(error, "exit_code", MISUSED)
    if isinstance(error, BadArgument | InvalidConfig):
        return str(error), MISUSED
    if isinstance(error, ClientError | ConsistencyError | PosthouseError | SparkError):
        return str(error), FAILED
    if isinstance(error, OSError):
        return _os_sentence(error), FAILED
    kind = type(error).__name__
    return f"this is a bug ({kind}: {error}); run it again with --debug to see where, and report it", FAILED


def _usage(error: BaseException) -> str:
    message: str = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    message = message[:1].lower() + message[1:].rstrip(".")
    if context is None or not message:
        return message
    return f"{message}; see '{context.command_path} --help'"


def _os_sentence(error: OSError) -> str:
    file = error.filename or "a file"
    sentence = _OS_SENTENCES.get(error.errno or 0)
    if sentence is None:
        return f"{file}: {error.strerror or error}; run it again with --debug to see where"
    return sentence.format(file=file)
