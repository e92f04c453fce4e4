"""Calls itself beyond every limit, down to the end of the stack."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import sys

sys.setrecursionlimit(10**9)

class ProtocolError(ValueError):
    pass


def parse_line(line):
    return [parse_line(line)]
