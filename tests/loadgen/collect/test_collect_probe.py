"""The probe against a server that comes up in stages, over real connections."""

import asyncio
from types import SimpleNamespace

from aiohttp import web

from loadgen.collect.probe import Probe, ProbePlatform, probe_urls
from loadgen.scenario import CollectSection, ProbeSection
from traces.clock import ClientClock, to_us


def test_stages_of_a_unit_that_comes_up() -> None:
    state = {"ready": False, "served": 0}

    async def health(_request: web.Request) -> web.Response:
        return web.Response(status=200 if state["ready"] else 503)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text=f'vllm:request_success_total{{model_name="m"}} {state["served"]}.0\n')

    async def run() -> list[dict]:
        app = web.Application()
        app.router.add_get("/health", health)
        app.router.add_get("/metrics", metrics)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        await site.stop()
        clock = ClientClock()
        section = CollectSection(probe=ProbeSection(units={"a": f"http://127.0.0.1:{port}"}))
        context = SimpleNamespace(section=section, clock=clock)
        (probe,) = ProbePlatform(context).sources()
        rows = (await probe.poll(0)).observations
        again = web.TCPSite(runner, "127.0.0.1", port)
        await again.start()
        rows += (await probe.poll(0)).observations
        before_us = clock.now_us()
        state["ready"] = True
        after_us = clock.now_us()
        rows += (await probe.poll(0)).observations
        state["served"] = 3
        rows += (await probe.poll(0)).observations
        rows += (await probe.poll(0)).observations
        await runner.cleanup()
        ready = next(row for row in rows if row["anchor"] == "ready")
        assert to_us(ready["lo"]) <= before_us <= after_us <= to_us(ready["hi"])
        return rows

    rows = asyncio.run(run())
    assert [(row["anchor"], row["unit_id"]) for row in rows] == [
        (None, "a"),
        (None, "a"),
        ("ready", "a"),
        ("first_served", "a"),
    ]


def test_addresses_of_units_are_asked_as_they_come() -> None:
    context = SimpleNamespace(section=CollectSection(ecs=None), clock=ClientClock())
    addresses: dict[str, str] = {}
    probe = Probe(context, lambda: probe_urls(addresses, 9))
    assert asyncio.run(probe.poll(0)).observations == []
    assert probe.period_us == context.section.poll_us


def test_a_unit_that_does_not_answer_delays_no_other() -> None:
    """The first unit answers only once the second was asked: one after the other, it never would."""
    state = {"ready": False}

    async def run() -> list[tuple[str, str]]:
        asked = asyncio.Event()

        async def first(_request: web.Request) -> web.Response:
            await asked.wait()
            return web.Response(status=200 if state["ready"] else 503)

        async def second(_request: web.Request) -> web.Response:
            asked.set()
            return web.Response(status=200 if state["ready"] else 503)

        app = web.Application()
        app.router.add_get("/a/health", first)
        app.router.add_get("/b/health", second)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        section = CollectSection(probe=ProbeSection(units={"a": f"{base}/a", "b": f"{base}/b"}, metrics=""))
        (probe,) = ProbePlatform(SimpleNamespace(section=section, clock=ClientClock())).sources()
        await probe.poll(0)
        asked.clear()
        state["ready"] = True
        rows = (await probe.poll(0)).observations
        asked.clear()
        looked = (await probe.look()).snapshots["probe"]
        await runner.cleanup()
        assert {told["stage"] for told in looked.values()} == {"ready"}
        return [(row["unit_id"], row["anchor"]) for row in rows if row["anchor"]]

    assert asyncio.run(run()) == [("a", "ready"), ("b", "ready")]
