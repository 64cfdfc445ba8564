"""The errors a user can meet, each with the exit code that the command line ends with.

Messages are one line: what is wrong, where (file and row), what was expected, and the next step.
"""

from __future__ import annotations


class RamptraceError(Exception):
    """An error with a message fit for a user; ends the command with `exit_code`."""

    exit_code = 1


class BadInputError(RamptraceError):
    """Wrong usage, or a file that is not what it should be (exit code 2)."""

    exit_code = 2


class GateFailedError(RamptraceError):
    """A threshold does not hold (exit code 3)."""

    exit_code = 3


class UnreachableError(RamptraceError):
    """The target or the platform cannot be reached (exit code 4)."""

    exit_code = 4


class InvalidRunError(RamptraceError):
    """The load generator did not hold its schedule, so the measurement is worth nothing (exit code 5)."""

    exit_code = 5


EXIT_INTERRUPTED = 130


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text: polars adds lines that tell a user nothing."""
    return str(error).partition("\n")[0]


def did_you_mean(word: str, known: list[str]) -> str:
    """Return ` (did you mean "x"?)` for the nearest known word, or an empty string.

    >>> did_you_mean("taget", ["target", "trace"])
    ' (did you mean "target"?)'
    >>> did_you_mean("zzz", ["target", "trace"])
    ''
    """
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""
