"""Reported durations: names resolved, other variants left out, errors typed."""

import json
from datetime import UTC, datetime

import msgspec
import pytest

from loadgen.collect.base import (
    Answer,
    DeniedError,
    ExpiredError,
    MalformedError,
    SourceError,
    SourceUnreachableError,
    ThrottledError,
)
from loadgen.collect.promql import parse, resolve, series_of, series_rows
from loadgen.collect.variant import Watched

ANSWER = Answer({}, 1, 2)
LABELS = {"__name__": "n", "aws.sagemaker.endpoint.name": "e", "aws.sagemaker.variant.name": "v"}


def test_names_in_either_spelling() -> None:
    assert resolve(["GPULoadTime", "model_download_time", "up"]) == {
        "model_download_time": "model_download_time",
        "gpu_load_time": "GPULoadTime",
    }
    with pytest.raises(MalformedError):
        resolve({"no": "list"})


@pytest.mark.parametrize(
    ("canonical", "anchor"),
    [
        ("model_download_time", "download_finished"),
        ("container_start_time", "ready"),
        ("gpu_load_time", "load_finished"),
        ("e2e_duration", "in_service"),
    ],
)
def test_a_duration_has_an_upper_bound_only(canonical: str, anchor: str) -> None:
    series = {"metric": LABELS | {"@resource.host.id": "i-1"}, "values": [[1_782_900_000.25, "168.25"]]}
    (row,) = series_rows(canonical, series, Watched("e", "v"), ANSWER)
    assert row["source"] == f"promql:{canonical}"
    assert (row["anchor"], row["lo"], row["unit_id"]) == (anchor, None, "i-1")
    assert row["hi"] == datetime(2026, 7, 1, 10, 0, 0, 250_000, tzinfo=UTC)
    assert (row["duration_us"], row["resolution_us"], row["verified"]) == (168_250_000, 1_000_000, False)
    assert row["native_id"].endswith("@1782900000250000")
    assert row["method"] == "reported"


def test_the_host_may_be_absent_and_other_variants_are_left_out() -> None:
    values = [[1, "2"], [3, "NaN"], [4, "+Inf"]]
    (row,) = series_rows("gpu_load_time", {"metric": LABELS, "values": values}, Watched("e", "v"), ANSWER)
    assert row["unit_id"] is None
    assert series_rows("gpu_load_time", {"metric": LABELS, "values": values}, Watched("e", "other"), ANSWER) == []
    assert len(series_rows("gpu_load_time", {"values": [[1, "2"]]}, Watched("e", "v"), ANSWER)) == 1


def test_a_scale_in_is_no_service() -> None:
    labels = LABELS | {"aws.sagemaker.scaling.direction": "ScaleIn"}
    (row,) = series_rows("e2e_duration", {"metric": labels, "values": [[1, "2"]]}, Watched("e", "v"), ANSWER)
    assert row["anchor"] is None


def test_capacity_errors_are_samples() -> None:
    (row,) = series_rows("ice_count", {"metric": LABELS, "values": [[1, "2"]]}, Watched("e", "v"), ANSWER)
    assert (row["source"], row["metric"], row["value"]) == ("promql", "ice_count", 2.0)


@pytest.mark.parametrize(
    ("status", "told", "kind"),
    [
        (422, "too many samples", ThrottledError),
        (429, "", ThrottledError),
        (403, "not authorized", DeniedError),
        (403, "The security token included in the request is expired", ExpiredError),
        (401, "", DeniedError),
        (500, "", SourceUnreachableError),
        (503, "", SourceUnreachableError),
        (400, "parse error", MalformedError),
        (200, "", MalformedError),
    ],
)
def test_errors(status: int, told: str, kind: type[SourceError]) -> None:
    with pytest.raises(kind):
        parse(msgspec.json.encode({"status": "error", "error": told}), status, "/p")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"status": "success"'])
def test_what_is_no_envelope_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedError):
        parse(body, 200, "/p")


@pytest.mark.parametrize("data", [None, [], {}, {"resultType": "vector", "result": []}, {"resultType": "matrix"}])
def test_only_a_matrix_will_do(data: object) -> None:
    with pytest.raises(MalformedError):
        series_of(json.loads(json.dumps(data)))
