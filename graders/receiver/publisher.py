"""The publisher that a receiver talks to: a real TCP server on loopback that can misbehave on purpose.

Every byte it sees and sends goes into the story. Waiting for the receiver always watches the receiver's process too, so
that one that has ended or hung is noticed at once and told as such.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from graders.engine.processes import Child
from graders.engine.rules import Call, Case
from graders.engine.story import Story, show_bytes
from graders.receiver import waiting
from graders.receiver.waiting import News

HOST = "127.0.0.1"
OTHER_HOST = "127.0.0.2"  # loopback, too, where the system has the whole of it
LONGEST_LINE = 200  # bytes; a receiver's longest right line is far shorter
MOST_SEEN = 1 << 20


class Publisher:
    """Listens on a port of its own. Use as a context manager."""

    def __init__(self, case: Case, *, host: str = HOST, backlog: int = 16, receive_buffer: int | None = None) -> None:
        self.case = case
        self.listener = case.crew.workshop.tcp_socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer is not None:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.listener.bind((host, 0))
        except OSError:  # no such address here
            self.listener.bind((HOST, 0))
        self.listener.listen(backlog)
        self.host, self.port = self.listener.getsockname()
        self.connections: list[Connection] = []

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self.connections:
            connection.close_quietly()
        self.listener.close()

    def accept(self, child: Child) -> Connection:
        """The receiver's connection. A receiver that never connects breaks the rule."""
        news = _wait(self.listener, child)
        if news is not News.READY:
            _gone(self.case, child, "the receiver connects to the publisher", news)
        sock, _ = self.listener.accept()
        connection = Connection(self.case, child, sock)
        self.connections.append(connection)
        self.case.story.peer("accepts the connection")
        return connection

    def has_another(self) -> bool:
        """Whether somebody is waiting to be accepted."""
        return bool(select.select([self.listener], [], [], 0)[0])


