// Puts the page together.

import { Charts } from "./charts.js";
import { arrange, el, icon, setText } from "./dom.js";
import { Engines } from "./engines.js";
import { follow } from "./feed.js";
import { count, duration, timeOfDay, windowName, words } from "./format.js";
import { Requests } from "./requests.js";
import { State } from "./state.js";
import { Verdict } from "./verdict.js";

const byId = (id) => document.getElementById(id);

const state = new State();
const verdict = new Verdict(byId("headline"), byId("verdict"));
const engines = new Engines(byId("engines-table"), byId("engines-count"), byId("engines-filter"));
const requests = new Requests(
  byId("requests"),
  byId("requests-none"),
  byId("requests-kind"),
  byId("requests-more"),
  byId("requests-legend"),
);
let charts = null;
let live = null;
let paused = false;

const chosenWindow = () => Number(byId("window").querySelector("input:checked").value);

function show() {
  if (state.now === null || paused) return;
  const seconds = chosenWindow();
  charts ??= new Charts(byId("charts"), state.cellSeconds, (time) => setText(byId("cursor-time"), time === null ? "" : `at ${time}`));
  const level = verdict.show(state, seconds);
  charts.show(state, seconds);
  engines.show(state, seconds);
  requests.show(state);
  showErrors(state.window(seconds));
  showReasons(state.window(seconds));
  showChanges();
  setText(byId("version"), state.now.version);
  for (const node of document.querySelectorAll(".window-name")) setText(node, windowName(seconds));
  document.title = `${level === "ok" ? "" : level === "warn" ? "△ " : "✕ "}vllm-pingora`;
  showConnection();
}

function showConnection() {
  const node = byId("connection");
  const say = (level, text) => {
    if (node.dataset.level === level && node.textContent === text) return;
    node.dataset.level = level;
    node.replaceChildren(icon(level), el("span", {}, text));
  };
  if (live === false) return say("bad", state.now === null ? "The router does not answer" : `Not heard since ${timeOfDay(state.now.unix_ms)}: the figures are old`);
  if (state.now === null) return say("idle", "Connecting");
  const up = `up ${duration(state.now.uptime_ms / 1000)}`;
  if (paused) return say("idle", `Paused at ${timeOfDay(state.now.unix_ms)}`);
  if (state.now.draining) return say("warn", `Draining, ${up}`);
  return say("ok", `Live, ${up}`);
}

/** A short list of names with how often each came, as a table with bars. */
function tally(node, rows, heads, none) {
  if (rows.length === 0) return node.replaceChildren(el("p", { class: "none" }, none));
  const most = Math.max(...rows.map((row) => row.count));
  const lines = rows.map((row) => {
    const bar = el("span", { class: `bar-fill ${row.look}` });
    bar.style.width = `${(100 * row.count) / most}%`;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, row.name),
      el("td", { class: "owner" }, row.owner),
      el("td", { class: "number" }, count(row.count)),
      el("td", { class: "bar-cell", "aria-hidden": "true" }, bar),
    );
  });
  const [name, owner, number] = heads;
  const head = el("tr", {}, el("th", { scope: "col" }, name), el("th", { scope: "col" }, owner), el("th", { scope: "col", class: "number" }, number), el("td", {}));
  node.replaceChildren(el("table", { class: "tally" }, el("thead", {}, head), el("tbody", {}, ...lines)));
}

function showErrors(window) {
  const rows = window.errors.slice(0, 8).map(({ error, fault, count }) => ({
    name: /^\d+$/.test(error) ? `status ${error} of an engine` : words(error),
    owner: fault,
    look: fault,
    count,
  }));
  tally(byId("errors"), rows, ["What", "Fault", "Requests"], "Nothing.");
}

function showReasons(window) {
  const reasons = Object.entries(window.retries.reasons).sort(([, a], [, b]) => b - a);
  const rows = reasons.slice(0, 8).map(([reason, count]) => ({
    name: /^\d+$/.test(reason) ? `status ${reason}` : words(reason),
    owner: "",
    look: "extra",
    count,
  }));
  const none = state.now.retries_enabled ? "It was not." : "Retries are turned off.";
  tally(byId("reasons"), rows, ["Reason", "", "Attempts"], none);
}

const items = new Map();

function showChanges() {
  const shown = state.changes.slice(0, 12);
  const nodes = shown.map((change) => {
    if (!items.has(change.number)) {
      const level = { up: "ok", erring: "warn" }[change.condition] ?? "bad";
      const why = change.condition === "up" ? "" : `: ${words(change.reason)}`;
      const text = el("span", {}, el("b", {}, change.condition), why);
      items.set(
        change.number,
        el("li", {}, el("span", { class: "when" }, timeOfDay(state.unixMs(change.at_ms))), icon(level), text, el("span", { class: "engine" }, change.engine)),
      );
    }
    return items.get(change.number);
  });
  const known = new Set(shown.map((change) => change.number));
  for (const number of items.keys()) if (!known.has(number)) items.delete(number);
  arrange(byId("changes"), nodes);
  byId("changes-none").hidden = shown.length > 0;
  setText(byId("changes-none"), "None has, as far back as is remembered.");
}

byId("window").addEventListener("change", show);
byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  setText(byId("pause"), paused ? "Go on" : "Pause");
  showConnection();
  show();
});

showConnection();
follow({
  replace(status) {
    if (state.replace(status)) {
      // Another process, whose numbers begin anew.
      requests.clear();
      items.clear();
    }
    show();
  },
  update(update) {
    state.update(update);
    show();
  },
  live(now) {
    if (live === now) return;
    live = now;
    document.body.classList.toggle("stale", !now);
    showConnection();
  },
});
