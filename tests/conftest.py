"""Fixtures for all rooms."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine is slow, which is no fault: nothing here is timed.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# Under nohup it is ignored, by all that a test starts as well; some tests send it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def shared_traces() -> Path:
    """The folder of public sample traces: `shared/traces` beside the checkout or above it, or in RAMPTRACE_SHARED."""
    root = Path(__file__).resolve().parent.parent
    candidates = [Path(os.environ["RAMPTRACE_SHARED"])] if "RAMPTRACE_SHARED" in os.environ else []
    candidates += [folder / "shared" for folder in root.parents]
    for candidate in candidates:
        if (candidate / "traces").is_dir():
            return candidate / "traces"
    pytest.skip("no sample traces: put them in ../shared/traces, or name the folder above in RAMPTRACE_SHARED")


@pytest.fixture
def s3(monkeypatch):
    """A server that speaks as much of S3 as we use, with credentials for it in the environment."""
    from tests.s3_server import FakeS3

    for name, value in (
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "made-up"),
        ("AWS_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    fake = FakeS3()
    fake.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url)
    yield fake
    fake.stop()
