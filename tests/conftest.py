"""Options of the test suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-per-rule", action="store_true", help="judge one wrong program of each rule, not all")
    parser.addoption("--slow", action="store_true", help="also run what takes minutes; .ci/run does")
    parser.addoption("--record", action="store_true", help="write the golden verdicts anew instead of comparing them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; runs with --slow only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="takes minutes: run with --slow"))
