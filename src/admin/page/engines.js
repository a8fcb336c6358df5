// The engines: how each of them is, what it does, and what it did in the last quarter of an hour.

import { arrange, el, icon, setAttribute, setText, svg } from "./dom.js";
import { NOTHING, count, counted, duration, millis, rate, share, words } from "./format.js";

/** More rows than these are shown only on demand. */
const ROWS = 50;
const STRIP = { width: 182, height: 24 };
/** An engine that fails so many of its attempts is worth a look, whatever its condition. */
const MANY_ERRORS = 0.05;

const LEVELS = { up: "ok", erring: "warn", ejected: "bad", down: "bad", gone: "idle" };
const ORDER = { bad: 0, warn: 1, ok: 2, idle: 3 };
const WORDS = {
  up: "up",
  erring: "erring",
  ejected: "out",
  down: "down",
  gone: "gone",
};
const REASONS = {
  answers: "answers",
  probe: "its probes fail",
  status_500: "answers 500 only",
  left_the_fleet: "left the fleet",
  connect: "refuses connections",
  connect_timeout: "takes no connections",
  closed: "closes connections",
  malformed: "answers no HTTP",
  first_byte_timeout: "no first byte in time",
  closed_after_head: "dies after its head",
};

const level = (row) => LEVELS[row.condition] ?? "warn";

const COLUMNS = [
  { name: "Engine", key: (row) => row.engine, cell: "engine" },
  { name: "State", key: (row) => ORDER[level(row)], cell: "state" },
  { name: "In flight", key: (row) => -row.in_flight, number: (row) => count(row.in_flight) },
  { name: "Load", key: (row) => -row.load, number: (row) => rate(row.load) },
  { name: "Attempts/s", key: (row, it) => -it.attempts, number: (row, it, covered) => rate(it.attempts / covered) },
  { name: "Errors", key: (row, it) => -ratio(it.errors, it.attempts), number: (row, it) => share(it.errors, it.attempts), warns: (it) => it.errors > 0 && it.errors >= MANY_ERRORS * it.attempts },
  { name: "Retried", key: (row, it) => -ratio(it.retried, it.attempts), number: (row, it) => share(it.retried, it.attempts) },
  { name: "TTFT p50", key: (row, it) => -(it.ttft_ms.p50 ?? -1), number: (row, it) => millis(it.ttft_ms.p50) },
  { name: "TTFT p95", key: (row, it) => -(it.ttft_ms.p95 ?? -1), number: (row, it) => millis(it.ttft_ms.p95) },
  { name: "Attempts, 15 min", key: (row) => -row.cells.reduce((sum, [, attempts]) => sum + attempts, 0), cell: "strip" },
];

export class Engines {
  constructor(table, counter, filter) {
    this.counter = counter;
    this.filter = filter;
    this.rows = new Map();
    this.sorted = { column: COLUMNS[1], reversed: false };
    this.all = false;
    this.body = el("tbody", { role: "rowgroup" });
    this.heads = COLUMNS.map((column) => {
      const button = el("button", { type: "button" }, column.name);
      button.addEventListener("click", () => this.sort(column));
      return el("th", { scope: "col", role: "columnheader", class: column.number ? "number" : null }, button);
    });
    this.more = el("button", { type: "button", class: "more", hidden: true });
    this.more.addEventListener("click", () => {
      this.all = true;
      this.draw();
    });
    this.none = el("p", { class: "none", hidden: true });
    table.replaceChildren(
      el(
        "table",
        { role: "table", class: "engines" },
        el("caption", { class: "hidden" }, "Engines with their state and their figures; the buttons of the heads sort"),
        el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...this.heads)),
        this.body,
      ),
      this.more,
      this.none,
    );
    filter.addEventListener("input", () => this.draw());
  }

  sort(column) {
    const again = this.sorted.column === column;
    this.sorted = { column, reversed: again && !this.sorted.reversed };
    this.draw();
  }

  show(state, seconds) {
    this.state = state;
    this.seconds = seconds;
    this.draw();
  }

  draw() {
    const { state, seconds } = this;
    if (!state) return;
    const all = [...state.engines.values()];
    const wanted = this.filter.value.trim().toLowerCase();
    const found = all.filter((row) => !wanted || [row.engine, row.id ?? "", ...row.models].some((it) => it.toLowerCase().includes(wanted)));
    const window = (row) => row.windows.find((it) => it.seconds === seconds);
    const { column, reversed } = this.sorted;
    const place = (row) => row.place ?? Infinity;
    found.sort((a, b) => {
      const [one, other] = [column.key(a, window(a)), column.key(b, window(b))];
      const order = one < other ? -1 : one > other ? 1 : 0;
      return (reversed ? -order : order) || place(a) - place(b) || (a.engine < b.engine ? -1 : 1);
    });
    const shown = this.all || wanted ? found : found.slice(0, ROWS);
    const busiest = Math.max(1, ...shown.flatMap((row) => row.cells.map(([, attempts]) => attempts)));
    const rows = shown.map((row) => {
      if (!this.rows.has(row.engine)) this.rows.set(row.engine, new Row());
      const drawn = this.rows.get(row.engine);
      drawn.show(row, window(row), state, seconds, busiest);
      return drawn.node;
    });
    for (const label of this.rows.keys()) if (!state.engines.has(label)) this.rows.delete(label);
    arrange(this.body, rows);
    this.heads.forEach((head, at) => {
      setAttribute(head, "aria-sort", COLUMNS[at] === column ? (reversed ? "descending" : "ascending") : null);
    });
    this.more.hidden = shown.length === found.length;
    setText(this.more, `Show all ${count(found.length)}`);
    this.none.hidden = found.length > 0;
    setText(this.none, wanted ? "No engine is called so." : "There are no engines.");
    setText(this.counter, summary(all));
  }
}

