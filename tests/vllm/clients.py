"""Clients that come back after a pause, and clients that leave."""

import threading
import time

import wire
from report import expect, same

SLOTS = 20
ROUNDS = 3


def begin(count, work):
    """Starts `work(n)` for every n below `count`: the threads, and a list that they fill."""
    results = [None] * count

    def one(n):
        try:
            results[n] = work(n)
        except Exception as error:
            results[n] = error

    threads = [threading.Thread(target=one, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    return threads, results


def together(count, work):
    """The results of `work(n)` for every n below `count`, all at once; errors included."""
    threads, results = begin(count, work)
    for thread in threads:
        thread.join()
    return results


def until(condition, limit, what):
    """Waits for a condition; says how long that took."""
    started = time.monotonic()
    while not condition():
        expect(time.monotonic() - started < limit, f"{what}: not within {limit} s")
        time.sleep(0.02)
    return time.monotonic() - started


def load(engine):
    """(running, waiting) requests of an engine, by its own count."""
    series = wire.metrics(engine.port)
    return tuple(
        int(wire.total(series, f"vllm:num_requests_{name}")) for name in ("running", "waiting")
    )


def pauses(run, router, around, spread):
    """Requests `around` seconds after one another on kept connections: none may fail."""
    body = {"model": run.model, "prompt": "A proxy is", "max_tokens": 1}

    def slot(n):
        statuses = []
        with wire.Connection(router.port) as connection:
            for round in range(ROUNDS):
                if round:
                    time.sleep(around - spread + 2 * spread * n / SLOTS)
                connection.send("POST", "/v1/completions", body)
                statuses.append(connection.answer().read().status)
        return statuses

    results = together(SLOTS, slot)
    same(results, [[200] * ROUNDS] * SLOTS, "statuses")
    asked = SLOTS * ROUNDS
    router.counts(asked, "requests_total")
    same(router.count("attempts_total"), asked, "attempts counted")
    stale = router.count("stale_connections_total")
    return f"{asked} requests at gaps of {around - spread:.2f}-{around + spread:.2f} s, 0 errors, {stale} stale connections sent again"


def leaving(run, router, engine):
    """The engine stops working for a client that has gone."""
    same(load(engine), (0, 0), "load before")
    body = {"model": run.model, "prompt": "A proxy is", "max_tokens": 1500, "ignore_eos": True}
    path = "/v1/completions"
    took = {}

    connection = wire.Connection(router.port)
    connection.send("POST", path, body | {"stream": True})
    connection.answer().read_while(lambda answer: answer.body.count(b"data: ") < 5)
    same(load(engine), (1, 0), "load in mid-stream")
    connection.close()
    took["in mid-stream"] = until(lambda: load(engine) == (0, 0), 3, "stream left")

    connection = wire.Connection(router.port)
    connection.send("POST", path, body)
    until(lambda: load(engine) == (1, 0), 30, "request running")
    connection.close()
    took["before a whole answer"] = until(lambda: load(engine) == (0, 0), 3, "request left")

    seats = [wire.Connection(engine.port) for _ in range(run.seats)]
    for seat in seats:
        seat.send("POST", path, body)
    until(lambda: load(engine) == (run.seats, 0), 30, "seats taken")
    for name, stream in (("waiting", False), ("waiting for a stream", True)):
        connection = wire.Connection(router.port)
        connection.send("POST", path, body | {"stream": stream})
        until(lambda: load(engine)[1] == 1, 30, "request waiting")
        connection.close()
        took[name] = until(lambda: load(engine)[1] == 0, 3, f"{name} left")
        same(load(engine), (run.seats, 0), f"load after {name}")
    for seat in seats:
        seat.close()
    until(lambda: load(engine) == (0, 0), 5, "seats free")

    router.counts(len(took), "requests_total", outcome="client_gone")
    same(router.count("requests_total"), len(took), "requests")
    same(router.count("requests_in_flight"), 0, "requests in flight")
    same(router.count("engine_requests_in_flight"), 0, "attempts in flight")
    same(router.retried(), {}, "retries")
    expect(max(took.values()) < 1.5, f"took too long: {took}")
    return ", ".join(f"left {name}: free after {seconds:.2f} s" for name, seconds in took.items())
