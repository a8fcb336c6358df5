// Small charts over the last quarter of an hour, with one cursor over all of them.

import { el, setAttribute, setText, svg } from "./dom.js";
import { NOTHING, hourAndMinute, timeOfDay } from "./format.js";
import { EMPTY, charts } from "./series.js";

const SECONDS = 900;
const HEIGHT = 132;
const MARGIN = { top: 14, right: 6, bottom: 18, left: 44 };
/** Points of a line that are no further apart than this many cells are joined. */
const JOINED = 3;

/** All charts. `moved` is told of the time the cursor is at, or of null. */
export class Charts {
  constructor(node, cellSeconds, moved) {
    this.cells = SECONDS / cellSeconds;
    this.cursor = null;
    this.moved = moved;
    this.charts = charts(cellSeconds).map((what) => new Chart(what, (step) => this.move(step)));
    node.replaceChildren(...this.charts.map((chart) => chart.node));
    new ResizeObserver(() => this.draw()).observe(node);
  }

  show(state, seconds) {
    this.state = state;
    this.seconds = seconds;
    this.draw();
  }

  /** Moves the cursor to a cell of the range, by a step, or away (null). */
  move(to) {
    if (!this.state) return;
    const { first, last } = this.range();
    if (to === null) this.cursor = null;
    else if (to.share !== undefined) this.cursor = first + Math.floor(to.share * this.cells);
    else if (to.step !== undefined) this.cursor = (this.cursor ?? last + 1) + to.step;
    else this.cursor = to.end ? last : first;
    if (this.cursor !== null) this.cursor = Math.min(last, Math.max(first, this.cursor));
    this.draw();
  }

  /** The cells that are over, of the last quarter of an hour. */
  range() {
    const last = this.state.currentCell() - 1;
    return { first: last - this.cells + 1, last };
  }

  draw() {
    if (!this.state) return;
    const { first, last } = this.range();
    if (this.cursor !== null && this.cursor < first) this.cursor = first;
    const state = this.state;
    const cellMs = state.cellSeconds * 1000;
    const time = (cell) => state.unixMs(cell * cellMs);
    const view = {
      first,
      last,
      count: this.cells,
      // Before the process was started there is nothing, which is less than nothing that ended.
      cells: Array.from({ length: this.cells }, (_, place) => (first + place < 0 ? null : (state.cells.get(first + place) ?? EMPTY))),
      from: time(first),
      to: time(last + 1),
      cursor: this.cursor === null ? null : this.cursor - first,
      cursorTime: this.cursor === null ? null : timeOfDay(time(this.cursor)),
      window: state.window(this.seconds),
      covered: state.covered(this.seconds),
      changes: state.changes
        .map((change) => ({ ...change, unix: state.unixMs(change.at_ms) }))
        .filter((change) => change.unix >= time(first) && change.unix <= time(last + 1)),
    };
    for (const chart of this.charts) chart.draw(view);
    this.moved(view.cursorTime);
  }
}

class Chart {
  constructor(what, move) {
    this.what = what;
    this.figure = el("span", { class: "chart-figure" });
    this.svg = svg("svg", { height: HEIGHT, "aria-hidden": "true", focusable: "false" });
    this.plot = el(
      "div",
      {
        class: "plot",
        tabindex: "0",
        role: "slider",
        "aria-label": `${what.title} ${what.unit}: moment to read`,
        "aria-orientation": "horizontal",
      },
      this.svg,
    );
    this.values = what.series.map(() => el("b"));
    const legend = what.series.map((series, place) =>
      el("li", {}, swatch(what.kind, series.look), el("span", {}, series.name), this.values[place]),
    );
    this.node = el(
      "figure",
      { class: "chart" },
      el("figcaption", {}, el("span", { class: "chart-title" }, what.title), el("span", { class: "chart-unit" }, what.unit), this.figure),
      this.plot,
      el("ul", { class: "legend" }, ...legend),
    );
    this.listen(move);
  }

