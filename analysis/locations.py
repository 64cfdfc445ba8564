"""Where the commands find runs: directories, or `s3://BUCKET/PREFIX`, fetched whole and with their results put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from traces.errors import RamptraceError
from traces.mirror import Mirror, fetch_run, is_remote


@contextmanager
def opened(locations: Sequence[str]) -> Iterator[list[Path]]:
    """Give the runs' local directories, one for each location; what is written to `analysis/` goes back to S3.

    Errors name the location as it was given.
    """
    fetched = {location: fetch_run(location) for location in dict.fromkeys(locations) if is_remote(location)}
    try:
        yield [fetched[location].folder if location in fetched else Path(location) for location in locations]
    except RamptraceError as error:
        message = str(error)
        for location, copy in fetched.items():
            message = message.replace(str(copy.folder), location.rstrip("/"))
        raise type(error)(message) from error
    for location, copy in fetched.items():
        if (copy.folder / "analysis").is_dir():
            Mirror(copy.folder, location).put("analysis", "report.html")
