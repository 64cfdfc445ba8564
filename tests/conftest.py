"""Fixtures for all rooms."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


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
