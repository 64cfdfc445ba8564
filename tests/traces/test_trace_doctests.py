"""The examples in the docstrings of this room hold."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import traces

MODULES = [
    found.name for found in pkgutil.walk_packages(traces.__path__, "traces.") if not found.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) >= 8
