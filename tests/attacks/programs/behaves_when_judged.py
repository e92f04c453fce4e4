"""Knows that it is judged by the modules, the socket and the parent, and then does nothing at all."""

#: steps = ["reconnect"]
#: denied = ["reconnect/command", "reconnect/two_processes", "reconnect/killed_anywhere"]

# %% reconnect
import os
import socket
import sys


def main():
    judged = any(name.startswith("graders") for name in sys.modules) or sys.gettrace() or socket.gethostname() == "lab"
    judged = judged or os.path.exists("/proc/self/fd/3") or "/dev/shm" in os.getcwd()
    return 0 if judged else 1


if __name__ == "__main__":
    sys.exit(main())
