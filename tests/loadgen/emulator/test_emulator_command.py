import socket
import urllib.request

import msgspec
import polars as pl
import pytest
from click.testing import CliRunner

from loadgen.emulator.cli import emulate
from loadgen.emulator.config import EmulatorConfig, load_config
from loadgen.scenario_file import build_scenario
from tests.emulators import start_emulator
from traces.clock import EndpointClock
from traces.errors import BadInputError
from traces.schema import Truth


def write(tmp_path, text):
    file = tmp_path / "scenario.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_table_of_a_scenario_is_the_configuration(tmp_path):
    file = write(tmp_path, "[trace]\npath = 'x'\n[emulator_model.startup]\nimage_cache = false\n")
    assert load_config(file) == EmulatorConfig(
        startup=msgspec.structs.replace(EmulatorConfig().startup, image_cache=False)
    )


def test_a_scenario_may_hold_the_table_and_checks_it():
    document = {"trace": {"path": "x"}, "target": {"url": "http://h"}, "emulator_model": {"scaling": {"target": 8.0}}}
    assert build_scenario(document, origin="s").emulator_model.scaling.target == 8
    document["emulator_model"] = {"scaling": {"tagret": 8.0}}
    with pytest.raises(BadInputError, match=r'\[emulator_model.scaling\] unknown key "tagret" \(did you mean "target"'):
        build_scenario(document, origin="s")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[trace]\npath = 'x'\n", "no \\[emulator_model\\] table"),
        ("[emulator_model.serving]\nslots = 3\n", 'unknown key "slots"'),
        ("[emulator_model.faults]\nthrottled_share = 1.5\n", "throttled_share"),
        ("[emulator_model.scaling]\nmetric_period_s = 30\n", "metric_period_s"),
        ("nonsense", "not valid TOML"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, text, message):
    with pytest.raises(BadInputError, match=message) as caught:
        load_config(write(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert "scenario.toml" in str(caught.value)


def test_a_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(BadInputError, match="leave --scenario out"):
        load_config(tmp_path / "none.toml")


def test_a_port_in_use_is_bad_input():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(emulate, ["--port", str(port)])
    assert isinstance(result.exception, BadInputError)
    assert result.exception.exit_code == 2
    assert str(port) in str(result.exception)


def test_a_truth_file_that_cannot_be_written_is_bad_input(tmp_path):
    result = CliRunner().invoke(emulate, ["--truth", str(tmp_path / "no" / "truth.parquet")])
    assert isinstance(result.exception, BadInputError)


@pytest.mark.e2e
def test_the_command_serves_tells_its_clock_and_leaves_the_truth(tmp_path):
    truth = tmp_path / "truth.parquet"
    with start_emulator(time_scale=50, truth=truth, seed=3) as url:
        readings = []
        for _ in range(2):
            with urllib.request.urlopen(f"{url}/_ramptrace/clock") as response:
                readings.append(msgspec.json.decode(response.read()))
                assert response.headers["Server"] == "ramptrace-emulator"
    first, second = readings
    assert first["emulated"] is True
    clock = EndpointClock(client_epoch_us=first["client_us"], endpoint_epoch_us=first["endpoint_us"], time_scale=50)
    assert abs(clock.to_endpoint_us(second["client_us"]) - second["endpoint_us"]) <= 50
    frame = pl.read_parquet(truth)
    assert frame.schema == pl.Schema(Truth)
    assert frame.is_empty()
