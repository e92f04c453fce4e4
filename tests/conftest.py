"""Options of the test suite."""

from __future__ import annotations

import pytest

KINDS = {
    "slow": "takes minutes; runs with --slow, and in .ci/run",
    "exhaustive": "takes a quarter of an hour; runs with --exhaustive only, before a release",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--in-part",
        action="store_true",
        help="judge a part of the programs, which differs from one Python to the next: every fourth right one, and "
        "the first wrong one of every other rule",
    )
    parser.addoption("--record", action="store_true", help="write the golden verdicts anew instead of comparing them")
    for kind, told in KINDS.items():
        parser.addoption(f"--{kind}", action="store_true", help=f"also run what {told}")


def pytest_configure(config: pytest.Config) -> None:
    for kind, told in KINDS.items():
        config.addinivalue_line("markers", f"{kind}: {told}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for kind, told in KINDS.items():
        if not config.getoption(f"--{kind}"):
            skip = pytest.mark.skip(reason=f"{kind}: {told}")
            for item in items:
                if item.get_closest_marker(kind) is not None:
                    item.add_marker(skip)