function summary(all) {
  const fleet = all.filter((row) => row.place !== null);
  const bad = fleet.filter((row) => level(row) === "bad").length;
  const warn = fleet.filter((row) => level(row) === "warn").length;
  const parts = [`${count(fleet.length - bad - warn)} of ${count(fleet.length)} up`];
  if (bad) parts.push(`${count(bad)} out`);
  if (warn) parts.push(`${count(warn)} picked last`);
  return parts.join(", ");
}

class Row {
  constructor() {
    this.cells = COLUMNS.map((column) => {
      const attributes = { role: "cell", "data-label": column.name, class: column.number ? "number" : column.cell };
      return column.cell === "engine" ? el("th", { ...attributes, scope: "row", role: "rowheader" }) : el("td", attributes);
    });
    this.url = el("span", { class: "url" });
    this.about = el("span", { class: "about" });
    this.cells[0].append(this.url, this.about);
    this.mark = el("span", { class: "mark-slot" });
    this.word = el("span", { class: "word" });
    this.since = el("span", { class: "about" });
    this.cells[1].append(el("span", { class: "state-line" }, this.mark, this.word), this.since);
    this.strip = svg("svg", { class: "strip-svg", viewBox: `0 0 ${STRIP.width} ${STRIP.height}`, preserveAspectRatio: "none", role: "img" });
    this.cells.at(-1).append(this.strip);
    this.node = el("tr", { role: "row" }, ...this.cells);
  }

  show(row, window, state, seconds, busiest) {
    const its = level(row);
    setText(this.url, row.engine);
    const weight = row.weight !== null && row.weight !== 1 ? `weight ${row.weight}` : null;
    setText(this.about, [row.id, row.models.join(", "), weight].filter(Boolean).join(" · "));
    if (this.node.dataset.level !== its) {
      this.node.dataset.level = its;
      this.mark.replaceChildren(icon(its));
    }
    setText(this.word, WORDS[row.condition] ?? row.condition);
    const reason = row.condition === "up" ? null : (REASONS[row.reason] ?? words(row.reason));
    const since = row.since_ms === null ? null : `for ${duration((state.now.uptime_ms - row.since_ms) / 1000)}`;
    setText(this.since, [reason, since].filter(Boolean).join(", "));
    COLUMNS.forEach((column, at) => {
      if (!column.number) return;
      setText(this.cells[at], column.number(row, window, state.covered(seconds)));
      this.cells[at].classList.toggle("warns", Boolean(column.warns?.(window)));
    });
    this.drawStrip(row, state, busiest);
  }

  drawStrip(row, state, busiest) {
    const span = state.engineCellSeconds;
    const cells = 900 / span;
    const last = Math.floor(state.now.uptime_ms / 1000 / span);
    const key = `${last} ${busiest} ${row.cells.length} ${row.cells.at(-1)}`;
    if (this.drawn === key) return;
    this.drawn = key;
    const width = STRIP.width / cells;
    const height = (n) => Math.max(n > 0 ? 1.5 : 0, (n / busiest) * (STRIP.height - 2));
    let good = "";
    let bad = "";
    let [attempts, errors] = [0, 0];
    for (const [cell, made, failed] of row.cells) {
      const place = cell - last + cells - 1;
      if (place < 0) continue;
      attempts += made;
      errors += failed;
      const x = (place * width).toFixed(1);
      const bar = (width - 0.8).toFixed(1);
      const [h, e] = [height(made), height(failed)];
      if (made > failed) good += `M${x} ${(STRIP.height - e).toFixed(1)}v${-(h - e).toFixed(1)}h${bar}V${(STRIP.height - e).toFixed(1)}z`;
      if (failed > 0) bad += `M${x} ${STRIP.height}v${-e.toFixed(1)}h${bar}V${STRIP.height}z`;
    }
    this.strip.replaceChildren(
      svg("line", { class: "grid", x1: 0, x2: STRIP.width, y1: STRIP.height - 0.5, y2: STRIP.height - 0.5 }),
      svg("path", { class: "area answered", d: good }),
      svg("path", { class: "area fleet", d: bad }),
    );
    setAttribute(this.strip, "aria-label", attempts === 0 ? NOTHING : `${counted(attempts, "attempt")}, ${counted(errors, "error")}`);
  }
}

function ratio(part, all) {
  return all === 0 ? 0 : part / all;
}
