"""Options of the test suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-per-rule", action="store_true", help="judge one wrong program of each rule, not all")
    parser.addoption("--record", action="store_true", help="write the golden verdicts anew instead of comparing them")