  listen(move) {
    const share = (event) => {
      const box = this.plot.getBoundingClientRect();
      return (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    };
    this.plot.addEventListener("pointermove", (event) => move({ share: share(event) }));
    this.plot.addEventListener("pointerdown", (event) => move({ share: share(event) }));
    this.plot.addEventListener("pointerleave", () => move(null));
    this.plot.addEventListener("blur", () => move(null));
    const keys = {
      ArrowLeft: { step: -1 },
      ArrowRight: { step: 1 },
      ArrowDown: { step: -1 },
      ArrowUp: { step: 1 },
      PageDown: { step: -12 },
      PageUp: { step: 12 },
      Home: { end: false },
      End: { end: true },
      Escape: null,
    };
    this.plot.addEventListener("keydown", (event) => {
      if (!(event.key in keys)) return;
      event.preventDefault();
      move(keys[event.key]);
    });
  }

  draw(view) {
    const width = Math.max(160, this.plot.clientWidth);
    const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
    const x = (place) => MARGIN.left + (place / view.count) * inner.width;
    const values = this.what.series.map((series) => view.cells.map((cell) => (cell === null ? null : series.of(cell))));
    const scale = this.scale(values, inner.height);
    setAttribute(this.svg, "width", width);
    setAttribute(this.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    const before = Math.max(0, -view.first);
    const parts = [];
    if (before > 0) parts.push(svg("rect", { class: "before", x: x(0), y: MARGIN.top, width: x(before) - x(0), height: inner.height }));
    parts.push(...this.grid(scale, width), ...this.times(view, inner.width));
    if (this.what.kind === "stack") parts.push(...this.areas(values, x, scale.y));
    else parts.push(...this.lines(values, x, scale.y));
    parts.push(...this.marks(view, inner.width));
    if (view.cursor !== null) {
      const at = x(view.cursor + 0.5);
      parts.push(svg("line", { class: "cursor", x1: at, x2: at, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    }
    if (!values.some((series) => series.some((value) => value > 0))) {
      const at = { class: "no-data", x: MARGIN.left + inner.width / 2, y: MARGIN.top + inner.height / 2 + 4, "text-anchor": "middle" };
      parts.push(svg("text", at, "none so far"));
    }
    this.svg.replaceChildren(...parts);
    this.tell(view, values);
  }

  /** The figures beside the names, and for those who hear the page instead of seeing it. */
  tell(view, values) {
    const { what } = this;
    const texts = what.series.map((series, place) =>
      view.cursor === null ? series.over(view.window, view.covered) : values[place][view.cursor] === null ? NOTHING : what.format(values[place][view.cursor]),
    );
    texts.forEach((text, place) => setText(this.values[place], text));
    setText(this.figure, what.figure(view.window, view.covered));
    setAttribute(this.plot, "aria-valuemin", 0);
    setAttribute(this.plot, "aria-valuemax", view.count - 1);
    setAttribute(this.plot, "aria-valuenow", view.cursor ?? view.count - 1);
    const when = view.cursorTime === null ? "now" : `at ${view.cursorTime}`;
    const all = what.series.map((series, place) => `${series.name} ${texts[place]}`);
    setAttribute(this.plot, "aria-valuetext", `${when}: ${all.join(", ")}`);
  }

  scale(values, height) {
    const bottom = HEIGHT - MARGIN.bottom;
    const known = values.flat().filter((value) => value !== null && value > 0);
    if (this.what.logarithmic) {
      const low = Math.floor(Math.log10(Math.max(1, Math.min(...known, Infinity))));
      const least = known.length ? low : 0;
      const most = known.length ? Math.max(least + 1, Math.ceil(Math.log10(Math.max(...known)))) : 3;
      const step = most - least > 4 ? 2 : 1;
      const ticks = [];
      for (let power = least; power <= most; power += step) ticks.push(10 ** power);
      return { ticks, y: (value) => bottom - ((Math.log10(Math.max(value, 10 ** least)) - least) / (most - least)) * height };
    }
    const sums = this.what.kind === "stack" ? values[0].map((_, place) => values.reduce((sum, it) => sum + (it[place] ?? 0), 0)) : known;
    const most = nice(Math.max(0, ...sums), this.what.fractions);
    return { ticks: [0, most / 2, most], y: (value) => bottom - (value / most) * height };
  }

  grid({ ticks, y }, width) {
    return ticks.flatMap((tick) => [
      svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick", x: MARGIN.left - 6, y: y(tick) + 3.5, "text-anchor": "end" }, this.what.tick(tick)),
    ]);
  }

  times(view, width) {
    const step = 5 * 60_000;
    const ticks = [];
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
      const x = MARGIN.left + ((at - view.from) / (view.to - view.from)) * width;
      ticks.push(svg("line", { class: "grid faint", x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
      if (x > MARGIN.left + 12 && x < MARGIN.left + width - 12) {
        ticks.push(svg("text", { class: "tick", x, y: HEIGHT - 4, "text-anchor": "middle" }, hourAndMinute(at)));
      }
    }
    return ticks;
  }

  areas(values, x, y) {
    let below = values[0].map(() => 0);
    return values.map((series, place) => {
      const above = series.map((value, at) => (value ?? 0) + below[at]);
      const path = series.some((value) => value > 0) ? area(above, below, x, y) : "";
      below = above;
      return svg("path", { class: `area ${this.what.series[place].look}`, d: path });
    });
  }

  lines(values, x, y) {
    return values.map((series, place) => {
      const { look } = this.what.series[place];
      // A row of zeros would lie over another one.
      const any = series.some((value) => value > 0);
      return svg("path", { class: `line ${look}`, d: any ? line(series, (at) => x(at + 0.5), y) : "" });
    });
  }

  marks(view, width) {
    return view.changes.map((change) => {
      const x = MARGIN.left + ((change.unix - view.from) / (view.to - view.from)) * width;
      const back = change.condition === "up";
      const shape = back ? `M${x - 4} 9 h8 l-4 -7z` : `M${x - 4} 2 h8 l-4 7z`;
      return svg("path", { class: `marker ${back ? "back" : "out"}`, d: shape });
    });
  }
}

/** The next round number, of which half is one as well unless fractions are shown. */
function nice(most, fractions) {
  if (most === 0) return fractions ? 1 : 2;
  const power = 10 ** Math.floor(Math.log10(most));
  const steps = fractions ? [1, 2, 4, 5, 10] : [1, 2, 4, 6, 8, 10];
  const round = power * steps.find((step) => step * power >= most * 0.999);
  return fractions ? round : Math.max(2, round);
}

/** The area between two rows of steps. Runs in which nothing is between them are left out. */
function area(above, below, x, y) {
  let path = "";
  let from = 0;
  while (from < above.length) {
    if (above[from] === below[from]) {
      from += 1;
      continue;
    }
    let to = from;
    let top = "";
    let bottom = "";
    while (to < above.length && above[to] !== below[to]) {
      top += `V${y(above[to]).toFixed(1)}H${x(to + 1).toFixed(1)}`;
      bottom = `V${y(below[to]).toFixed(1)}H${x(to).toFixed(1)}${bottom}`;
      to += 1;
    }
    path += `M${x(from).toFixed(1)} ${y(below[from]).toFixed(1)}${top}${bottom}Z`;
    from = to;
  }
  return path;
}

/** A line through the points there are; one that stands alone is a dot. */
function line(values, x, y) {
  let path = "";
  let before = -Infinity;
  values.forEach((value, at) => {
    if (value === null) return;
    const point = `${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    path += at - before <= JOINED ? `L${point}` : `M${point}h.01`;
    before = at;
  });
  return path;
}

function swatch(kind, look) {
  const mark =
    kind === "stack"
      ? svg("rect", { class: `area ${look}`, x: 1, y: 1, width: 14, height: 10, rx: 2 })
      : svg("path", { class: `line ${look}`, d: "M1 6H17" });
  return svg("svg", { class: "swatch", width: 18, height: 12, "aria-hidden": "true", focusable: "false" }, mark);
}
