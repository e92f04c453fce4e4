"""The report as JSON: exactly the agreed object, whatever a learner's program has said."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from report_samples import BROKEN, MIXED, NASTY, PASSED, hostile

from graders.report import as_json
from graders.verdict import Verdict

SCHEMA = json.loads(as_json.SCHEMA.read_text("utf-8"))


def parse(document: str) -> dict[str, Any]:
    """The object, after everything that a strict reader asks for."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    data = json.loads(document, parse_constant=refuse)
    jsonschema.Draft202012Validator(SCHEMA).validate(data)
    json.dumps(data, ensure_ascii=False).encode("utf-8")
    assert isinstance(data, dict)
    return data


def test_the_schema_is_one_and_closed() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    objects = [SCHEMA, *(part for part in SCHEMA["$defs"].values() if part.get("type") == "object")]
    assert len(objects) == 4
    for part in objects:
        assert part["additionalProperties"] is False
        assert set(part["required"]) == set(part["properties"])


def test_the_whole_object() -> None:
    data = parse(as_json.render(MIXED))
    assert {key: value for key, value in data.items() if key != "steps"} == {
        "unit": "receiver",
        "judge": MIXED.judge,
        "seed": 20261130,
        "passed": False,
        "score": 1.5,
        "max_score": 4.0,
        "exploration": {"points": 659, "states": 18, "kills": 36, "seconds": 0.432},
    }
    store, retention = data["steps"]
    assert {key: value for key, value in store.items() if key != "rules"} == {
        "step": "store",
        "outcome": "fail",
        "score": 1.5,
        "max_score": 2.0,
    }
    assert [(rule["rule"], rule["outcome"], rule["points"]) for rule in store["rules"]] == [
        ("store/schema", "pass", 1.0),
        ("store/two_openers", "fail", 0.0),
        ("store/refuses", "error", 0.5),
    ]
    assert [rule["outcome"] for rule in retention["rules"]] == ["skipped", "skipped"]
    assert store["rules"][1] == {
        "rule": "store/two_openers",
        "outcome": "fail",
        "points": 0.0,
        "message": f"{BROKEN.sentence}\n{BROKEN.message}",
        "story": list(BROKEN.story),
        "evidence": BROKEN.evidence,
    }


def test_a_rule_that_passes_says_what_it_is_about() -> None:
    data = parse(as_json.render(PASSED))
    assert data["passed"] is True
    assert data["steps"][0]["rules"][0]["message"] == "A new file gets `checkpoint` with one row."


def test_a_verdict_on_nothing() -> None:
    data = parse(as_json.render(Verdict("receiver", -1, ())))
    assert (data["steps"], data["score"], data["max_score"]) == ([], 0.0, 0.0)


@pytest.mark.parametrize("change", [{"extra": 1}, {"seed": "1"}, {"steps": [{}]}, {"score": -1}, {"passed": None}])
def test_the_schema_refuses_what_is_not_agreed(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(as_json.as_object(MIXED) | change)


@pytest.mark.parametrize("nasty", NASTY, ids=range(len(NASTY)))
def test_hostile_text_is_data(nasty: str) -> None:
    document = as_json.render(hostile(nasty))
    assert document.isascii() and "\n" not in document
    data = parse(document)
    evidence = data["steps"][0]["rules"][0]["evidence"]
    if len(nasty) < 1000 and "\ud800" not in nasty:
        assert evidence["observed"] == nasty
        assert evidence[nasty][:3] == [nasty, "nan", "b'\\xff'"]
    assert len(document) < 2_000_000
