"""Making a student's Markdown harmless in the feedback page and in the formgrader, where it would run as its own.

No tag can begin: an invisible word joiner after each `<` leaves the text readable, in code as well, and nothing of it
is HTML any more. A library that cleans HTML (bleach comes with nbconvert) is of no use here: the text is rendered after
it was cleaned, so that Markdown makes new HTML of it, and `a < b` in code would be read as `a &lt; b`. What the
renderer makes of links and pictures is then looked at; a text in which anything else than plain addresses comes out is
shown as it was written, in a code block.
"""

from __future__ import annotations

import html.parser
import re
from urllib.parse import urlsplit

from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

LONGEST = 50_000  # characters; an answer has a few hundred, and rendering may take the square of it
TAG = re.compile(r"<(?=[A-Za-z/!?])")
JOINER = "\u2060"
FENCED = re.compile(r"\A(?P<fence>`{3,})\n.*\n(?P=fence)\Z", re.DOTALL)

TAGS = re.compile(
    r"a|blockquote|br|code|d[dlt]|del|div|em|h[1-6r]|img|input|li|ol|p|pre|section|span|strong|su[bp]|t[dhr]|table|tbody|"
    r"thead|ul"
)
ATTRIBUTES = re.compile(
    r"align|alt|checked|class|colspan|disabled|href|id|rowspan|src|start|style|title|type",
)
STYLE = re.compile(r"\s*text-align:\s*(left|right|center);?\s*")
SCHEMES = frozenset(["", "http", "https", "mailto"])
PICTURE = re.compile(r"data:image/(png|jpeg|gif);base64,")
INVISIBLE = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\u2060]")


def harmless(text: str, attachments: dict[str, dict[str, str]]) -> str:
    """The text, in which nothing can run when it is rendered. What is harmless already comes back as it is.

    `attachments` are the cell's pictures: a text that names another one would stop the renderer.
    """
    inert = TAG.sub(f"<{JOINER}", text)
    if _is_fenced(inert):
        return inert
    if len(inert) > LONGEST:
        return fenced(f"{inert[:LONGEST]}\n… (cut: there were {len(inert)} characters)")
    return inert if _runs_nothing(inert, attachments) else fenced(inert)


def fenced(text: str) -> str:
    """The text as a code block."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _is_fenced(text: str) -> bool:
    match = FENCED.match(text)
    return match is not None and text.count(match["fence"]) == 2


def _runs_nothing(text: str, attachments: dict[str, dict[str, str]]) -> bool:
    page = _Page()
    try:
        renderer = IPythonRenderer(escape=False, attachments=attachments)
        page.feed(MarkdownWithMath(renderer=renderer).render(text))
        page.close()
    except Exception:
        return False  # what the renderer cannot do now, it cannot do in the feedback either
    return page.harmless


class _Page(html.parser.HTMLParser):
    """Looks for anything in rendered text that is more than words, pictures and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.harmless = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        plain = all(_is_plain(name, value or "") for name, value in attrs)
        self.harmless = self.harmless and plain and TAGS.fullmatch(tag) is not None

    def handle_comment(self, data: str) -> None:
        self.harmless = False

    def handle_decl(self, decl: str) -> None:
        self.harmless = False

    def handle_pi(self, data: str) -> None:
        self.harmless = False

    def unknown_decl(self, data: str) -> None:
        self.harmless = False


def _is_plain(name: str, value: str) -> bool:
    if name == "src" and PICTURE.match(value):
        return True
    if name in ("href", "src"):
        try:
            return urlsplit(INVISIBLE.sub("", value)).scheme.lower() in SCHEMES
        except ValueError:
            return False
    if name == "style":
        return STYLE.fullmatch(value) is not None
    return (
        ATTRIBUTES.fullmatch(name) is not None and "mermaid" not in value.lower()
    )  # a script of the page draws what has that class
