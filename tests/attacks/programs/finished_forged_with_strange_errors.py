"""The same, with errors whose parts are no such thing."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    os.write(3, b'{"event": "finished", "raised": {"where": [7, "x"], "bases": 5, "is": {"a": 1}}}\n')
    os._exit(0)
