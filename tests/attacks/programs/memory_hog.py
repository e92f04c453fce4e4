"""Takes all memory that there is."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
class ProtocolError(ValueError):
    pass


def parse_line(line):
    hoard = []
    while True:
        hoard.append(bytearray(b'x') * (64 << 20))
