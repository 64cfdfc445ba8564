"""Thresholds: how they are read, and what they come to for runs whose truth is known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st

from analysis.analyse import analyse_run
from analysis.gate import judge
from analysis.report.gates import MARKDOWN_BYTES, Verdict, junit, markdown, verdict_text
from ramptrace import main
from traces.errors import BadInputError
from traces.thresholds import COUNTED, REQUESTS, SPANS, parse_threshold

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))


def call(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """The reference case without and with the image cached, simulated."""
    folder = tmp_path_factory.mktemp("runs")
    for cache in ("off", "on"):
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    "simulate",
                    "--profile",
                    "sagemaker-qwen3-8b",
                    "--image-cache",
                    cache,
                    "--run-dir",
                    str(folder / cache),
                    "--json",
                ]
            )
        assert not ended.value.code
    return {cache: folder / cache for cache in ("off", "on")}


@pytest.fixture(scope="module")
def analysed(runs):
    return {cache: analyse_run(path) for cache, path in runs.items()}


spans = st.lists(st.sampled_from(SPANS), min_size=1, max_size=3).map("+".join)
stats = st.sampled_from(["", ".p50", ".max", ".p95"])
quantities = st.one_of(
    st.tuples(spans, stats).map("".join),
    st.tuples(st.sampled_from(["lo", "hi"]), spans, stats).map(lambda t: f"{t[0]}({t[1]}{t[2]})"),
    st.tuples(st.sampled_from(["p50", "p99", "max"]), st.sampled_from(REQUESTS)).map(lambda t: f"{t[0]}({t[1]})"),
)
shares = st.one_of(
    st.sampled_from(COUNTED).map(lambda name: f"{name}(requests)"),
    spans.map(lambda name: f"share({name})"),
    st.tuples(spans, stats).map(lambda t: f"regression({t[0]}{t[1]}, baseline)"),
)
signs = st.sampled_from(["<", "<=", ">", ">="])
written = st.one_of(
    st.tuples(quantities, signs, st.integers(0, 999).map(str), st.sampled_from(["ms", "s", "m", "h"])),
    st.tuples(shares, signs, st.integers(0, 100).map(str), st.just("%")),
    st.tuples(st.just("scale_outs"), signs, st.integers(0, 9).map(str), st.just("")),
)


@given(written, st.sampled_from(["", " ", "  "]))
def test_spaces_change_nothing_and_the_limit_is_in_micros_or_fractions(parts, space):
    quantity, sign, number, unit = parts
    found = parse_threshold(f"{space}{quantity}{space}{sign}{space}{number}{space}{unit}{space}")
    plain = parse_threshold(f"{quantity}{sign}{number}{unit}")
    assert (found.quantity, found.sign, found.limit) == (plain.quantity, sign, plain.limit)
    scale = {"ms": 1e3, "s": 1e6, "m": 6e7, "h": 3.6e9, "%": 0.01, "": 1}[unit]
    assert found.limit == pytest.approx(int(number) * scale)


@given(st.one_of(st.text(max_size=40), written.map(lambda parts: " ".join(parts)[:-2])))
def test_any_text_is_a_threshold_or_a_clear_error_with_a_caret(text):
    try:
        parse_threshold(text)
    except BadInputError as error:
        first, shown, caret = str(error).split("\n")
        assert first.startswith("not a threshold: expected ")
        assert re.fullmatch(r" *\^", caret)
        assert len(caret) <= len(shown) + 1


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("p95(tft) < 2s", 4, 'did you mean "ttft"'),
        ("time_to_capcity < 3m", 0, 'did you mean "time_to_capacity"'),
        ("p95(ttft) < 2", 12, "a time, such as 2s"),
        ("share(pull) < 3s", 14, "a percentage"),
        ("p95(ttft) < 2s and more", 15, "nothing more"),
        ("late(tokens) < 1%", 5, "requests"),
        ("p95(ttft) 2s", 10, "a comparison"),
        ("p90(lag) < 3ms", 4, "p50, p99 or max"),
        ("regression(startup) < 3%", 18, "baseline"),
        ("", 0, "something measured"),
    ],
)
def test_an_error_points_at_the_character(text, column, says):
    with pytest.raises(BadInputError) as caught:
        parse_threshold(text)
    message, _, caret = str(caught.value).split("\n")
    assert says in message
    assert caret.index("^") - 2 == column


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("startup < 530s", "pass"),
        ("startup < 520s", "fail"),
        ("startup < 526s", "inconclusive"),
        ("startup > 520s", "pass"),
        ("time_to_capacity.p50 < 10m", "pass"),
        ("time_to_capacity.p95 < 10m", "skipped"),
        ("provisioning+pull < 460s", "pass"),
        ("pull < 300s", "inconclusive"),
        ("hi(pull) < 460s", "pass"),
        ("lo(pull) < 1s", "pass"),
        ("share(pull) < 10%", "inconclusive"),
        ("share(provisioning+pull) > 75%", "inconclusive"),
        ("share(provisioning+pull) > 50%", "pass"),
        ("share(load) < 50%", "pass"),
        ("download < 170s", "pass"),
        ("recovery < 1s", "skipped"),
        ("regression(startup, baseline) < 5%", "skipped"),
        ("scale_outs >= 1", "pass"),
        ("scale_outs < 1", "fail"),
        ("p95(ttft) < 1ms", "fail"),
        ("failed(requests) < 100%", "pass"),
        ("late(requests) < 1%", "fail"),
    ],
)
def test_a_run_is_held_to_a_threshold_with_its_bounds(analysed, text, status):
    found = judge(parse_threshold(text), analysed["off"])
    assert found.status == status, found.reason
    if found.measured is not None:
        assert found.measured.lo <= found.measured.at <= found.measured.hi


@given(st.integers(1, 900))
def test_a_limit_is_inconclusive_exactly_within_the_bounds(analysed, limit_s):
    found = judge(parse_threshold(f"startup < {limit_s}s"), analysed["off"])
    assert found.measured is not None
    inside = found.measured.lo < limit_s * 1e6 <= found.measured.hi
    assert (found.status == "inconclusive") == inside


def test_a_planted_regression_fails_and_names_its_phase(capsys, runs, tmp_path):
    threshold = "regression(time_to_capacity, baseline) < 10%"
    files = ["--junit", tmp_path / "j.xml", "--markdown", tmp_path / "m.md"]
    code, out, _ = call(capsys, "gate", runs["off"], "--baseline", runs["on"], "--expr", threshold, *files, "--json")
    document = json.loads(out)
    assert (code, document["passed"], document["emulated"]) == (3, False, True)
    (found,) = document["gates"]
    assert found["status"] == "fail"
    assert "most of it is provisioning+pull: 4 min 16 s longer" in found["reason"]
    assert found["lo"] < found["value"] < found["hi"]
    SCHEMA.validate(str(tmp_path / "j.xml"))
    assert "provisioning+pull" in (tmp_path / "m.md").read_text()
    code, out, _ = call(capsys, "gate", runs["on"], "--baseline", runs["off"], "--expr", threshold)
    assert (code, "the gate passed: 1 pass" in out, "EMULATED" in out) == (0, True, True)


def test_bounds_of_a_share_are_those_of_both_lengths(analysed):
    (found,) = analysed["off"].scale_outs
    share = judge(parse_threshold("share(provisioning+pull) < 1%"), analysed["off"]).measured
    whole = judge(parse_threshold("time_to_capacity < 1s"), analysed["off"]).measured
    part = judge(parse_threshold("provisioning+pull < 1s"), analysed["off"]).measured
    assert (share.lo, share.hi) == (pytest.approx(part.lo / whole.hi), pytest.approx(min(part.hi / whole.lo, 1)))
    assert share.at == pytest.approx(part.at / found.time_to_capacity_us)


def test_a_scale_out_that_has_not_ended_decides_no_share(analysed):
    run = analysed["off"]
    (found,) = run.scale_outs
    open_one = msgspec.structs.replace(
        found, in_service=None, time_to_capacity_us=None, startup_us=None, unattributed_us=None, censored=True
    )
    both = msgspec.structs.replace(run, scale_outs=(found, open_one))
    for text in ("share(load) < 99%", "unattributed < 1h", "time_to_capacity < 20m"):
        assert judge(parse_threshold(text), both).status == "inconclusive", text
    assert judge(parse_threshold("time_to_capacity < 1s"), both).status == "fail", "it took longer already"


def test_what_was_not_measured_is_no_pass(capsys, runs):
    code, out, _ = call(capsys, "gate", runs["on"], "--expr", "recovery < 1s", "--expr", "time_to_capacity.p99 < 1h")
    assert (code, "nothing could be judged (2 skipped)" in out) == (3, True)
    assert "p99 takes 100 scale-outs, there were 1" in out
    args = ["gate", runs["off"], "--expr", "startup < 526s", "--expr", "scale_outs >= 1"]
    assert call(capsys, *args)[0] == 3
    assert call(capsys, *args, "--inconclusive", "pass")[0] == 0
    assert call(capsys, *args, "--inconclusive", "skip")[0] == 0
    assert call(capsys, *args[:4], "--inconclusive", "skip")[0] == 3, "then nothing was judged"


def test_an_invalid_run_is_never_a_pass(capsys, analysed):
    broken = msgspec.structs.replace(
        analysed["on"], fidelity=analysed["on"].fidelity | {"verdict": "INVALID", "reasons": ["it was late"]}
    )
    found = judge(parse_threshold("scale_outs >= 1"), broken)
    verdict = Verdict(run=broken, judgements=(found,), undecided="fail")
    assert (found.status, verdict.exit_code) == ("pass", 5)
    assert "never a pass" in verdict_text(verdict)
    suite = ET.fromstring(junit(verdict))[0]
    assert suite.get("failures") == "1"


def test_the_scenarios_own_gate_is_in_summary_and_report(analysed):
    from analysis.report.html import page
    from analysis.report.text import run_text

    scenario = {"gate": {"thresholds": ["startup < 520s", "pull < 300s", "regression(startup, baseline) < 5%"]}}
    run = msgspec.structs.replace(
        analysed["off"], manifest=msgspec.structs.replace(analysed["off"].manifest, scenario=scenario)
    )
    text = run_text(run)
    for shown in (
        "✗ startup < 520s: fail",
        "? pull < 300s: inconclusive",
        "– regression(startup, baseline) < 5%: skipped",
    ):
        assert shown in text
    assert max(map(len, text.splitlines())) <= 80
    html = page([run], None)
    assert "startup &lt; 520s" in html
    assert "<h3>Gate</h3>" in html
    assert "Gate" not in run_text(analysed["off"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--expr", "pull < 10"], "expected a time"),
        ([], "no [gate] thresholds"),
        (["--expr", "scale_outs >= 1", "--baseline", "/nowhere"], "not a run directory"),
        (["--expr", "scale_outs >= 1", "--junit", "/proc/none/j.xml"], "cannot be written"),
    ],
)
def test_bad_input_ends_with_2(capsys, runs, arguments, says):
    code, _, err = call(capsys, "gate", runs["on"], *arguments)
    assert (code, says in err) == (2, True), err


NASTY = "</failure><script>alert(1)</script> | **b** [x](javascript:1) \x00\x1b[31m & `c` @team"


def test_names_and_reasons_appear_as_text(analysed, tmp_path):
    run = msgspec.structs.replace(
        analysed["on"],
        manifest=msgspec.structs.replace(analysed["on"].manifest, name=NASTY, condition=NASTY, run_id=NASTY),
    )
    found = msgspec.structs.replace(judge(parse_threshold("startup < 1s"), run), reason=NASTY)
    verdict = Verdict(run=run, judgements=(found,), undecided="fail")
    path = tmp_path / "j.xml"
    path.write_text(junit(verdict))
    SCHEMA.validate(str(path))
    (case,) = ET.parse(path).getroot().iterfind(".//testcase[failure]")
    assert "<script>alert(1)</script>" in case[0].get("message", "")
    text = markdown(verdict)
    row = text.strip().split("\n")[-1]
    assert row.count("|") == 5
    assert not re.search(r"<|\[x\]|`c`|@team|\*\*b\*\*", row)


def test_markdown_stays_under_githubs_limit(analysed):
    found = judge(parse_threshold("startup < 1s"), analysed["on"])
    many = Verdict(run=analysed["on"], judgements=(found,) * 20_000, undecided="fail")
    text = markdown(many)
    assert len(text.encode()) <= MARKDOWN_BYTES
    assert text.endswith("Cut here: the whole is in the JUnit file.\n")
    for room in (0, 10, 500, 5000):
        assert len(markdown(many, room).encode()) <= room
