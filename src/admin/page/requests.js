// The last requests that failed, were retried, refused or held, each with its attempts as a timeline.

import { arrange, el, icon, setText } from "./dom.js";
import { NOTHING, count, counted, millis, timeOfDay, words } from "./format.js";

const KINDS = {
  failed: { level: "bad", word: "failed" },
  retried: { level: "ok", word: "saved" },
  refused: { level: "warn", word: "refused" },
  held: { level: "ok", word: "held" },
};
/** How a wait for an engine ended. */
const HOLDS = {
  served: { level: "ok", word: "there was one" },
  timeout: { level: "bad", word: "none came in time" },
  unknown: { level: "bad", word: "nobody has the model" },
  client_gone: { level: "idle", word: "client left" },
};
/** More requests than these are shown only on demand. */
const FEW = 15;
const NONE = {
  all: "No request has failed, been retried, refused or held.",
  failed: "No request has failed because of engines or the router.",
  retried: "No request has needed a further attempt and got by.",
  refused: "No request has been refused.",
  held: "No request has waited for an engine and then been answered at once.",
};

export class Requests {
  constructor(list, none, kinds, more, legend) {
    this.list = list;
    this.legend = legend;
    this.none = none;
    this.kinds = kinds;
    this.more = more;
    this.all = false;
    this.items = new Map();
    kinds.addEventListener("change", () => this.draw());
    more.addEventListener("click", () => {
      this.all = !this.all;
      this.draw();
    });
  }

  show(state) {
    this.state = state;
    this.draw();
  }

  draw() {
    if (!this.state) return;
    const kind = this.kinds.querySelector("input:checked").value;
    const { requests } = this.state;
    const found = requests.filter((request) => kind === "all" || request.kind === kind);
    const shown = this.all ? found : found.slice(0, FEW);
    // A request never changes once it has ended, so that an open one stays as it is.
    const nodes = shown.map((request) => {
      if (!this.items.has(request.number)) this.items.set(request.number, item(request, this.state));
      return this.items.get(request.number);
    });
    const known = new Set(requests.map((request) => request.number));
    for (const number of this.items.keys()) if (!known.has(number)) this.items.delete(number);
    arrange(this.list, nodes);
    this.more.hidden = found.length <= FEW;
    setText(this.more, this.all ? `Show the last ${FEW}` : `Show all ${count(found.length)}`);
    this.none.hidden = shown.length > 0;
    this.legend.hidden = !this.none.hidden;
    setText(this.none, NONE[kind]);
  }

  /** Forgets what it has drawn: the router is another one, and counts anew. */
  clear() {
    this.items.clear();
  }
}

function item(request, state) {
  const left = request.outcome === "client_gone";
  const { level, word } = left ? { level: "idle", word: "left" } : KINDS[request.kind];
  const time = timeOfDay(state.unixMs(request.at_ms));
  const what = left ? "client left" : request.error === null ? `${causes(request)} → ${request.status}` : words(request.error);
  const details = el(
    "details",
    {},
    el(
      "summary",
      {},
      el("span", { class: "when" }, time),
      el("span", { class: "verdict" }, icon(level), el("b", {}, word)),
      el("span", { class: "what" }, what),
      el("span", { class: "path" }, `${request.method} ${request.path}`),
      el("span", { class: "tries" }, request.attempts_made === 0 ? "no attempt" : counted(request.attempts_made, "attempt")),
      request.hold_ms > 0 ? el("span", { class: "hidden" }, held(request.hold_ms)) : null,
      track(request),
      el("span", { class: "took" }, millis(request.total_ms)),
    ),
  );
  // What is inside is made when somebody looks.
  details.addEventListener("toggle", () => details.childElementCount === 1 && details.append(inside(request)), { once: true });
  return el("li", { "data-kind": request.kind }, details);
}

/** What made it take longer: what made further attempts necessary, each reason once, or a wait. */
function causes(request) {
  if (request.kind === "held") return "no engine was up";
  const all = request.attempts.map((attempt) => attempt.reason).filter((reason) => reason !== null);
  return [...new Set(all)].map(words).join(", ");
}

/** Each attempt with the waits for an engine before it; a last one that was in vain has none after it. */
function turns(request) {
  const left = [...request.holds];
  const turns = request.attempts.map((attempt) => {
    const after = left.findIndex((hold) => hold.begun_ms > attempt.begun_ms);
    return { attempt, holds: left.splice(0, after < 0 ? left.length : after) };
  });
  return left.length === 0 ? turns : [...turns, { attempt: null, holds: left }];
}

