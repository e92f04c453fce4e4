"""Takes for ever, a tenth of a second at a time."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import time

class ProtocolError(ValueError):
    pass


def parse_line(line):
    while True:
        time.sleep(0.1)