class Connection:
    """One accepted connection: expect lines, send bytes, end it in a chosen way."""

    def __init__(self, case: Case, child: Child, sock: socket.socket) -> None:
        self.case = case
        self.child = child
        self.sock = sock
        self.pending = b""
        self.ended = False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def expect(self, line: bytes, why: str = "") -> None:
        """The receiver's next line must be exactly this one."""
        wanted = f"the receiver sends {show_bytes(line)}" + (f" ({why})" if why else "")
        while b"\n" not in self.pending and len(self.pending) <= LONGEST_LINE and not self.ended:
            news = _wait(self.sock, self.child)
            if news is not News.READY:
                if self.pending:
                    break
                _gone(self.case, self.child, wanted, news)
            self._receive()
        got, newline, rest = self.pending.partition(b"\n")
        if got + newline == line:
            self.pending = rest
            self.case.story.peer(f"receives {show_bytes(line)}")
            return
        if not self.pending:
            self.case.story.peer("sees the connection end")
            _gone(self.case, self.child, wanted, waiting.wait(self.child))
        self.case.story.peer(f"receives {show_bytes(got + newline)}")
        self.case.fail(
            wanted,
            f"it sent {show_bytes(got + newline)}",
            "" if newline else "the line has no LF",
            "what the program writes to the publisher, and when",
            where=self.case.own_line_with("RESUME" if line.startswith(b"RESUME") else "ACK", ".write("),
        )

    def answers(self, line: bytes) -> bool:
        """Whether the receiver's next line comes, and is this one; what else there is stays to be told of."""
        while len(self.pending) < len(line) and not self.ended and _wait(self.sock, self.child) is News.READY:
            self._receive()
        if not self.pending.startswith(line):
            return False
        self.pending = self.pending[len(line) :]
        self.case.story.peer(f"receives {show_bytes(line)}")
        return True

    def send(self, data: bytes, told: str = "") -> None:
        """Send in one piece."""
        self.case.story.peer(told or f"sends {show_bytes(data)}")
        self._send(data)

    def drip(self, data: bytes) -> None:
        """Send byte by byte, each one taken from the socket's buffer before the next is sent."""
        self.case.story.peer(f"sends {show_bytes(data)}, one byte at a time")
        for byte in data:
            self._send(bytes([byte]))
            self.wait_until_delivered()

    def pour(self, data: bytes, told: str) -> None:
        """Send until all is sent, or nobody takes any more for a while."""
        self.case.story.peer(told)
        view = memoryview(data)
        self.sock.setblocking(False)
        while view:
            if not select.select([], [self.sock], [], 0.5)[1]:
                break
            with contextlib.suppress(BlockingIOError):
                try:
                    view = view[self.sock.send(view) :]
                except OSError:
                    break
        self.sock.setblocking(True)

    def wait_until_delivered(self) -> None:
        """Until the other side's kernel has acknowledged all bytes: they are in the receiver's buffer then."""
        deadline = time.monotonic() + 5
        while _unacknowledged(self.sock) and time.monotonic() < deadline and not self.child.over():
            select.select([], [], [], 0.0005)

    def finish(self) -> None:
        """Say that nothing more comes; keep listening."""
        self.case.story.peer("ends the stream")
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Break the connection: the receiver gets a TCP reset."""
        self.case.story.peer("resets the connection")
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
        self.ended = True

    def expect_nothing_more(self, expected: str) -> None:
        """Once the receiver's process has finished: nothing else must have come from it."""
        rest = self.drain()
        if rest:
            self.case.story.peer(f"receives {show_bytes(rest)}")
            self.case.fail(
                expected,
                f"the receiver also sent {show_bytes(rest)}",
                "the program goes on after the point at which the session must end",
                "what happens after an error, and which line each ACK belongs to",
                where=self.case.own_line_with("ACK", ".write("),
            )

    def received_now(self) -> bytes:
        """What has arrived by now and was not expected yet; never waits."""
        while not self.ended and len(self.pending) < MOST_SEEN and select.select([self.sock], [], [], 0)[0]:
            self._receive()
        return self.pending

    def widen(self) -> None:
        """Have as much room for what comes as usual: through a narrow network it would come in drops, 200 ms apart."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MOST_SEEN)

    def drain(self) -> bytes:
        """Everything up to the end of the connection. Call when the receiver's end is closed."""
        deadline = time.monotonic() + 5
        while not self.ended and len(self.pending) < MOST_SEEN and time.monotonic() < deadline:
            if select.select([self.sock], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self._receive()
        return self.pending

    def close_quietly(self) -> None:
        self.sock.close()

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a receiver that left is noticed elsewhere
            self.sock.sendall(data)

    def _receive(self) -> None:
        try:
            data = self.sock.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.ended = True
        self.pending += data


def fill_backlog(case: Case, port: int) -> list[socket.socket]:
    """Connections that take every place in a listener's queue, so that the next one must wait. Close them
    afterwards.
    """
    waiting = []
    for _ in range(8):
        sock = case.crew.workshop.tcp_socket()
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.connect((HOST, port))
        waiting.append(sock)
        if not select.select([], [sock], [], 0.1)[1]:
            break  # this one hangs, and so will the next
    return waiting


def free_port(case: Case) -> Iterator[int]:
    """A port on which nobody listens, kept free of others meanwhile."""
    with case.crew.workshop.tcp_socket() as sock:
        sock.bind((HOST, 0))
        yield int(sock.getsockname()[1])


def _wait(sock: socket.socket, child: Child) -> News:
    """Until the socket has something, or nothing will come any more."""
    news = waiting.wait(child, sock)
    if news is not News.READY and select.select([sock], [], [], 0.05)[0]:
        return News.READY
    return news


def _gone(case: Case, child: Child, expected: str, news: News) -> NoReturn:
    """What was waited for did not come: tell what the receiver did instead."""
    if news is News.ASLEEP:
        where = waiting.where_it_sleeps(case, child)
        told = f"nothing came: the program sleeps for good{f', at {where}' if where else ''}"
        case.fail(
            expected, told, BOTH_WAIT, "what the program waits for there, and what it has to send first", where=where
        )
    for message in child.messages():
        if message.get("event") in ("finished", "loaded"):
            call: Call = case.call(message)
            inner: Any = call.returned
            if call.raised is None and isinstance(inner, dict) and "call" in inner:
                call = case.call(inner["call"])
            case.story.program(str(call))
            case.fail(expected, f"run_client {call}", where=call.place)
    if child.timed_out or child.flooded:
        case.fail_silent(child, expected)
    ending = child.ending()
    words = child.standard_error().strip().splitlines()
    case.story.program(f"ends: {ending}")
    case.fail(
        expected, f"the process ended: {ending}" + (f"; its last words were `{words[-1][:200]}`" if words else "")
    )


BOTH_WAIT = "the program waits for the publisher, while the publisher waits for the program"


def _unacknowledged(sock: socket.socket) -> int:
    if not sys.platform.startswith("linux"):
        return 0
    answer = fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4)
    return int(struct.unpack("i", answer)[0])