/** All attempts and the waits before them, on one line. */
function track(request) {
  const parts = turns(request).flatMap(({ attempt, holds }) => [
    ...holds.map((hold) => holdPart(request, hold)),
    ...(attempt === null ? [] : attemptParts(request, attempt, holds)),
  ]);
  return parts.length === 0 ? el("span") : line(parts);
}

function line(parts) {
  return el("span", { class: "track", "aria-hidden": "true" }, ...parts);
}

function holdPart(request, hold) {
  return span(request, "hold", hold.begun_ms, hold.took_ms, `${held(hold.took_ms)}: ${ended(hold).word}`);
}

function attemptParts(request, attempt, holds) {
  const { begun_ms, took_ms, backoff_ms, number, engine } = attempt;
  const title = `attempt ${number} on ${engine}, ${millis(took_ms)}: ${outcome(attempt)}`;
  const part = span(request, look(attempt), begun_ms, took_ms, title);
  if (backoff_ms === 0) return [part];
  // The backoff comes first, then the wait for an engine, then the attempt.
  const between = holds.find((hold) => hold.begun_ms + hold.took_ms > begun_ms - backoff_ms);
  const end = between === undefined ? begun_ms : between.begun_ms;
  return [span(request, "wait", end - backoff_ms, backoff_ms, backedOff(attempt)), part];
}

function span(request, name, begun, took, title) {
  const whole = Math.max(request.total_ms, 0.1);
  const part = el("span", { class: `part ${name}`, title });
  part.style.left = `${Math.min(99, Math.max(0, (100 * begun) / whole))}%`;
  part.style.width = `${Math.min(100, (100 * took) / whole)}%`;
  return part;
}

function backedOff({ backoff_ms, reason }) {
  const wait = backoff_ms > 0 ? `waited ${millis(backoff_ms)}` : "asked another at once";
  return `${wait} after ${words(reason ?? "")}`;
}

function held(ms) {
  return `waited ${millis(ms)} for an engine`;
}

function ended({ result }) {
  return HOLDS[result] ?? { level: "idle", word: words(result) };
}

function look(attempt) {
  if (attempt.outcome === "client_gone") return "gone";
  if (attempt.outcome !== "answered") return "error";
  return attempt.status >= 400 ? "error" : "good";
}

/** How an attempt ended, in words. */
function outcome({ outcome, status }) {
  if (outcome === "retryable_status") return `status ${status}`;
  return status === null ? words(outcome) : `${words(outcome)}, status ${status}`;
}

function inside(request) {
  const facts = [
    ["Request id", request.id],
    ["Client", request.client ?? NOTHING],
    ["Model", request.model || NOTHING],
    ["Stream", request.stream ? "yes" : "no"],
    ["Status", request.status === 0 ? "none sent" : String(request.status)],
    ["Outcome", words(request.outcome)],
    ["Ended because", words(request.reason)],
    ["Upload", millis(request.upload_ms)],
    ["First token", millis(request.ttft_ms)],
    ["Whole", millis(request.total_ms)],
    ["Waited between attempts", millis(request.backoff_ms)],
    ["Waited for an engine", millis(request.hold_ms)],
  ];
  return el(
    "div",
    { class: "inside" },
    el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    request.attempts.length === 0 ? el("p", { class: "none" }, "No engine was asked.") : null,
    timeline(request),
  );
}

function timeline(request) {
  const rows = [];
  let before = 0;
  for (const { attempt, holds } of turns(request)) {
    if (attempt !== null) {
      if (attempt.number > before + 1) {
        const left = attempt.number - before - 1;
        rows.push(el("li", { class: "gap" }, `${count(left)} more attempts are not kept`));
      }
      before = attempt.number;
      if (attempt.number > 1) rows.push(el("li", { class: "gap" }, backedOff(attempt)));
    }
    rows.push(...holds.map((hold) => holdRow(request, hold)));
    if (attempt !== null) rows.push(attemptRow(request, attempt, holds));
  }
  return el("ol", { class: "timeline" }, ...rows);
}

function attemptRow(request, attempt, holds) {
  const level = { good: "ok", gone: "idle", error: "bad" }[look(attempt)];
  const cells = [String(attempt.number), attempt.engine, level, outcome(attempt)];
  return row("try", cells, attemptParts(request, attempt, holds), attempt);
}

function holdRow(request, hold) {
  const { level, word } = ended(hold);
  return row("try held", ["", "waited for an engine", level, word], [holdPart(request, hold)], hold);
}

function row(name, [number, what, level, outcome], parts, { begun_ms, took_ms }) {
  return el(
    "li",
    { class: name },
    el("span", { class: "number" }, number),
    el("span", { class: "engine" }, what),
    el("span", { class: "outcome" }, icon(level), outcome),
    line(parts),
    el("span", { class: "took" }, `at ${millis(begun_ms)}, took ${millis(took_ms)}`),
  );
}
