"""Engines that are busy, frozen or killed while clients wait."""

import collections
import json
import signal
import time

import openai

import answers
import wire
from clients import begin, load, together, until
from report import expect, same

PATH = "/v1/completions"
BUSY = b"The engine is currently busy"


def question(run, tokens, stream=False, **more):
    body = {"model": run.model, "prompt": "A proxy is", "max_tokens": tokens, "ignore_eos": True}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body | more


def ask(port, body):
    """One request on a connection of its own; whether anything followed the answer is noted."""
    with wire.Connection(port) as connection:
        connection.send("POST", PATH, body)
        answer = connection.answer().read()
        answer.more = answer.surplus()
        return answer


def whole(answer, tokens):
    """The answer is exactly one generation of that many tokens."""
    if isinstance(answer, Exception):
        raise answer
    same(answer.status, 200, f"status of {answer.body[:300]}")
    expect(answer.complete and not answer.more, "an answer is not complete, or more follows it")
    if "event-stream" in answer.headers["content-type"]:
        events = answer.events()
        same(events.count(b"[DONE]"), 1, "[DONE]")
        same(events[-1], b"[DONE]", "last event")
        parts = [json.loads(event) for event in events[:-1]]
        same(len({part.get("id") for part in parts}), 1, "ids of one stream")
        usage = [part["usage"] for part in parts if part.get("usage")]
        same(len(usage), 1, "usage events")
        usage = usage[0]
    else:
        usage = answer.json()["usage"]
    same(usage["completion_tokens"], tokens, "tokens")


def tally(answers_seen):
    """{attempts: answers that took so many}."""
    counts = collections.Counter(answer.attempts for answer in answers_seen)
    return dict(sorted(counts.items()))


def counted_once(router, answers_seen):
    """The router counts as many requests and attempts as its clients were told."""
    spent = sum(answer.attempts for answer in answers_seen)
    router.counts(len(answers_seen), "requests_total", outcome="answered")
    same(router.count("requests_total"), len(answers_seen), "requests counted")
    same(router.count("attempts_total"), spent, "attempts counted")
    same(sum(router.retried().values()), spent - len(answers_seen), "retries counted")
    router.counts(0, "requests_in_flight")
    same(router.count("engine_requests_in_flight"), 0, "attempts in flight")


def served(engine):
    return int(wire.total(wire.metrics(engine.port), "vllm:request_success_total"))


def busy(run, limited, other):
    """An engine whose queue is full says 503: the burst is answered all the same."""
    burst, tokens = 24, 30
    direct = together(burst, lambda n: ask(limited.port, question(run, tokens, n % 4 >= 2)))
    refused = [answer.status for answer in direct if BUSY in answer.body]
    expect(refused, "without the router nobody met a full queue")
    settings = {"max_retries": 12, "initial_backoff_ms": 100, "max_backoff_ms": 3000}
    lines = [
        f"without the router {refused.count(503)} of {burst} were answered 503 and"
        f" {refused.count(200)} got 503 in the first event of a 200"
    ]
    for name, engines in (("one engine", [limited]), ("two engines", [limited, other])):
        with run.router(engines, **settings) as router:
            started = time.monotonic()
            seen = together(burst, lambda n: ask(router.port, question(run, tokens, n % 4 >= 2)))
            took = time.monotonic() - started
            for answer in seen:
                whole(answer, tokens)
            counted_once(router, seen)
            retried = router.retried()
            same(set(retried) - {"503"}, set(), "reasons")
            if len(engines) == 1:
                expect(retried, "nothing was sent again")
            else:
                expect(
                    max(tally(seen)) <= 2, f"the engine with a free queue came late: {tally(seen)}"
                )
            waited = wire.total(wire.metrics(router.admin), "vllm_pingora_backoff_seconds_sum")
            lines.append(
                f"{name}: {burst} of {burst} answered in {took:.1f} s, attempts {tally(seen)},"
                f" sent again {retried}, {waited:.1f} s of backoff in all"
            )
    return "; ".join(lines)


def exhausted(run, limited):
    """When the budget is spent, the engine's own 503 comes through as it is."""
    seats = [wire.Connection(limited.port) for _ in range(run.limit)]
    for seat in seats:
        seat.send("POST", PATH, question(run, 1500))
    until(lambda: load(limited) == (run.seats, run.limit - run.seats), 10, "engine full")
    with run.router([limited], max_retries=3) as router:
        own = ask(limited.port, question(run, 5))
        expect(BUSY in own.body, f"the engine is not busy: {own.body}")
        seen = [ask(router.port, question(run, 5, stream)) for stream in (False, True)]
        for answer in seen:
            same((answer.status, answer.body), (own.status, own.body), "answer")
            same(answer.attempts, 3, "attempts")
        same(own.status, 503, "status")
        router.counts(2, "requests_total", outcome="exhausted", status="503")
        same(router.retried(), {"503": 4}, "retries")
    for seat in seats:
        seat.close()
    until(lambda: load(limited) == (0, 0), 5, "engine free")
    return "503 of the engine byte for byte after 3 attempts, streamed or not"


