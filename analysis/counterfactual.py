"""What changed between two start-ups in which an image pull and a model download run side by side.

All lengths in one unit of the caller's choice. Names: `pull` and `download` are the lengths from the common start of
the parallel group; `rest` is everything outside of the group.
"""

from __future__ import annotations

import msgspec


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A telescoping split: `structural + relief + rest` is the change of the start-up exactly."""

    structural: int
    relief: int
    rest: int


def telescope(
    *, group_before: int, download_before: int, download_after: int, rest_before: int, rest_after: int
) -> Split:
    """Return the split of a start-up's change, elimination of the pull first.

    `group_before` is the length of the parallel group, `max(pull, download)`, before; after, the download alone.
    structural = group_before − download_before: what the pull took beyond the download, waited for by nobody now.
    relief = download_before − download_after: the download is faster without a pull beside it.
    rest = rest_before − rest_after.

    >>> telescope(group_before=333, download_before=168, download_after=77, rest_before=192, rest_after=181)
    Split(structural=165, relief=91, rest=11)
    """
    return Split(
        structural=group_before - download_before,
        relief=download_before - download_after,
        rest=rest_before - rest_after,
    )


class ShapleyRange(msgspec.Struct, frozen=True, kw_only=True):
    """Shapley values of "no pull" and "no contention" over the possible lengths of a pull alone."""

    pull_alone: tuple[float, float]
    elimination: tuple[float, float]
    relief: tuple[float, float]


def shapley_range(*, pull: float, download_before: float, download_after: float) -> ShapleyRange | None:
    """Return the range of the Shapley values, or None when the pull was not the longer of the two.

    The pull's length without a download beside it, P0, is not observed. If running both at once is no slower than
    one after the other (work conservation), P0 lies in [pull − download_after, pull]. The two orders of intervention
    give elimination = ((pull − download_before) + (P0 − download_after)) / 2 and
    relief = ((download_before − download_after) + (pull − P0)) / 2.

    >>> shapley_range(pull=333, download_before=168, download_after=77)
    ShapleyRange(pull_alone=(256, 333), elimination=(172.0, 210.5), relief=(45.5, 84.0))
    """
    if pull <= download_before or download_before < download_after:
        return None
    alone = (max(pull - download_after, download_after), pull)
    elimination = [(pull - download_before + p0 - download_after) / 2 for p0 in alone]
    relief = [(download_before - download_after + pull - p0) / 2 for p0 in alone]
    return ShapleyRange(
        pull_alone=alone,
        elimination=(min(elimination), max(elimination)),
        relief=(min(relief), max(relief)),
    )
