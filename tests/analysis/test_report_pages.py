"""What leaves the analysis: terminal text, results files, HTML, and the commands."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser

import polars as pl
import pytest
from click.testing import CliRunner
from run_builder import Case, after_case, build

from analysis.analyse import analyse_run
from analysis.compare import compare_runs
from analysis.report.html import page
from analysis.report.markup import element, json_block
from analysis.report.text import comparison_text, run_text
from traces.errors import RamptraceError
from traces.schema import Anchor, Phase, ScaleOut

EVIL = "</script><img src=x onerror=alert(1)><!-- \u2028 '\"&"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [
        build(folder / "before", Case(time_scale=20.0)),
        build(folder / "after", after_case(time_scale=20.0)),
    ]


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.meta, self.text = [], [], [], {}, ""
        self.inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append(tag)
        self.attributes += [(tag, k, v) for k, v in attrs.items()]
        self.inside = tag
        if tag == "script":
            self.scripts.append([attrs, ""])
        if "http-equiv" in attrs:
            self.meta[attrs["http-equiv"]] = attrs["content"]

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1][1] += data
        elif self.inside != "style":
            self.text += data


def test_text_fits_eighty_columns_and_says_the_essentials(pair):
    runs = [analyse_run(path) for path in pair]
    text = run_text(runs[0])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.startswith("Capacity took 9 min 26 s; 80% of it was getting a machine and its image (7 min")
    assert "EMULATED" in text
    assert "\x1b" not in text
    assert "\x1b[38;2;" in run_text(runs[0], colour=True)
    compared = comparison_text(compare_runs(runs))
    assert max(len(line) for line in compared.splitlines()) <= 80
    assert "333.0" in compared
    assert "4 min 27 s shorter (51%)" in compared


def test_page_is_one_file_that_loads_nothing(pair):
    runs = [analyse_run(path) for path in pair]
    html = page(runs, compare_runs(runs))
    assert len(html) < 3_000_000
    parsed = Page(html)
    assert not [a for a in parsed.attributes if a[1] in {"src", "href", "srcset", "action", "data", "poster"}]
    assert "link" not in parsed.tags
    assert "iframe" not in parsed.tags
    data, code = parsed.scripts
    assert data[0]["type"] == "application/json"
    policy = parsed.meta["Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(code[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "http" not in json.dumps(json.loads(data[1]))
    assert not re.search(r"@import|url\(", html.split("</style>")[0])
    assert set(json.loads(data[1])) <= {v for _, k, v in parsed.attributes if k == "id"}
    assert "EMULATED" in parsed.text
    assert "333.0" in parsed.text
    assert "162 s, not 333 s" in parsed.text
    assert "A single SageMaker run cannot show the image pull" in parsed.text


def test_names_cannot_inject_anything(tmp_path):
    runs = [
        analyse_run(build(tmp_path / "a", Case(condition=EVIL, run_id=EVIL))),
        analyse_run(build(tmp_path / "b", after_case(condition=f"after {EVIL}"))),
    ]
    html = page(runs, compare_runs(runs))
    parsed = Page(html)
    assert "img" not in parsed.tags
    assert len(parsed.scripts) == 2
    assert not [a for a in parsed.attributes if a[1].startswith("on")]
    assert "<img" not in html.replace(parsed.scripts[1][1], "")
    assert "\x1b" not in run_text(analyse_run(build(tmp_path / "c", Case(condition="\x1b[31mred"))))


def test_markup_escapes_children_attributes_and_json():
    assert element("p", "<b>", title='"x"') == '<p title="&quot;x&quot;">&lt;b&gt;</p>'
    block = json_block("d", {"a": EVIL})
    assert block.count("</script>") == 1
    assert json.loads(block.split(">", 1)[1].rsplit("</script>", 1)[0]) == {"a": EVIL}


def run_command(name, *arguments):
    import analysis.cli as commands

    return CliRunner().invoke(getattr(commands, name), [str(a) for a in arguments])


def test_analyse_writes_tables_that_keep_their_schemas(pair):
    result = run_command("analyse", pair[0], "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert document["schema"] == 1
    entry = document["runs"][0]["scale_outs"][0]
    total = sum(phase["critical_s"] for phase in entry["phases"].values()) + entry["unattributed_s"]
    assert total == pytest.approx(entry["time_to_capacity_s"], abs=1e-6)
    folder = pair[0] / "analysis"
    for name, schema in (("anchors", Anchor), ("phases", Phase), ("scale_outs", ScaleOut)):
        schema.validate(pl.read_parquet(folder / f"{name}.parquet"))
    phases = pl.read_parquet(folder / "phases.parquet").filter(pl.col("parent").is_null())
    assert phases["critical_us"].sum() == pl.read_parquet(folder / "scale_outs.parquet")["time_to_capacity_us"].item()
    assert json.loads((folder / "summary.json").read_text()) == document


def test_compare_and_report_commands(pair, tmp_path):
    result = run_command("compare", *pair, "--json", "-o", tmp_path / "c.html")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert document["compare"]["pull"]["before_s"] == 333.0
    assert (tmp_path / "c.html").read_text().startswith("<!doctype html>")
    result = run_command("report", pair[0])
    assert result.exit_code == 0, result.output
    assert (pair[0] / "report.html").is_file()
    assert "shorter" in run_command("compare", *pair).output


def test_errors_are_one_line_with_their_exit_code(tmp_path, pair):
    missing = run_command("analyse", tmp_path / "none")
    assert isinstance(missing.exception, RamptraceError)
    assert missing.exception.exit_code == 2
    alone = run_command("compare", pair[0])
    assert isinstance(alone.exception, RamptraceError)
    assert "two runs" in str(alone.exception)


def test_empty_run_still_has_a_summary_and_a_report(tmp_path):
    from traces.manifest import Manifest
    from traces.run import RunDir

    RunDir.create(tmp_path / "run", Manifest(run_id="empty"))
    result = run_command("report", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "no scaling event is recorded" in run_text(analyse_run(tmp_path / "run"))


@pytest.mark.parametrize("name", ["analyse", "report", "compare"])
def test_help_shows_no_escape_and_analyse_names_the_next_step(name, pair):
    shown = run_command(name, "--help").output
    assert "\\b" not in shown
    assert f"\n  ramptrace {name} runs/" in shown
    if name == "analyse":
        assert f"next: ramptrace report {pair[0]}" in run_command(name, pair[0]).output


def with_failures(path, every=5):
    """Make every fifth request of a run fail, and leave its last hundred unsent."""
    shard = next((path / "requests").glob("*.parquet"))
    frame = pl.read_parquet(shard)
    types, at = frame.schema, pl.int_range(pl.len())
    failed, unsent = at % every == 0, at >= pl.len() - 100
    never = [pl.when(~unsent).then(c).alias(c) for c in ("sent", "headers", "first_token", "done")]
    told = frame.with_columns(
        *never,
        outcome=pl.when(unsent)
        .then(pl.lit("not_sent"))
        .when(failed)
        .then(pl.lit("http_error"))
        .otherwise(pl.lit("ok")),
        http_status=pl.when(~unsent).then(pl.when(failed).then(424).otherwise(200)),
        error_kind=pl.when(unsent).then(pl.lit("interrupted")).when(failed).then(pl.lit("http_424")),
        error_text=pl.when(failed & (at % 2 == 0))
        .then(pl.lit("ModelError"))
        .when(failed)
        .then(pl.lit("the prompt was")),
    )
    told.cast(dict(types)).write_parquet(shard)
    attempted = len(frame) - 100
    return attempted, -(-attempted // every)


def change_manifest(path, **changes):
    file = path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_failed_requests_and_verdicts_are_told_everywhere(tmp_path):
    before, after = build(tmp_path / "b", Case()), build(tmp_path / "a", after_case())
    attempted, failed = with_failures(before)
    change_manifest(before, verdict={"status": "DEGRADED", "reasons": ["p99 lag 39.1 ms exceeds 5 ms"]})
    runs = [analyse_run(before), analyse_run(after)]
    sentence = f"{failed} of {attempted} requests failed"
    rest = f"latencies are of the {attempted - failed} that succeeded"
    for text in (run_text(runs[0]), comparison_text(compare_runs(runs)), Page(page(runs, compare_runs(runs))).text):
        told = " ".join(text.split())
        assert sentence in told
        assert rest in told
        assert "HTTP 424 ModelError: " in told
        assert "the prompt was" not in told
    compared = comparison_text(compare_runs(runs))
    assert re.search(r"replay fidelity +DEGRADED +VALID\n", compared)
    assert re.search(rf"failed requests +{failed} of {attempted} +0 of \d+\n", compared)
    assert "image-cache-off: the replay is DEGRADED: p99 lag 39.1 ms exceeds 5 ms" in compared
    assert '<span class="badge" title="how well' in page(runs, compare_runs(runs))
    assert ">DEGRADED</span>" in page(runs, compare_runs(runs))
    assert '<span class="badge" title="how well' not in page(runs[1:], None)


def test_an_interrupted_run_counts_what_was_sent_and_says_one_thing_of_its_collector(tmp_path):
    path = build(tmp_path / "run", Case())
    attempted, _ = with_failures(path)
    change_manifest(path, state="interrupted", collector={"state": "died", "exit_code": 1, "detail": "exit code 1"})
    for table in ("samples", "observations"):
        for shard in (path / table).glob("*.parquet"):
            shard.unlink()
    texts = [f.text for f in analyse_run(path).findings]
    assert f"the run was interrupted: {attempted} requests were sent, 100 were not" in texts
    assert "the collector died (exit code 1); the replay went on" in texts
    assert not [text for text in texts if "no sign of a collector" in text]


@pytest.mark.parametrize(("last", "told"), [(1, "from the start and never changed"), (None, "no change was seen")])
def test_a_run_without_a_scale_out_says_how_many_units_it_had(tmp_path, last, told):
    from run_builder import endpoint

    from traces.run import RunDir

    path = build(tmp_path / "run", Case())
    for shard in (path / "observations").glob("*.parquet"):
        shard.unlink()
    if last is not None:
        RunDir(path).write_snapshot("describe-endpoint-last", endpoint(last))
    html = page([analyse_run(path)], None)
    assert told in run_text(analyse_run(path)).replace("\n", " ")
    assert "The endpoint had 1 unit" in Page(html).text
    charts = json.dumps(json.loads(Page(html).scripts[0][1]))
    assert "s from the start of the load" in charts
    assert "rise of demand" not in charts


def test_the_latency_chart_breaks_where_no_request_was_answered(pair):
    import msgspec

    from analysis.report.charts import latency_chart

    run = analyse_run(pair[0])
    frame = run.latency_over_time
    lone = pl.concat([frame.head(20), frame.slice(30, 1), frame.slice(40)])
    spec = latency_chart(msgspec.structs.replace(run, latency_over_time=lone), "p50")
    drawn = next(iter(spec["datasets"].values())) if "datasets" in spec else spec["layer"][0]["data"]["values"]
    stretches = {}
    for point in drawn:
        stretches.setdefault(point["stretch"], []).append(point)
    sizes = [len(points) for points in stretches.values()]
    assert sizes == [20, 1, len(frame) - 40]
    assert [point["t"] for point in drawn if point["alone"]] == [stretches[2][0]["t"]]


def test_each_thing_is_said_once_and_terms_are_explained(pair):
    runs = [analyse_run(path) for path in pair]
    html, text = Page(page(runs[:1], None)).text, run_text(runs[0])
    for shown in (html, text):
        assert shown.count("Capacity took") == 1
        assert "the one that completed the needed capacity" in shown
        assert "inside provisioning+pull" in shown
    compared = comparison_text(compare_runs(runs))
    for word in ("structural", "relief", "elimination"):
        assert word not in compared


def test_a_summary_is_printed_where_it_cannot_be_saved(pair, tmp_path):
    from analysis.cli import analyse

    copy = shutil.copytree(pair[0], tmp_path / "run")
    shutil.rmtree(copy / "analysis", ignore_errors=True)
    (copy / "analysis").write_text("in the way, as a read-only or full disk would be")
    done = CliRunner().invoke(analyse, [str(copy)], standalone_mode=False)
    assert done.return_value == 2
    assert done.output.startswith("Capacity took 9 min 26 s") or "Capacity took 9 min 26 s" in done.output
    assert "results cannot be written there" in done.output
    assert "-o FILE" in done.output


def test_a_damaged_file_of_a_long_run_is_left_out(pair, tmp_path, monkeypatch):
    """Whole at its end, damaged inside: found when it is scanned, and then every file is looked at."""
    import analysis.inputs

    monkeypatch.setattr(analysis.inputs, "HELD_IN_MEMORY", 100)
    copy = shutil.copytree(pair[0], tmp_path / "run")
    whole = analyse_run(copy)
    assert whole.scale_outs[0].time_to_capacity_us == analyse_run(pair[0]).scale_outs[0].time_to_capacity_us
    assert whole.latency == analyse_run(pair[0]).latency
    shard = next((copy / "requests").glob("*.parquet"))
    content = bytearray(shard.read_bytes())
    second = copy / "requests" / "worker1-1-000001.parquet"
    second.write_bytes(content)
    content[2000 : len(content) // 2] = b"\0" * (len(content) // 2 - 2000)
    shard.write_bytes(content)
    found = analyse_run(copy)
    assert "damaged-files" in {f.code for f in found.findings}
    assert found.request_count == whole.request_count
