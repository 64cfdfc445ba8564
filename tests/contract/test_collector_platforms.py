"""Platforms of other distributions: the example of the documentation, installed and collected from."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from aiohttp import web

from loadgen.collect.platform import Context
from loadgen.collect.registry import make_platforms
from loadgen.scenario import CollectSection
from tests.loadgen.collect.fake_aws import FakeAws, Server
from tests.loadgen.collect.running import ROOT, collected, make_run
from traces.clock import to_us
from traces.errors import BadInputError
from traces.run import RunDir
from traces.schema import Observation


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The documentation's example as a distribution."""
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/collector.md").read_text(), re.DOTALL)
    site = tmp_path / "site"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme_units.py").write_text(example)
    (site / "acme-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    entries = "[ramptrace.platforms]\nacme = acme_units:Acme\nbroken = acme_units:Absent\n"
    (site / "acme-1.0.dist-info/entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop("acme_units", None)


class Units(Server):
    """The example's service, beside the AWS that nobody asks."""

    def _app(self) -> web.Application:
        app = super()._app()
        app.router.add_get("/units", self._units)
        return app

    async def _units(self, request: web.Request) -> web.Response:
        fault = self.fake.fault("units")
        if fault is not None:
            return fault
        ready_ms = self.fake.clock.endpoint_epoch_us // 1_000 + 5
        return web.json_response({"units": [{"name": "u-0", "ready_ms": 1}, {"name": "u-1", "ready_ms": ready_ms}]})


def test_the_documented_example_collects(installed: None, tmp_path: Path) -> None:
    server = Units(FakeAws(20.0))
    server.start()
    run = make_run(tmp_path / "run", server)
    _watch_acme_only(run, f"{server.url}/units")

    def meanwhile(step: int) -> bool:
        server.fake.fault = lambda operation: web.Response(text="<html>") if step == 0 else None
        return step < 2

    try:
        collected(run, meanwhile, pause_s=0.6)
    finally:
        server.stop()
    rows = run.scan("observations").collect()
    Observation.validate(rows)
    (row,) = rows.rows(named=True)
    assert (row["platform"], row["source"], row["anchor"], row["unit_id"]) == ("other", "acme:units", "ready", "u-1")
    assert to_us(row["hi"]) == (server.fake.clock.endpoint_epoch_us // 1_000 + 5) * 1_000
    gaps = run.scan("gaps").collect()
    assert set(gaps["reason"]) == {"malformed"}
    assert gaps["end"].null_count() == 0
    assert not server.fake.calls
    assert run.scan("samples").filter(pl.col("metric") == "heartbeat").collect()["resource"][0] == f"{server.url}/units"


def _watch_acme_only(run: RunDir, url: str) -> None:
    manifest = run.manifest()
    manifest.scenario = {"collect": {"tail": "0", "other": {"acme": {"url": url}}}}
    run.write_manifest(manifest)


@pytest.mark.parametrize(("name", "words"), [("acmee", 'did you mean "acme"'), ("broken", "acme_units:Absent")])
def test_an_unknown_or_broken_platform_is_said_in_one_line(installed: None, name: str, words: str) -> None:
    context = Context(CollectSection(other={name: {}}), None, None, None, 0, None, {}, print)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match=words):
        make_platforms(context)
