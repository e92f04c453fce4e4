"""What a learner reads where a playground cell meets something that is not written yet."""

import pytest

from lab.playground import try_out


def unwritten() -> None:
    raise NotImplementedError("write this")


def test_an_unwritten_function_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with try_out():
        unwritten()
    assert capsys.readouterr().out.startswith("unwritten is not written yet.")


def test_a_missing_name_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with try_out():
        parse_line(b"")  # type: ignore[name-defined]  # noqa: F821
    assert capsys.readouterr().out.startswith("parse_line is not here yet.")


def test_any_other_error_comes_out() -> None:
    with pytest.raises(AssertionError, match="1 is missing"), try_out():
        raise AssertionError("1 is missing")