def frozen(run, frozen_engine, other):
    """An engine that has stopped computing is found by its silence."""
    limit, count, tokens = 3.0, 8, 10
    core = frozen_engine.core()
    with run.router([frozen_engine, other], first_byte_timeout_ms=int(limit * 1000)) as router:
        frozen_engine.kill(core, signal.SIGSTOP)
        try:
            health = wire.ask(frozen_engine.port, "GET", "/health", timeout=5).status
            times = [0.0] * count

            def one(n):
                started = time.monotonic()
                answer = ask(router.port, question(run, tokens, n % 4 >= 2))
                times[n] = time.monotonic() - started
                return answer

            seen = together(count, one)
            for answer in seen:
                whole(answer, tokens)
            moved = [time for time, answer in zip(times, seen) if answer.attempts == 2]
            stayed = [time for time, answer in zip(times, seen) if answer.attempts == 1]
            expect(moved and stayed, f"attempts {tally(seen)}")
            same(router.retried(), {"first_byte_timeout": len(moved)}, "retries")
            same(len(moved) + len(stayed), count, f"attempts {tally(seen)}")
            counted_once(router, seen)
            expect(min(moved) >= limit - 0.05, f"too early: {min(moved):.2f} s")
            expect(max(moved) < limit + 3, f"too late: {max(moved):.2f} s")
        finally:
            frozen_engine.kill(core, signal.SIGCONT)
        until(lambda: load(frozen_engine) == (0, 0), 10, "frozen engine free of what was given up")
        after = together(4, lambda n: ask(router.port, question(run, tokens)))
        for answer in after:
            whole(answer, tokens)
        same(tally(after), {1: 4}, "attempts afterwards")
    return (
        f"/health said {health}; {len(moved)} of {count} failed over after"
        f" {min(moved):.2f}-{max(moved):.2f} s, the others took at most {max(stayed):.2f} s;"
        f" once it went on, 4 of 4 at the first attempt"
    )


