// Who is at fault: the fleet, the router or a client; and what retrying costs and saves.

import { el, icon, setText, arrange } from "./dom.js";
import { NOTHING, count, counted, millis, share, windowName, words } from "./format.js";

/** From this share of failed requests on it is not a stray one. */
const MANY_FAILED = 0.01;
/** From this share of failed attempts on an engine's trouble is worth a look, hidden or not. */
const MANY_ERRORS = 0.05;
/** Fewer errors than these say nothing. */
const FEW_ERRORS = 3;
/** From this share of refused requests on some client is doing it wrong. */
const MANY_REFUSED = 0.1;

const OUT = ["ejected", "down"];

/** A level (ok, warn, bad, idle), a figure, a word and a sentence for each of the four. */
export function judge(state, seconds) {
  const window = state.window(seconds);
  return {
    fleet: ofFleet(state, window),
    router: ofRouter(state, window),
    clients: ofClients(window),
    retries: ofRetries(state, window),
  };
}

function ofFleet(state, window) {
  const fleet = state.fleet();
  const out = fleet.filter((row) => OUT.includes(row.condition)).length;
  const erring = fleet.filter((row) => row.condition === "erring").length;
  const failed = window.faults.fleet;
  const figure = `${fleet.length - out}/${fleet.length} up`;
  const failures =
    window.requests === 0
      ? "No requests to go by."
      : failed === 0
        ? "No request failed because of engines."
        : `${count(failed)} of ${counted(window.requests, "request")} failed because of engines (${share(failed, window.requests)})${past(state, window)}.`;
  if (fleet.length === 0) return { level: "bad", figure: "0 engines", word: "No engines", text: "There is nobody to ask." };
  const answer = (level, word) => ({ level, figure, word, text: failures });
  if (out === fleet.length) return answer("bad", fleet.length === 1 ? "The engine is out" : "All engines are out");
  if (failed > 0 && failed >= MANY_FAILED * window.requests) return answer("bad", "Requests fail");
  if (out > 0) return answer(2 * out >= fleet.length ? "bad" : "warn", `${counted(out, "engine")} out`);
  if (erring > 0) return answer("warn", `${counted(erring, "engine")} answering 500 only`);
  const worst = worstOf(fleet, window.seconds);
  if (worst !== null) {
    const { row, errors, attempts } = worst;
    const text = `${row.id ?? row.engine} failed ${share(errors, attempts)} of its attempts. ${failures}`;
    return { ...answer("warn", "An engine fails often"), text };
  }
  if (failed > 0) return answer("warn", "A few requests fail");
  return answer("ok", "Healthy");
}

/** Whether that is over, as far as a minute tells. */
function past(state, window) {
  const minute = state.windows[0];
  return window !== minute && minute.requests > 0 && minute.faults.fleet === 0 ? ", none in the last minute" : "";
}

/** The engine that fails most of its attempts, if it fails many. */
function worstOf(fleet, seconds) {
  const failing = fleet
    .map((row) => ({ row, ...row.windows.find((it) => it.seconds === seconds) }))
    .filter(({ errors, attempts }) => errors >= FEW_ERRORS && errors >= MANY_ERRORS * attempts);
  failing.sort((a, b) => b.errors / b.attempts - a.errors / a.attempts);
  return failing[0] ?? null;
}

function ofRouter(state, window) {
  const failed = window.faults.router;
  const figure = `${count(state.now.requests_in_flight)} in flight`;
  if (failed > 0) {
    return {
      level: "bad",
      figure,
      word: "Internal errors",
      text: `${counted(failed, "request")} failed because of the router itself (${share(failed, window.requests)}). Its log says why.`,
    };
  }
  if (state.now.draining) return { level: "warn", figure, word: "Draining", text: "No new requests; those that run are finished." };
  return { level: "ok", figure, word: "Working", text: "No request failed because of the router." };
}

