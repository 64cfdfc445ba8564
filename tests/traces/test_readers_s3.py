"""Traces in S3, read from a server on loopback that speaks as much of S3 as reading needs."""

from __future__ import annotations

import gzip

import pytest

from tests.contract.reader_samples import ROWS, SAMPLES
from traces.errors import BadInputError, UnreachableError
from traces.readers import Options, open_trace


@pytest.fixture
def contents(tmp_path):
    def made(name):
        path = tmp_path / name
        SAMPLES[name].write(path, ROWS)
        return path.read_bytes()

    return made


@pytest.mark.parametrize("name", ["azure", "own"])
def test_an_object_reads_like_the_file(s3, contents, tmp_path, name):
    s3.objects["b", "some/key with space"] = contents(name)
    s3.objects["b", "some/key with space.old"] = b"another object that begins alike"
    loaded = open_trace("s3://b/some/key with space")
    assert loaded.scan().collect().equals(open_trace(str(tmp_path / name)).scan().collect())
    assert loaded.account() == open_trace(str(tmp_path / name)).account()


def test_a_compressed_object_and_an_endpoint_given_by_option(s3, contents, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    s3.objects["b", "t.csv.gz"] = gzip.compress(contents("azure"))
    assert open_trace("s3://b/t.csv.gz", None, Options(endpoint_url=s3.url)).account().rows_kept == 5


@pytest.mark.parametrize("uri", ["s3://b/endpoint/AllTraffic/", "s3://b/endpoint/AllTraffic", "s3://b/endpoint/All"])
def test_all_objects_of_a_prefix_are_one_trace(s3, contents, uri):
    content = contents("sagemaker")
    for hour in range(5):
        s3.objects["b", f"endpoint/AllTraffic/2024/05/10/{hour:02d}/x.jsonl"] = content
    s3.objects["b", "endpoint/AllTraffic/_SUCCESS"] = b"ok"
    s3.objects["b", "endpoint/AllTraffic/2024/"] = b""
    loaded = open_trace(uri)
    report = loaded.account()
    assert (report.files, report.rows_kept, report.format) == (5, 25, "sagemaker")
    assert loaded.scan().collect()["arrival_us"].is_sorted()


def test_what_was_fetched_is_deleted_with_the_trace(s3, contents):
    s3.objects["b", "t"] = contents("azure")
    loaded = open_trace("s3://b/t")
    folder = loaded.path.parent
    assert folder.is_dir()
    del loaded
    assert not folder.exists()


def test_keys_cannot_leave_the_folder_they_are_fetched_to(s3, contents):
    for key in ("p/../../../../x", "p/./y", "p//z", "p/y", "p/y/z", "p/y/"):
        s3.objects["b", key] = contents("azure")
    loaded = open_trace("s3://b/p/")
    assert len(set(loaded.paths)) == len(loaded.paths) == 5
    assert {path.parent.parent for path in loaded.paths} == {loaded.path.parent.parent}
    assert loaded.path.parent.parent.name.startswith("ramptrace-s3-")
    assert loaded.account().rows_kept == 25


def test_what_cannot_be_read_is_one_clear_error(s3, monkeypatch):
    for uri, message in (
        ("s3://b/none", "no object with this key or prefix"),
        ("s3://", "no bucket"),
        ("s3://secret/x", "S3 refused .AccessDenied."),
        ("s3://NOT A BUCKET/x", "s3://NOT A BUCKET/x: "),
    ):
        with pytest.raises(BadInputError, match=message) as caught:
            open_trace(uri)
        assert "\n" not in str(caught.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(UnreachableError, match="s3://b/x: S3 does not answer"):
        open_trace("s3://b/x")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(BadInputError, match="no AWS credentials"):
        open_trace("s3://b/x")
