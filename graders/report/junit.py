"""A verdict as JUnit XML: a test suite for each step, a test case for each rule."""

from __future__ import annotations

from xml.etree import ElementTree

from graders.report import parts
from graders.report.text import story_lines
from graders.verdict import Finding, Outcome, StepVerdict, Verdict

TAGS = {Outcome.FAIL: "failure", Outcome.ERROR: "error", Outcome.SKIPPED: "skipped"}
COUNTED = {"failures": Outcome.FAIL, "errors": Outcome.ERROR, "skipped": Outcome.SKIPPED}


def render(verdict: Verdict) -> str:
    """The document, in ASCII; what XML cannot hold at all stands there as an escape."""
    root = ElementTree.Element("testsuites", {"name": f"recovery-lab {parts.visible(verdict.unit)}"})
    root.attrib |= _counts([finding for step in verdict.steps for finding in step.rules])
    root.extend(_suite(verdict, step) for step in verdict.steps)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii")


def _suite(verdict: Verdict, step: StepVerdict) -> ElementTree.Element:
    suite = ElementTree.Element("testsuite", {"name": parts.visible(step.step), **_counts(list(step.rules))})
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"seed": verdict.seed, "judge": verdict.judge, "score": step.score, "max_score": step.max_score}
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": str(value)})
    suite.extend(_case(verdict, finding) for finding in step.rules)
    return suite


def _counts(findings: list[Finding]) -> dict[str, str]:
    outcomes = [finding.outcome for finding in findings]
    return {"tests": str(len(findings))} | {name: str(outcomes.count(outcome)) for name, outcome in COUNTED.items()}


def _case(verdict: Verdict, finding: Finding) -> ElementTree.Element:
    step, _, name = parts.visible(finding.rule).rpartition("/")
    case = ElementTree.Element("testcase", {"classname": f"{parts.visible(verdict.unit)}.{step}", "name": name})
    if tag := TAGS.get(finding.outcome):
        lines = [f"{row.label}: {row.text}" if row.label else row.text for row in parts.rows(finding)]
        told = ElementTree.SubElement(case, tag, {"message": parts.visible(finding.sentence)})
        told.text = "\n".join([*lines, *story_lines(finding)])
    return case