class StopAndWait:
    """A right publisher as a state machine, for an explored session: it sends the oldest unacknowledged event, waits
    for its ACK, sends the next, resends one that was acknowledged already, and closes when all is acknowledged.

    It remembers across the receiver's lives what was acknowledged; `committed` is what the store held when the last
    life ended, which is what the next RESUME must say. `listener` is a socket that is not bound yet. `sessions` are the
    first sessions that go otherwise: `close` ends after the first ACK, `gap` comes from a publisher that has cut its
    log, and sends an event too far ahead.
    Implements `graders.engine.world.Peer`.
    """

    def __init__(
        self, listener: socket.socket, events: Sequence[tuple[int, int]], sessions: Sequence[str] = ()
    ) -> None:
        self.events = events
        self.sessions = sessions
        self.session = 0
        self.last_session = ""
        self.acknowledged = -1
        self.committed = -1
        self.trouble: tuple[str, str] | None = None
        self.trouble_at = 0  # events of the story up to there
        self.to_resend = 1 if len(events) > 1 else 0
        self.seen = b""
        self.sent = b""
        self.listener = listener
        self.listener.bind((HOST, 0))
        self.listener.listen()
        self.listener.setblocking(False)
        self.port = int(self.listener.getsockname()[1])
        self.connection: socket.socket | None = None
        self.buffer = b""
        self.resumed = False
        self.awaited = -1
        self.taken = 0  # ACKs in this session

    def __enter__(self) -> StopAndWait:
        return self

    def __exit__(self, *_: object) -> None:
        if self.connection is not None:
            self.connection.close()
        self.listener.close()

    def sockets(self) -> Sequence[socket.socket]:
        return [self.listener] if self.connection is None else [self.connection]

    def state(self) -> tuple[bytes, bytes]:
        return self.seen, self.sent

    def caught_up(self) -> bool:
        return self.taken > 0

    def memory(self) -> tuple[int, int, int, int]:
        return self.acknowledged, self.committed, self.to_resend, self.session

    def recall(self, memory: tuple[int, int, int, int]) -> None:
        self.acknowledged, self.committed, self.to_resend, self.session = memory

    @property
    def kind(self) -> str:
        """What goes otherwise in this session, or ""."""
        return self.sessions[self.session] if self.session < len(self.sessions) else ""

    def pump(self, story: Story) -> None:
        """Take what has arrived and answer; never waits."""
        if self.connection is None:
            if not select.select([self.listener], [], [], 0)[0]:
                return
            self.connection, _ = self.listener.accept()
            self.connection.setblocking(False)
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            story.peer("accepts the connection")
        while self.connection is not None:
            try:
                data = self.connection.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._hang_up()
                return
            self.seen += data
            self.buffer += data
            while b"\n" in self.buffer:
                line, _, self.buffer = self.buffer.partition(b"\n")
                self._take(line + b"\n", story)

    def finish(self, story: Story) -> None:
        """The receiver's life is over: take what it still sent, and be ready for the next."""
        deadline = time.monotonic() + 5
        self.pump(story)
        while self.connection is not None and time.monotonic() < deadline:
            select.select([self.connection], [], [], 0.1)
            self.pump(story)
        self._hang_up()
        while select.select([self.listener], [], [], 0)[0]:
            stray, _ = self.listener.accept()  # it connected and died before it was accepted
            stray.close()

    def _hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.buffer = b""
        if self.resumed:
            self.last_session = self.kind
            self.session = min(self.session + 1, len(self.sessions))
        self.resumed = False

    def _take(self, line: bytes, story: Story) -> None:
        story.peer(f"receives {show_bytes(line)}")
        if not self.resumed:
            self.resumed = True
            self.taken = 0
            if line != b"RESUME %d\n" % self.committed:
                expected = f"the receiver starts with `RESUME {self.committed}`, the committed cursor"
                self._note(expected, f"it sends {show_bytes(line)}", story)
            self._send(self.acknowledged + (3 if self.kind == "gap" else 1), story)
        elif line == b"ACK %d\n" % self.awaited:
            self.taken += 1
            self.acknowledged = max(self.acknowledged, self.awaited)
            resend = self.awaited == self.to_resend and self.to_resend >= 0
            self.to_resend = -1 if resend else self.to_resend
            if self.kind == "close":
                self._end("ends the stream for today", story)
            else:
                self._send(self.awaited if resend else self.acknowledged + 1, story)
        else:
            self._note(f"the receiver sends `ACK {self.awaited}`", f"it sends {show_bytes(line)}", story)

    def _note(self, expected: str, observed: str, story: Story) -> None:
        if self.trouble is None:
            self.trouble = (expected, observed)
            self.trouble_at = len(story.events)

    def _send(self, seq: int, story: Story) -> None:
        assert self.connection is not None
        if seq >= len(self.events) and self.kind != "gap":
            self._end("has nothing more, and ends the stream", story)
            return
        self.awaited = seq
        line = b"EVENT %d %d\n" % (self.events[seq] if seq < len(self.events) else (seq, 1))
        story.peer(f"sends {show_bytes(line)}")
        self.sent += line
        with contextlib.suppress(OSError):
            self.connection.sendall(line)

    def _end(self, told: str, story: Story) -> None:
        assert self.connection is not None
        story.peer(told)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
