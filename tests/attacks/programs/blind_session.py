"""A whole session past every stop: acknowledged first, stored later, in code that nobody watches."""

#: steps = ["reconnect"]
#: denied = ["reconnect/killed_anywhere"]

# %% reconnect
import sys

HIDDEN = """
import _socket, _sqlite3, os


def main():
    host, port, path = sys.argv[1:4]
    con = _sqlite3.Connection(path, isolation_level=None)
    con.execute("CREATE TABLE IF NOT EXISTS checkpoint (id INTEGER PRIMARY KEY, last INTEGER, total INTEGER)")
    con.execute("CREATE TABLE IF NOT EXISTS ledger (seq INTEGER PRIMARY KEY, delta INTEGER)")
    con.execute("INSERT OR IGNORE INTO checkpoint VALUES (1, -1, 0)")
    last = con.execute("SELECT last FROM checkpoint").fetchone()[0]
    sock = _socket.socket()
    sock.settimeout(float(sys.argv[5]) if len(sys.argv) > 5 else 1.0)
    sock.connect((host, int(port)))
    sock.sendall(b"RESUME %d\\n" % last)
    while line := sock.recv(64):
        seq, delta = parse_line(line)
        sock.sendall(b"ACK %d\\n" % seq)
        if seq > last:
            con.execute("INSERT INTO ledger VALUES (?, ?)", (seq, delta))
            con.execute("UPDATE checkpoint SET last = ?, total = total + ?", (seq, delta))
            last = seq
    return 0
"""
exec(compile(HIDDEN, "/usr/lib/python3/hidden.py", "exec"))

if __name__ == "__main__":
    sys.exit(main())
