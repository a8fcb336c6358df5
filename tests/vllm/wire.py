"""HTTP/1.1 by hand: exact bytes, when each piece arrived, and whether the answer was complete."""

import json
import socket
import time


class Broken(Exception):
    """The connection ended before an answer did."""


class Answer:
    """One answer: its head at once, its body as it is read."""

    def __init__(self, stream, started):
        self._stream = stream
        self._started = started
        self._rest = b""
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        self.status = int(head[0].split(" ")[1])
        self.headers = {}
        for line in head[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.body = b""
        self.complete = False
        # [seconds since the request was sent, bytes] of every read that brought body bytes
        self.arrivals = []
        self._fresh = True
        self.keep_going = self._pieces()

    @property
    def attempts(self):
        """What the router says about how many attempts it took; 0 where it says nothing."""
        return int(self.headers.get("x-vllm-pingora-attempts", 0))

    def read(self):
        """Reads to the end; raises `Broken` where there is none."""
        for _ in self.keep_going:
            pass
        return self

    def read_while(self, wanted):
        """Reads on until `wanted(self)` is false."""
        while wanted(self):
            next(self.keep_going)
        return self

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The payloads of a stream's events."""
        return [
            event[len(b"data: ") :]
            for event in self.body.split(b"\n\n")
            if event.startswith(b"data: ")
        ]

    def _pieces(self):
        if self.status in (204, 304):
            pass
        elif "chunked" in self.headers.get("transfer-encoding", ""):
            while size := int(self._until(b"\r\n").split(b";")[0], 16):
                yield from self._take(size)
                self._until(b"\r\n")
            self._until(b"\r\n")
        elif "content-length" in self.headers:
            yield from self._take(int(self.headers["content-length"]))
        else:
            raise Broken("an answer without a length")
        self.complete = True

    def _take(self, size):
        while size:
            if not self._rest:
                self._more()
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            self.body += piece
            if self._fresh:
                self.arrivals.append([time.monotonic() - self._started, 0])
                self._fresh = False
            self.arrivals[-1][1] += len(piece)
            yield

    def _until(self, mark):
        while mark not in self._rest:
            self._more()
        taken, _, self._rest = self._rest.partition(mark)
        return taken

    def _more(self):
        try:
            data = self._stream.recv(65536)
        except ConnectionError as error:
            raise Broken(str(error)) from error
        if not data:
            raise Broken("the connection ended in the middle of an answer")
        self._rest += data
        self._fresh = True

    def surplus(self):
        """Whether anything came after the end of the answer."""
        if self._rest:
            return True
        self._stream.settimeout(0.05)
        try:
            return bool(self._stream.recv(1))
        except (TimeoutError, ConnectionError):
            return False


class Connection:
    """A client's connection."""

    def __init__(self, port, timeout=120):
        self._stream = socket.create_connection(("127.0.0.1", port), timeout)
        self._stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._stream.close()

    def send(self, method, path, body=None, headers=()):
        """Sends a request; `body` is bytes, or a value to send as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        head = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{self.port}"]
        if body is not None:
            head += ["content-type: application/json", f"content-length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in headers]
        self._stream.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + (body or b""))
        self.sent = time.monotonic()

    def answer(self):
        """Waits for the head of the answer."""
        return Answer(self._stream, self.sent)


def ask(port, method, path, body=None, headers=(), timeout=120):
    """One whole exchange on a connection of its own."""
    with Connection(port, timeout) as connection:
        connection.send(method, path, body, headers)
        return connection.answer().read()


def metrics(port):
    """What a process counts: {(name, frozenset of labels): value}."""
    series = {}
    for line in ask(port, "GET", "/metrics").body.decode().splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        name, _, labels = name.partition("{")
        pairs = [pair.partition("=") for pair in labels.rstrip("}").split(",") if "=" in pair]
        key = frozenset((label, text.strip('"')) for label, _, text in pairs)
        series[name, key] = float(value)
    return series


def total(series, wanted, **labels):
    """The sum of all series of that name that carry these labels."""
    return sum(
        value
        for (name, pairs), value in series.items()
        if name == wanted and set(labels.items()) <= pairs
    )
