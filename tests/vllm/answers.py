"""Answers through the router against the engine's own, by the official client and byte by byte."""

import re

import openai

import wire
from report import Claim, expect, same

LONG = "one two three four five six seven eight nine ten " * 1200
# What may differ between two answers to the same question.
VARYING = re.compile(rb'"created": ?\d+')
# What the router adds, or what differs between any two answers.
OWN_HEADERS = {"x-request-id", "x-vllm-pingora-attempts", "date", "connection"}
# vLLM puts several tokens into one event when it is behind, so equal streams may be cut differently.
TRIES = 10


def client(port):
    return openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=0, timeout=120
    )


def questions(model):
    chat = {
        "model": model,
        "messages": [{"role": "user", "content": "Tell me about proxies."}],
        "max_tokens": 24,
        "temperature": 0,
    }
    plain = {"model": model, "prompt": "A proxy is", "max_tokens": 24, "temperature": 0}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    return {
        "chat": ("/v1/chat/completions", chat),
        "chat stream": ("/v1/chat/completions", chat | usage),
        "completion": ("/v1/completions", plain),
        "completion stream": ("/v1/completions", plain | usage),
        "log probabilities": ("/v1/completions", plain | {"echo": True, "logprobs": 2}),
        "embeddings": ("/v1/embeddings", {"model": model, "input": "A proxy is"}),
        "tokenize": ("/tokenize", {"model": model, "prompt": "A proxy is"}),
        "detokenize": ("/detokenize", {"model": model, "tokens": [5, 60, 700]}),
    }


def without(value, *keys):
    return {key: inner for key, inner in value.model_dump().items() if key not in keys}


def joined(parts):
    """What the parts of a stream amount to, however many tokens each brought."""
    text, last = "", []
    for part in parts:
        for choice in part["choices"]:
            delta = choice["delta"]["content"] if "delta" in choice else choice["text"]
            text += delta or ""
            last.append((choice["index"], choice["finish_reason"]))
    return text, last[-1], parts[-1]["usage"], {part["model"] for part in parts}


def official_client(run, router, engine):
    """Chat, completions and models, streamed and not, as the official client sees them."""
    direct, through = client(engine.port), client(router.port)
    asked = questions(run.model)
    tokens = 0
    for name in ("chat", "completion"):
        for stream in (False, True):
            body = asked[f"{name} stream" if stream else name][1]
            seen = []
            for side in (direct, through):
                calls = side.chat.completions if name == "chat" else side.completions
                answer = calls.create(**body)
                parts = list(answer) if stream else [answer]
                seen.append([without(part, "id", "created") for part in parts])
                tokens += parts[-1].usage.completion_tokens
            own, ours = map(joined, seen) if stream else seen
            same(ours, own, f"{name}, stream={stream}")
    listed = [[model.id for model in side.models.list()] for side in (direct, through)]
    same(listed[1], listed[0], "models.list()")
    with through.completions.with_streaming_response.create(**asked["completion"][1]) as answer:
        same(answer.status_code, 200, "status")
        expect(answer.headers["x-vllm-pingora-attempts"] == "1", "one attempt was expected")
    return f"4 calls and models.list() alike, {tokens} tokens compared, models {listed[1]}"


def byte_by_byte(run, router, engine):
    """The same question under the same id: the same bytes but for the time of creation."""
    alike = []
    for name, (path, body) in questions(run.model).items():
        id_header = [("x-request-id", f"acceptance-{name.replace(' ', '-')}")]
        for _ in range(TRIES):
            own, ours = (
                wire.ask(port, "POST", path, body, id_header) for port in (engine.port, router.port)
            )
            if VARYING.sub(b"", ours.body) == VARYING.sub(b"", own.body):
                break
        same(ours.status, own.status, f"{name}: status")
        same(VARYING.sub(b"", ours.body), VARYING.sub(b"", own.body), f"{name}: body")
        heads = [
            {key: value for key, value in answer.headers.items() if key not in OWN_HEADERS}
            for answer in (ours, own)
        ]
        same(heads[0], heads[1], f"{name}: head")
        same(ours.headers["x-request-id"], id_header[0][1], f"{name}: request id")
        alike.append(
            f"{name} {ours.status}" + (f" {len(ours.events())} events" if ours.events() else "")
        )
    return ", ".join(alike)


def event_by_event(run, router, engine):
    """A stream arrives as it is made, not in one lump."""
    body = questions(run.model)["completion stream"][1] | {"max_tokens": 400, "ignore_eos": True}
    told = []
    for _ in range(3 * TRIES):
        direct, through = (spread(port, body) for port in (engine.port, router.port))
        if direct["span_ms"] < 3 * direct["first_ms"]:
            # On a busy machine the engine itself sends lumps: nothing can be told from these.
            continue
        told.append(f"direct {direct}, through the router {through}")
        if through["span_ms"] > direct["span_ms"] / 2 and through["reads"] > direct["reads"] / 3:
            return told[-1]
    expect(told, "the engine itself never sent its stream event by event")
    raise Claim(f"the stream came in lumps, {len(told)} times; the last: {told[-1]}")


def spread(port, body):
    """How the bytes of a stream are spread over time."""
    answer = wire.ask(port, "POST", "/v1/completions", body)
    same(answer.events()[-1], b"[DONE]", "last event")
    times = [at for at, _ in answer.arrivals]
    return {
        "first_ms": round(times[0] * 1e3),
        "span_ms": round((times[-1] - times[0]) * 1e3),
        "reads": len(times),
        "largest": round(max(size for _, size in answer.arrivals) / len(answer.body), 3),
    }


def errors(run, router, engine):
    """What is the client's mistake comes back as it is, after one attempt."""
    through = client(router.port)
    try:
        through.completions.create(model="no-such-model", prompt="hi")
        expect(False, "an unknown model was answered")
    except openai.NotFoundError as error:
        same(error.code, "model_not_found", "unknown model: code")
    try:
        through.completions.create(model=run.model, prompt=LONG)
        expect(False, "a prompt that is too long was answered")
    except openai.BadRequestError as error:
        expect("maximum context length" in error.message, f"too long: {error.message}")
    mistakes = {
        "too long": {"prompt": LONG, "max_tokens": 4},
        "too long, stream": {"prompt": LONG, "max_tokens": 4, "stream": True},
        "max_tokens 0": {"prompt": "hi", "max_tokens": 0},
        "temperature -3": {"prompt": "hi", "temperature": -3},
        "missing prompt": {},
        "prompt of a wrong type": {"prompt": {"a": 1}},
    }
    for name, fields in mistakes.items():
        body = {"model": run.model} | fields
        own, ours = (
            wire.ask(port, "POST", "/v1/completions", body) for port in (engine.port, router.port)
        )
        same((ours.status, ours.body), (own.status, own.body), name)
        same(ours.status, 400, name)
        same(ours.attempts, 1, f"{name}: attempts")
    for broken in (b'{"model": "tiny", ', b"", b"[1]", b"\xff\xfe"):
        answer = wire.ask(router.port, "POST", "/v1/completions", broken)
        same(answer.status, 400, f"{broken}: status")
        same(answer.json()["error"]["code"], "invalid_request", f"{broken}: code")
    same(wire.ask(router.port, "GET", "/no/such/path").status, 404, "unknown path")
    same(router.retried(), {}, "retries")
    return f"unknown model 404 model_not_found, {len(mistakes)} engine errors 400 byte for byte, 4 bad bodies 400 invalid_request"
