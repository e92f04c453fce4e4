"""The same, with numbers where there should be reports."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    os.write(3, b'{"event": "finished", "returned": [' + b"1," * 25 + b"1]}\n")
    os._exit(0)