function ofClients(window) {
  const refused = window.faults.client;
  const left = window.outcomes.client_gone ?? 0;
  const errors = window.errors.filter((error) => error.fault === "client").slice(0, 2);
  const named = errors.map((error) => `${words(error.error)} ${count(error.count)}`).join(", ");
  const parts = [];
  parts.push(refused === 0 ? "No request was refused." : `${counted(refused, "request")} refused: ${named}.`);
  if (left > 0) parts.push(`${counted(left, "client")} left before the end.`);
  const text = parts.join(" ");
  const figure = window.requests === 0 ? NOTHING : `${share(refused, window.requests)} refused`;
  if (window.requests === 0) return { level: "idle", figure: "0 requests", word: "Nobody asks", text: "No request has ended." };
  if (refused >= MANY_REFUSED * window.requests) return { level: "warn", figure, word: "Many are refused", text };
  if (left >= MANY_REFUSED * window.requests) return { level: "warn", figure, word: "Many leave", text };
  return { level: "ok", figure, word: refused > 0 ? "A few are refused" : "Fine", text };
}

function ofRetries(state, window) {
  const { extra_attempts: extra, saved, lost, backoff_ms: backoff, discarded_ms: discarded } = window.retries;
  if (!state.now.retries_enabled) {
    return { level: "idle", figure: "off", word: "Turned off", text: "What fails on an engine fails for its client." };
  }
  if (extra === 0) return { level: "ok", figure: "0 saved", word: "Not needed", text: "No request took more than one attempt." };
  const each = saved + lost === 0 ? null : (backoff + discarded) / (saved + lost);
  const cost = `${counted(extra, "extra attempt")} (${share(extra, window.attempts - extra)} more work for engines)`;
  const waits = each === null ? "" : `, ${millis(each)} more for each retried request`;
  const text = `${cost}${waits}. ${lost === 0 ? "None" : count(lost)} failed in spite of it.`;
  const figure = `${count(saved)} saved`;
  if (lost > saved) return { level: "bad", figure, word: "Of little use", text };
  if (lost > 0) return { level: "warn", figure, word: "Most are saved", text };
  return { level: "ok", figure, word: "All are saved", text };
}

/** The sentence that an operator reads first. */
export function headline({ fleet, router, clients }) {
  if (router.level === "bad") return { level: "bad", text: `The router is at fault: ${lower(router.word)}.` };
  if (fleet.level === "bad") return { level: "bad", text: `The fleet is at fault: ${lower(fleet.word)}.` };
  if (router.level === "warn") return { level: "warn", text: "The router is draining." };
  if (fleet.level === "warn") return { level: "warn", text: `The fleet needs a look: ${lower(fleet.word)}.` };
  if (clients.level === "warn") return { level: "warn", text: `Clients need a look: ${lower(clients.word)}. Fleet and router are well.` };
  if (clients.level === "idle") return { level: "ok", text: "Nothing is wrong, and nobody asks." };
  return { level: "ok", text: "Nothing is wrong." };
}

function lower(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

const LEVELS = { ok: "all right", warn: "worth a look", bad: "wrong", idle: "nothing to tell" };

/** The cards and the headline. */
export class Verdict {
  constructor(headlineNode, cardsNode) {
    this.headlineNode = headlineNode;
    this.cards = new Map();
    for (const [key, title] of Object.entries({ fleet: "Fleet", router: "Router", clients: "Clients", retries: "Retries" })) {
      const parts = {
        mark: el("span", { class: "mark-slot" }),
        figure: el("p", { class: "figure" }),
        word: el("p", { class: "word" }),
        text: el("p", { class: "text" }),
      };
      const card = el(
        "article",
        { class: "card", "aria-label": title, "data-card": key },
        el("h3", {}, title),
        parts.figure,
        el("div", { class: "state" }, parts.mark, parts.word),
        parts.text,
      );
      cardsNode.append(card);
      this.cards.set(key, { card, ...parts, level: null });
    }
  }

  show(state, seconds) {
    const verdicts = judge(state, seconds);
    for (const [key, { level, figure, word, text }] of Object.entries(verdicts)) {
      const shown = this.cards.get(key);
      if (shown.level !== level) {
        shown.level = level;
        shown.card.dataset.level = level;
        arrange(shown.mark, [icon(level), el("span", { class: "hidden" }, `${LEVELS[level]}: `)]);
      }
      setText(shown.figure, figure);
      setText(shown.word, word);
      setText(shown.text, text);
    }
    const { level, text } = headline(verdicts);
    if (this.shown !== `${level} ${text} ${seconds}`) {
      this.shown = `${level} ${text} ${seconds}`;
      this.headlineNode.dataset.level = level;
      this.headlineNode.replaceChildren(icon(level), el("span", {}, text, " ", el("small", {}, windowName(seconds))));
    }
    return level;
  }
}