def core_killed(run, victim, other):
    """The computing process dies: vLLM itself ends its streams, with an error event and [DONE]."""
    count, tokens = 6, 300
    with run.router([victim]) as alone, run.router([victim, other]) as router:
        # All seats of the victim are taken: by a stream that has begun, and by whole answers.
        seats = [wire.Connection(alone.port) for _ in range(run.seats)]
        for n, seat in enumerate(seats):
            seat.send("POST", PATH, question(run, 1500, n == 0))
        stream = seats[0].answer().read_while(lambda answer: answer.body.count(b"data: ") < 5)
        until(lambda: load(victim)[0] == run.seats, 30, "seats taken")
        threads, seen = begin(count, lambda n: ask(router.port, question(run, tokens, n in (2, 3))))
        # Half of these wait here, one of them for a stream.
        until(lambda: load(victim)[1] == count // 2, 30, "requests waiting")
        victim.kill(victim.core())
        died = time.monotonic()
        for thread in threads:
            thread.join()
        took = time.monotonic() - died
        for answer in seen:
            whole(answer, tokens)
        counted_once(router, seen)
        retried = router.retried()
        expect(sum(retried.values()) >= count // 2, f"sent again {retried}")
        cut = ""
        try:
            stream.read()
        except wire.Broken as error:
            cut = str(error)
        events = stream.events()
        if stream.complete:
            expect(
                b'"error"' in events[-2] and events[-1] == b"[DONE]",
                f"last events {events[-2:]}",
            )
            outcome = f"the stream ended with vLLM's own {events[-2][:60].decode()}… and [DONE]"
        else:
            expect(b"[DONE]" not in events, "[DONE] in a stream that was cut")
            outcome = f"the stream was cut ({cut})"
    victim.gone(2)
    left = [name.partition(" ")[0] for name in victim.members().values()]
    victim.end()
    return (
        f"{outcome}; {count} of {count} others answered {took:.1f} s later, attempts {tally(seen)},"
        f" sent again {retried}; left of the engine 2 s later: {left or 'nothing'}"
    )


def server_killed_under_load(run, victim, other):
    """50 requests run or wait on two engines, and one of these dies: all 50 are answered.

    A stream on each has begun before: that on the dead engine is cut, and asked nowhere else.
    """
    count, tokens, first, long = 50, 40, 600, 1200
    seats = 2 * (run.seats - 1)
    queued = (count - seats) // 2
    with run.router([victim, other]) as router, run.router([victim, other]) as streaming:
        before = served(other)
        streams = []
        for _ in range(2):
            connection = wire.Connection(streaming.port)
            connection.send("POST", PATH, question(run, long, True))
            streams.append(connection.answer().read_while(lambda answer: not answer.body))
        # Whole answers take the other seats, so that what follows has to wait, streams among it.
        seated_threads, seated = begin(seats, lambda _: ask(router.port, question(run, first)))
        until(lambda: load(victim)[0] == load(other)[0] == run.seats, 30, "seats of both taken")
        threads, waiting = begin(
            count - seats, lambda n: ask(router.port, question(run, tokens, n % 4 >= 2))
        )
        until(lambda: load(victim) == (run.seats, queued), 30, "requests waiting")
        early = sum(answer is not None for answer in seated + waiting)
        victim.kill(victim.pid)
        died = time.monotonic()
        same(early, 0, "answers before the kill")
        for thread in seated_threads + threads:
            thread.join()
        took = time.monotonic() - died
        for answer in seated:
            whole(answer, first)
        for answer in waiting:
            whole(answer, tokens)
        seen = seated + waiting
        counted_once(router, seen)
        retried = router.retried()
        again = sum(retried.values())
        same(again, run.seats - 1 + queued, "sent again")
        same(tally(seen), {1: count - again, 2: again}, "attempts")
        answered = router.count("attempts_total", engine=other.url, outcome="answered")
        same(answered, count, "answered by the other engine")
        waits = wire.total(wire.metrics(router.admin), "vllm_pingora_backoff_seconds_count")
        same(waits, 0, "backoffs")

        cut = []
        for stream in streams:
            try:
                stream.read().more = False
                whole(stream, long)
            except wire.Broken:
                cut.append(stream.events())
        same(len(cut), 1, "streams cut")
        expect(b"[DONE]" not in cut[0], "[DONE] was made up")
        same(streaming.retried(), {}, "streams sent again")
        streaming.counts(1, "requests_total", outcome="cut")
        streaming.counts(1, "requests_total", outcome="answered")
        same(served(other) - before, count + 1, "generations of the other engine")
    orphans = victim.end()
    return (
        f"{count} of {count} answered 200, each once; the engine died with {run.seats} running and"
        f" {queued} waiting; {again} were sent again {retried}, at once; attempts {tally(seen)};"
        f" the last answer {took:.1f} s later; of two streams begun before, one was cut after"
        f" {len(cut[0])} events and one was whole; {orphans} orphans ended"
    )


def server_killed_in_mid_stream(run, victim):
    """The server dies after the first token: the client sees a cut stream, never a finished one."""
    body = question(run, 1500, True)
    with run.router([victim]) as router:
        raw = wire.Connection(router.port)
        raw.send("POST", PATH, body)
        raw_answer = raw.answer().read_while(lambda answer: answer.body.count(b"data: ") < 5)
        client = answers.client(router.port)
        chunks = client.completions.create(
            model=run.model,
            prompt="A proxy is",
            max_tokens=1500,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        received = [next(chunks) for _ in range(5)]
        victim.kill(victim.pid)
        told = None
        try:
            received += chunks
        except Exception as error:
            told = f"{type(error).__module__}.{type(error).__name__}: {error}"
        expect(told, "the official client took the cut stream for a finished one")
        expect(
            all(choice.finish_reason is None for part in received for choice in part.choices),
            "a finish reason in a cut stream",
        )
        cut = None
        try:
            raw_answer.read()
        except wire.Broken as error:
            cut = str(error)
        expect(cut, "a cut stream was ended properly")
        expect(b"[DONE]" not in raw_answer.body, "[DONE] was made up")
        same(raw_answer.status, 200, "status")
        router.counts(2, "requests_total", outcome="cut")
        same(router.retried(), {}, "retries")
        try:
            client.completions.create(model=run.model, prompt="hi", max_tokens=1)
            expect(False, "a dead engine answered")
        except openai.InternalServerError as error:
            after = f"{error.status_code} {error.code}"
    orphans = victim.end()
    return (
        f"official client after {len(received)} chunks: {told}; raw: {cut}, no [DONE];"
        f" the next request: {after}; {orphans} orphans ended"
    )
