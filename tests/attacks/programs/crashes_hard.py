"""Makes the interpreter crash, with a request for core dumps."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import ctypes
import faulthandler
import resource

class ProtocolError(ValueError):
    pass


def parse_line(line):
    faulthandler.enable()
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))
    except (OSError, ValueError):
        pass
    ctypes.string_at(0)
