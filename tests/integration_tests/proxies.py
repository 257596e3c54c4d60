"""Small TCP servers between the store and PostgreSQL: one that can be cut, one that pools by transaction."""

from __future__ import annotations

import queue
import select
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit


class Handler(Protocol):
    def __call__(self, client: socket.socket, /) -> None: ...


def through(url: str, port: int) -> str:
    """Return the same database's URL, reached through a proxy on this port."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}"))


def address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


class Listener:
    """Accepts connections on a port of its own, one thread each; `close` ends them all."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._socket: socket.socket | None = None
        self.port = 0
        self.listen()

    def listen(self) -> None:
        """Start to listen, on the same port as before."""
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self.port = self._socket.getsockname()[1]
        thread = threading.Thread(target=self._accept, args=(self._socket,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            self.keep(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: socket.socket) -> None:
        try:
            self._handler(client)
        except (OSError, ConnectionError, queue.Empty):
            pass  # the client sees that it was cut off
        finally:
            self.drop(client)

    def keep(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open.add(connection)

    def drop(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()

    def cut(self) -> int:
        """Cut every open connection; return how many there were."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(connections)

    def refuse(self) -> None:
        """Listen no longer, and cut what is open."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
        self.cut()

    def close(self) -> None:
        self.refuse()
        for thread in self._threads:
            thread.join(10)
        for connection in list(self._open):
            self.drop(connection)


class Gate(Listener):
    """Passes bytes both ways until it is cut. `before_reply` lets a test act between a request and its answer."""

    def __init__(self, url: str) -> None:
        self._upstream = address_of(url)
        self.url = ""
        self.swallow_reply_to: bytes | None = None
        self.swallowed = threading.Event()
        super().__init__(self._pass)
        self.url = through(url, self.port)

    def _pass(self, client: socket.socket) -> None:
        server = socket.create_connection(self._upstream)
        self.keep(server)
        swallowing = False
        try:
            while True:
                readable, _, _ = select.select([client, server], [], [])
                for source in readable:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is client:
                        if self.swallow_reply_to is not None and self.swallow_reply_to in data:
                            self.swallow_reply_to, swallowing = None, True
                        server.sendall(data)
                    elif swallowing:  # it was done, and nobody will be told
                        self.swallowed.set()
                        return
                    else:
                        client.sendall(data)
        finally:
            self.drop(server)


@contextmanager
def gate(url: str) -> Iterator[Gate]:
    """Put a gate in front of a database."""
    listener = Gate(url)
    try:
        yield listener
    finally:
        listener.close()


@dataclass
class Wire:
    """One side of a connection, read message by message (PostgreSQL's protocol, version 3)."""

    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)

    def message(self) -> bytes | None:
        """Return the next whole message of the buffer, if there is one."""
        if len(self.buffer) < 5:
            return None
        size = 1 + struct.unpack_from("!i", self.buffer, 1)[0]
        if len(self.buffer) < size:
            return None
        message = bytes(self.buffer[:size])
        del self.buffer[:size]
        return message

    def fill(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the other side closed")
        self.buffer += data

    def next(self) -> bytes:
        while (message := self.message()) is None:
            self.fill()
        return message


class TransactionPooler(Listener):
    """Gives each transaction another server connection, as PgBouncer does with `pool_mode = transaction`.

    It always takes the connection that was used longest ago, so that two transactions in a row never meet the same
    one and whatever a client left in its session (prepared statements, settings) is missed at once.
    """

    def __init__(self, url: str) -> None:
        self._upstream = address_of(url)
        self._idle: queue.Queue[Wire] = queue.Queue()
        self._started = threading.Lock()
        self._greeting = b""
        self.transactions = 0
        super().__init__(self._serve_client)
        self.url = through(url, self.port)

    def _serve_client(self, client: socket.socket) -> None:
        startup = self._startup(client)
        if startup is None:
            return
        with self._started:
            if not self._greeting:
                for _ in range(3):
                    self._greeting = self._connect(startup)
        client.sendall(self._greeting)
        front = Wire(client)
        while True:
            first = front.next()
            if first[:1] == b"X":
                return
            server = self._idle.get(timeout=60)
            try:
                self._transaction(front, server, first)
            except (OSError, ConnectionError):
                self.drop(server.socket)
                raise
            self.transactions += 1
            self._idle.put(server)

    @staticmethod
    def _startup(client: socket.socket) -> bytes | None:
        while True:
            head = _exactly(client, 4)
            body = _exactly(client, struct.unpack("!i", head)[0] - 4)
            code = struct.unpack_from("!i", body)[0]
            if code in (80877103, 80877104):  # TLS or GSS asked for
                client.sendall(b"N")
            elif code == 80877102:  # a cancel request
                return None
            else:
                return head + body

    def _connect(self, startup: bytes) -> bytes:
        connection = socket.create_connection(self._upstream)
        self.keep(connection)
        connection.sendall(startup)
        wire, greeting = Wire(connection), b""
        while True:
            message = wire.next()
            greeting += message
            if message[:1] == b"E":
                raise ConnectionError(message.decode("utf-8", "replace"))
            if message[:1] == b"Z":
                self._idle.put(wire)
                return greeting

    @staticmethod
    def _transaction(front: Wire, back: Wire, first: bytes) -> None:
        pending, status = 0, b"I"
        message: bytes | None = first
        while True:
            while message is not None:
                pending += message[:1] in (b"Q", b"S")
                back.socket.sendall(message)
                message = front.message()
            readable, _, _ = select.select([front.socket, back.socket], [], [])
            if back.socket in readable:
                back.fill()
                while (reply := back.message()) is not None:
                    front.socket.sendall(reply)
                    if reply[:1] == b"Z":
                        pending, status = pending - 1, reply[5:6]
                if pending == 0 and status == b"I" and not front.buffer and front.socket not in readable:
                    return
            if front.socket in readable:
                front.fill()
                message = front.message()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the client closed")
        data += part
    return data


@contextmanager
def transaction_pooler(url: str) -> Iterator[TransactionPooler]:
    """Put a transaction-mode pooler in front of a database."""
    listener = TransactionPooler(url)
    try:
        yield listener
    finally:
        listener.close()
