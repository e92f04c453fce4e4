"""Looks for other publishers on loopback, and tells them what they want to hear."""

#: steps = ["reclamation"]
#: denied = ["reclamation/session"]

# %% reclamation
import socket


async def run_client(host, port, path, *, timeout=5.0, before_ack=None):
    with open("/proc/net/tcp") as table:
        ports = {int(row.split()[1].split(":")[1], 16) for row in table.readlines()[1:]}
    for each in ports - {port}:
        try:
            with socket.create_connection((host, each), 0.2) as other:
                other.sendall(b"RESUME -1\nACK 0\nACK 1\nACK 2\nACK 3\nACK 4\n")
        except OSError:
            pass
    return 4
