"""The program `posthouse`: from the command line to an exit code. Light imports, because `serve` starts
here."""

import os
import sys

from posthouse.cli.invocation import Invocation
from posthouse.cli.output import complain, give_up_stdout, print_traceback
from posthouse.cli.serve_options import plain_values, start
from posthouse.environment import check_environment


def main() -> None:
    sys.excepthook = print_traceback  # for --debug
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        give_up_stdout()
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """The exit code: 0 success, 1 failure, 2 wrong usage."""
    invocation = Invocation()
    try:
        return _run(arguments, invocation)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if invocation.debug:
            raise
        from posthouse.cli.sentences import explain

        sentence, status = explain(error)
        # Help shown for an empty command line is an error without a message.
        if sentence:
            complain(sentence)
        return status


def _run(arguments: list[str], invocation: Invocation) -> int:
    check_environment(os.environ)
    if arguments[:1] == ["serve"]:
        values = plain_values(arguments[1:], os.environ)
        if values is not None:
            start(**values)
            return 0
    from posthouse.cli.program import execute

    return execute(arguments, invocation)


if __name__ == "__main__":
    main()
