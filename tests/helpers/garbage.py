"""Hooks that keep libraries out of the garbage collections of tests; conftest.py takes them over."""

import gc
import sys
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile, and leave a million objects out of it afterwards: every training collects it, in half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        _freeze()
        gc.enable()


_frozen_modules = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Leave libraries that tests imported out of it too."""
    if len(sys.modules) > _frozen_modules + 500:
        _freeze()


def _freeze() -> None:
    global _frozen_modules
    gc.collect()
    gc.freeze()
    _frozen_modules = len(sys.modules)
