"""Says that the judge's probe broke, which is the judge's own fault."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    os.write(3, b'{"event": "broke", "error": "nothing of mine"}\n')
    os._exit(0)
