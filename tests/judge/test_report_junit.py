"""The report as JUnit XML and for Gradescope: what their readers need, and valid whatever stands in it."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from report_samples import MIXED, NASTY, PASSED, hostile

from graders.report import gradescope, junit


def test_junit_has_a_suite_for_each_step_and_a_case_for_each_rule() -> None:
    root = ElementTree.fromstring(junit.render(MIXED))
    counted = {"tests": "5", "failures": "1", "errors": "1", "skipped": "2"}
    assert (root.tag, root.attrib) == ("testsuites", {"name": "recovery-lab receiver", **counted})
    cases = {
        suite.get("name"): {case.get("name"): [part.tag for part in case] for case in suite.iter("testcase")}
        for suite in root
    }
    assert cases == {
        "store": {"schema": [], "two_openers": ["failure"], "refuses": ["error"]},
        "retention": {"returns": ["skipped"], "pure": ["skipped"]},
    }
    assert {suite.get("tests") for suite in root} == {"3", "2"}
    facts = {fact.get("name"): fact.get("value") for fact in root[0].iter("property")}
    assert facts == {"seed": "20261130", "judge": MIXED.judge, "score": "1.5", "max_score": "2.0"}


def test_junit_tells_what_is_broken() -> None:
    failure = next(ElementTree.fromstring(junit.render(MIXED)).iter("failure"))
    assert failure.get("message") == "Two processes that open the same new file at once both succeed."
    assert "Observed: it raised OperationalError: first line\nsecond line" in str(failure.text)
    assert "     6. │              open_store comes back" in str(failure.text)


@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
def test_junit_is_valid_xml_whatever_was_observed(nasty: str) -> None:
    document = junit.render(hostile(nasty))
    assert document.isascii()
    root = ElementTree.fromstring(document)
    assert {element.tag for element in root.iter()} == {
        *("testsuites", "testsuite", "properties", "property", "testcase", "failure", "error", "skipped"),
    }


def test_gradescope_gets_points_and_words_for_each_rule() -> None:
    data = json.loads(gradescope.render(MIXED))
    assert (data["score"], data["stdout_visibility"], data["output_format"]) == (1.5, "hidden", "text")
    assert "recovery-lab check client.py --step store --step retention --seed 20261130" in data["output"]
    tests = {test["name"]: test for test in data["tests"]}
    assert {name: (test["score"], test["max_score"], test["status"]) for name, test in tests.items()} == {
        "store/schema": (1.0, 1.0, "passed"),
        "store/two_openers": (0.0, 0.5, "failed"),
        "store/refuses": (0.5, 0.5, "passed"),
        "retention/returns": (0.0, 1.0, "failed"),
        "retention/pure": (0.0, 1.0, "failed"),
    }
    assert tests["store/refuses"]["output"].startswith("THE JUDGE COULD NOT TELL: no points lost\n")
    assert sum(test["score"] for test in data["tests"]) == data["score"]
    assert set(tests["store/schema"]) == {"name", "score", "max_score", "status", "output", "output_format"}
    assert "power cut" in data["output"] and "power cut" not in gradescope.render(PASSED)


@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
def test_gradescope_gets_valid_json_whatever_was_observed(nasty: str) -> None:
    document = gradescope.render(hostile(nasty))
    json.dumps(json.loads(document), ensure_ascii=False).encode("utf-8")
    assert len(document) < 100_000
