"""A report without an end."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    while True:
        os.write(3, b"x" * 65536)
