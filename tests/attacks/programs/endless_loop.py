"""Loops without an end, and catches whatever would end it."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
class ProtocolError(ValueError):
    pass


def parse_line(line):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
