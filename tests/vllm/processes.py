"""Engines and routers: started, looked into, and ended by the ids they were started with."""

import contextlib
import os
import random
import shlex
import signal
import socket
import subprocess
import time

import wire
from report import same

READY_LIMIT = 600


def free_port():
    """A free port that no connection is given by chance while an engine starts."""
    while True:
        port = random.randrange(16000, 32000)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _stat(pid):
    """(state, session, start time, name) of a process, or None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            text = file.read()
        with open(f"/proc/{pid}/cmdline", encoding="latin-1") as file:
            name = file.read().replace("\0", " ").strip()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[3]), int(fields[19]), name


class Started:
    """A process in a session of its own, with all that it starts in turn."""

    def __init__(self, command, log, env=None):
        self.log = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=env,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def members(self):
        """{id: name} of its living processes: those of the session it leads."""
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (stat := _stat(entry)):
                state, session, _, name = stat
                if session == self.pid and state not in "ZX":
                    found[int(entry)] = name
        return found

    def kill(self, pid, number=signal.SIGKILL):
        """Sends a signal to one of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def gone(self, limit=10):
        """Waits until none of its processes lives; whether that came true."""
        until = time.monotonic() + limit
        while self.members():
            if time.monotonic() > until:
                return False
            self.process.poll()
            time.sleep(0.05)
        return True

    def end(self):
        """Ends all of its processes; says how many there were."""
        members = self.members()
        for pid in members:
            self.kill(pid)
        self.process.wait()
        self.gone()
        return len(members)

    def tail(self, lines=15):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])


class Engine(Started):
    """A vLLM server, started by `command PORT OPTIONS`."""

    def __init__(self, command, *options):
        self.port = free_port()
        log = os.path.join(os.environ["LOGS"], f"engine-{self.port}.log")
        super().__init__([*shlex.split(command), str(self.port), *options], log)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def wait(self):
        """Waits until it answers; says how long that took."""
        started = time.monotonic()
        while time.monotonic() - started < READY_LIMIT:
            if self.process.poll() is not None:
                raise RuntimeError(f"the engine ended while starting:\n{self.tail()}")
            with contextlib.suppress(OSError, wire.Broken, ValueError):
                if wire.ask(self.port, "GET", "/version").json().get("version"):
                    return time.monotonic() - started
            time.sleep(0.5)
        raise RuntimeError(f"the engine was not ready in {READY_LIMIT} s:\n{self.tail()}")

    def core(self):
        """The id of the process that computes."""
        cores = [pid for pid, name in self.members().items() if "EngineCore" in name]
        if len(cores) != 1:
            raise RuntimeError(f"no single EngineCore: {self.members()}")
        return cores[0]


class Running:
    """An engine that somebody else started: it can be asked, not killed."""

    def __init__(self, url):
        host, _, port = url.rstrip("/").partition("://")[2].rpartition(":")
        if host != "127.0.0.1":
            raise SystemExit(f"{url}: only engines on 127.0.0.1, http://127.0.0.1:PORT, are asked")
        self.port = int(port)
        self.url = f"http://127.0.0.1:{self.port}"


class Router(Started):
    """The router in front of some engines; a context manager."""

    def __init__(self, binary, engines, model, retries=True, **settings):
        self.port = free_port()
        self.admin = free_port()
        self.engines = engines
        given = {
            "host": "127.0.0.1",
            "port": self.port,
            "admin_port": self.admin,
            "static_backends": ",".join(engine.url for engine in engines),
            "static_models": ",".join(model for _ in engines),
            "enable_retries": str(retries).lower(),
            **settings,
        }
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        env = {"PATH": os.environ["PATH"]}
        log = os.path.join(os.environ["LOGS"], f"router-{self.port}.log")
        super().__init__([binary, *flags], log, env)

    def __enter__(self):
        until = time.monotonic() + 20
        while True:
            try:
                wire.ask(self.admin, "GET", "/live")
                wire.ask(self.port, "GET", "/health")
                return self
            except (OSError, wire.Broken):
                if time.monotonic() > until or self.process.poll() is not None:
                    text = self.tail()
                    self.end()
                    raise RuntimeError(f"the router did not start:\n{text}") from None
                time.sleep(0.05)

    def __exit__(self, *_):
        self.end()

    def count(self, name, **labels):
        """The sum of its series `vllm_pingora_NAME` with these labels, its own answers aside."""
        series = {
            (name, pairs): value
            for (name, pairs), value in wire.metrics(self.admin).items()
            if ("route", "/health") not in pairs
        }
        return int(wire.total(series, f"vllm_pingora_{name}", **labels))

    def counts(self, wanted, name, **labels):
        """Waits until it has counted that many: it does so after the last byte of an answer."""
        until = time.monotonic() + 2
        while (found := self.count(name, **labels)) != wanted and time.monotonic() < until:
            time.sleep(0.02)
        same(found, wanted, f"{name} {labels}")

    def retried(self):
        """{reason: attempts after the first} so far."""
        return {
            dict(labels)["reason"]: int(value)
            for (name, labels), value in wire.metrics(self.admin).items()
            if name == "vllm_pingora_retries_total"
        }
