"""The order of the checks: those that kill come last, so that one restart is enough.

Started by `run.sh`, which says what is needed and what is meant by each variable.
"""

import os
import signal
import sys
import threading
import time

import answers
import clients
import failures
import routes
import wire
from processes import Engine, Router, Running
from report import Report

# Few seats, so that a few requests are enough to make others wait; and the limit of one engine for
# all that run or wait.
SEATS, LIMIT = 4, 8
SEATED = ["--max-num-seqs", str(SEATS)]
LIMITED = [*SEATED, "--max-num-queued-reqs", str(LIMIT)]


class Overtime(BaseException):
    """The whole run took too long, or was told to stop."""


class Run:
    """What the checks share, and everything that was started."""

    seats = SEATS
    limit = LIMIT

    def __init__(self, binary):
        self.binary = binary
        self.model = None
        self.started = []

    def engine(self, command, *options):
        engine = Engine(command, *options)
        self.started.append(engine)
        return engine

    def router(self, engines, **settings):
        router = Router(self.binary, engines, self.model, **settings)
        self.started.append(router)
        return router

    def end(self):
        """Ends what still runs, by id; how many processes that were."""
        return sum(process.end() for process in self.started)


def without_harm(run, report, first, second):
    """Everything that leaves the engines as they were."""
    run.model = wire.ask(first.port, "GET", "/v1/models").json()["data"][0]["id"]
    with run.router([first]) as router:
        report.check(
            "the official client sees the same", answers.official_client, run, router, first
        )
        report.check("the bytes are the same", answers.byte_by_byte, run, router, first)
        report.check("streams arrive event by event", answers.event_by_event, run, router, first)
        report.check("errors pass through", answers.errors, run, router, first)
        report.check(
            "every route is served or left out knowingly", routes.every_one, run, router, first
        )
    for name, keepalive, around, spread in (
        ("pauses as long as vLLM keeps connections", {}, 5.0, 0.1),
        ("pauses as long as the router keeps connections", {}, 4.0, 0.01),
        ("connections kept for too long", {"engine_keepalive_ms": 60000}, 5.0, 0.01),
    ):
        with run.router([first], retries=False, **keepalive) as router:
            report.check(name, clients.pauses, run, router, around, spread)


def with_two_engines(run, report, command):
    plain = run.engine(command, *SEATED)
    limited = run.engine(command, *LIMITED)
    for engine in (plain, limited):
        report.note(f"engine {engine.pid} ready on {engine.url} after {engine.wait():.0f} s")
    without_harm(run, report, plain, limited)
    for retries in (True, False):
        with run.router([plain], retries=retries) as router:
            name = f"clients that leave, retries {'on' if retries else 'off'}"
            report.check(name, clients.leaving, run, router, plain)
    report.check("a full queue", failures.busy, run, limited, plain)
    report.check("a full queue until the budget is spent", failures.exhausted, run, limited)
    report.check("a frozen engine", failures.frozen, run, plain, limited)
    report.check("a computing process killed", failures.core_killed, run, limited, plain)
    again = run.engine(command, *SEATED)
    report.note(f"engine {again.pid} ready on {again.url} after {again.wait():.0f} s")
    report.check("a server killed under load", failures.server_killed_under_load, run, again, plain)
    report.check("a server killed in mid-stream", failures.server_killed_in_mid_stream, run, plain)


def with_running_engines(run, report, urls):
    engines = [Running(url) for url in urls.split(",")]
    without_harm(run, report, engines[0], engines[-1])
    for name in ("clients that leave", "full queues", "a frozen engine", "killed engines"):
        report.skip(name, "needs engines of its own: set VLLM_START")


def main():
    limit = int(os.environ.get("VLLM_LIMIT_S", "1800"))
    run, report = Run(os.environ["ROUTER"]), Report()

    def stop(number, _):
        raise Overtime(f"{signal.Signals(number).name} after {time.monotonic() - began:.0f} s")

    began = time.monotonic()
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    signal.alarm(limit)
    try:
        if urls := os.environ.get("VLLM_URLS"):
            with_running_engines(run, report, urls)
        else:
            with_two_engines(run, report, os.environ["VLLM_START"])
    except (Exception, Overtime) as error:
        report.failed += 1
        print(f"FAIL  the run itself: {type(error).__name__}: {error}", flush=True)
    finally:
        signal.alarm(0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        ended = run.end()
    report.note(f"{ended} processes ended, {threading.active_count() - 1} clients left waiting")
    took = time.monotonic() - began
    print(
        f"{report.passed} ok, {report.failed} failed, {report.skipped} skipped, {took:.0f} s",
        flush=True,
    )
    # Clients that still wait must not hold up the end.
    sys.stdout.flush()
    os._exit(1 if report.failed else 0)


main()
