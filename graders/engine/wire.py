"""How the judge and a child process write values to each other: one JSON object a line, nothing that can run code.

JSON has no bytes, no tuples and no arbitrary objects; those travel as one-key objects: `{"$bytes": latin-1 text}`,
`{"$tuple": [...]}` and, one way only, `{"$repr": text}` for what a child cannot send.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

LONGEST_REPR = 300
LONGEST_INT_BITS = 4096  # Python refuses to write larger integers as decimal text


@dataclass(frozen=True)
class Opaque:
    """An object that stayed in the child; all that is known here is how it looks."""

    text: str

    def __repr__(self) -> str:
        return self.text


def encode(value: Any) -> Any:
    """`value` as something JSON can hold."""
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int) and value.bit_length() <= LONGEST_INT_BITS:
        return int(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": bytes(value).decode("latin-1")}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: encode(item) for key, item in value.items()}
    return {"$repr": safe_repr(value)}


def safe_repr(value: Any) -> str:
    """`repr`, cut to a readable length, and never an exception of the object's own making."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= LONGEST_REPR else text[:LONGEST_REPR] + "…"


def decode(value: dict[str, Any]) -> Any:
    """The inverse of `encode`, for one object of JSON; what is inside it has been decoded before."""
    if len(value) == 1:
        match value:
            case {"$bytes": str(text)}:
                return text.encode("latin-1")
            case {"$tuple": list(items)}:
                return tuple(items)
            case {"$repr": str(text)}:
                return Opaque(text)
    return value


def dumps(message: dict[str, Any]) -> bytes:
    return json.dumps(encode(message)).encode("ascii") + b"\n"


def loads(line: bytes) -> dict[str, Any]:
    """Raises ValueError for anything that is not one JSON object."""
    try:
        message = json.loads(line, object_hook=decode)
    except RecursionError:
        raise ValueError("a message is not so deep") from None
    if not isinstance(message, dict):
        raise ValueError("a message is one JSON object")
    return message
