"""The bundled traces are what the catalogue says, and can be made anew from it."""

from __future__ import annotations

import hashlib

import polars as pl
import pytest

from traces import corpus
from traces.corpus.__main__ import rebuild
from traces.readers import open_trace

every_trace = pytest.mark.parametrize("name", corpus.names())


@every_trace
def test_the_file_is_the_catalogued_one(name):
    entry = corpus.entry(name)
    content = corpus.path(name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == entry.sha256
    assert len(content) < 100_000
    assert (entry.generator, entry.licence) == ("traces.synth.synthesise", "Apache-2.0")
    assert entry.length_s == sum(step.length_s for step in entry.parameters.steps)


@every_trace
def test_it_is_made_anew_from_its_parameters(name):
    entry = corpus.entry(name)
    made = corpus.generate(entry)
    assert made.equals(pl.read_parquet(corpus.path(name)))
    assert made.height == entry.rows


@every_trace
def test_it_opens_by_name_unchanged(name):
    loaded = open_trace(f"corpus:{name}")
    assert loaded.scan().collect().equals(pl.read_parquet(corpus.path(name)))
    report = loaded.account()
    assert (report.rows_kept, report.dropped, report.sha256) == (corpus.entry(name).rows, {}, corpus.entry(name).sha256)


def test_nothing_else_is_bundled():
    files = {path.name for path in corpus.FOLDER.glob("*.parquet")}
    assert files == {corpus.entry(name).file for name in corpus.names()}


def test_the_generator_writes_every_file(tmp_path):
    made = rebuild(tmp_path)
    for name in corpus.names():
        again = pl.read_parquet(tmp_path / corpus.entry(name).file)
        assert again.equals(pl.read_parquet(corpus.path(name)))
        assert made[name][0] == again.height


def test_the_step_of_the_reference_burst_overloads_one_instance():
    arrivals = open_trace("corpus:reference-burst").scan().collect()["arrival_us"] / 1e6
    inside = arrivals.filter((arrivals >= 60) & (arrivals < 600)).len() / 540
    outside = arrivals.filter((arrivals < 60) | (arrivals >= 600)).len() / 120
    assert inside == pytest.approx(2.4, rel=0.1)
    assert outside == pytest.approx(0.4, rel=0.4)
