// The last requests that failed, were retried or refused, each with its attempts as a timeline.

import { arrange, el, icon, setText } from "./dom.js";
import { NOTHING, count, counted, millis, timeOfDay, words } from "./format.js";

const KINDS = {
  failed: { level: "bad", word: "failed" },
  retried: { level: "ok", word: "saved" },
  refused: { level: "warn", word: "refused" },
};
/** More requests than these are shown only on demand. */
const FEW = 15;
const NONE = {
  all: "No request has failed, been retried or refused.",
  failed: "No request has failed because of engines or the router.",
  retried: "No request has needed a further attempt and got by.",
  refused: "No request has been refused.",
};

export class Requests {
  constructor(list, none, kinds, more) {
    this.list = list;
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
  const what = left ? "client left" : request.error === null ? `${reasons(request)} → ${request.status}` : words(request.error);
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
      request.attempts.length === 0 ? el("span") : track(request),
      el("span", { class: "took" }, millis(request.total_ms)),
    ),
  );
  // What is inside is made when somebody looks.
  details.addEventListener("toggle", () => details.childElementCount === 1 && details.append(inside(request)), { once: true });
  return el("li", { "data-kind": request.kind }, details);
}

/** What made further attempts necessary, each reason once. */
function reasons(request) {
  const all = request.attempts.map((attempt) => attempt.reason).filter((reason) => reason !== null);
  return [...new Set(all)].map(words).join(", ");
}

/** All attempts and the waits between them, on one line. */
function track(request) {
  const line = el("span", { class: "track", "aria-hidden": "true" });
  for (const attempt of request.attempts) {
    if (attempt.backoff_ms > 0) line.append(span(request, "wait", attempt.begun_ms - attempt.backoff_ms, attempt.backoff_ms));
    line.append(span(request, look(attempt), attempt.begun_ms, attempt.took_ms));
  }
  return line;
}

function span(request, name, begun, took) {
  const whole = Math.max(request.total_ms, 0.1);
  const part = el("span", { class: `part ${name}` });
  part.style.left = `${Math.min(99, Math.max(0, (100 * begun) / whole))}%`;
  part.style.width = `${Math.min(100, (100 * took) / whole)}%`;
  return part;
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
    ["First token", millis(request.ttft_ms)],
    ["Whole", millis(request.total_ms)],
    ["Waited between attempts", millis(request.backoff_ms)],
    ["Waited for an engine", millis(request.hold_ms)],
  ];
  return el(
    "div",
    { class: "inside" },
    el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    request.attempts.length === 0 ? el("p", { class: "none" }, "No engine was asked.") : timeline(request),
  );
}

function timeline(request) {
  const rows = [];
  let before = 0;
  for (const attempt of request.attempts) {
    if (attempt.number > before + 1) {
      const left = attempt.number - before - 1;
      rows.push(el("li", { class: "gap" }, `${count(left)} more attempts are not kept`));
    }
    before = attempt.number;
    if (attempt.number > 1) {
      const wait = attempt.backoff_ms > 0 ? `waited ${millis(attempt.backoff_ms)}` : "asked another at once";
      rows.push(el("li", { class: "gap" }, `${wait} after ${words(attempt.reason ?? "")}`));
    }
    const good = look(attempt) === "good";
    const line = el("span", { class: "track", "aria-hidden": "true" });
    if (attempt.backoff_ms > 0) line.append(span(request, "wait", attempt.begun_ms - attempt.backoff_ms, attempt.backoff_ms));
    line.append(span(request, look(attempt), attempt.begun_ms, attempt.took_ms));
    rows.push(
      el(
        "li",
        { class: "try" },
        el("span", { class: "number" }, String(attempt.number)),
        el("span", { class: "engine" }, attempt.engine),
        el("span", { class: "outcome" }, icon(good ? "ok" : look(attempt) === "gone" ? "idle" : "bad"), outcome(attempt)),
        line,
        el("span", { class: "took" }, `at ${millis(attempt.begun_ms)}, took ${millis(attempt.took_ms)}`),
      ),
    );
  }
  return el("ol", { class: "timeline" }, ...rows);
}
