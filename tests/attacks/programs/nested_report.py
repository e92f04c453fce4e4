"""A report so deeply nested that reading it goes beyond Python's recursion limit."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    os.write(3, b'{"event": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    os._exit(0)
