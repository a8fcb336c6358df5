// What the router has told so far: whole at first, then kept up to date.

/** How many requests of each kind are kept, as in the router. */
const REMEMBERED = 100;
/** By how much the start of a process may seem to move while it is the same. */
const CLOCK_MS = 1000;

export class State {
  constructor() {
    this.now = null;
    this.windows = [];
    this.cellSeconds = 5;
    this.cells = new Map();
    this.engineCellSeconds = 15;
    this.engines = new Map();
    this.requests = [];
    this.changes = [];
  }

  /** Takes over all that `/status` tells. Whether another process tells it than before. */
  replace(status) {
    const started = (now) => now.unix_ms - now.uptime_ms;
    const another = this.now !== null && Math.abs(started(this.now) - started(status)) > CLOCK_MS;
    this.now = status;
    this.windows = status.windows;
    this.cellSeconds = status.cell_seconds;
    this.cells = new Map(status.cells.map((cell) => [cell.cell, cell]));
    this.engineCellSeconds = status.engine_cell_seconds;
    this.engines = new Map(status.engines.map((row) => [row.engine, row]));
    this.requests = status.requests;
    this.changes = status.changes;
    return another;
  }

  /** Takes over what has changed. */
  update(update) {
    this.now = { ...this.now, ...update };
    if (update.windows) this.windows = update.windows;
    for (const cell of update.cells ?? []) this.cells.set(cell.cell, cell);
    const oldest = this.currentCell() - 900 / this.cellSeconds;
    for (const cell of this.cells.keys()) if (cell < oldest) this.cells.delete(cell);
    for (const row of update.engines ?? []) this.engines.set(row.engine, row);
    for (const label of update.forgotten ?? []) this.engines.delete(label);
    if (update.requests) this.requests = newest([...update.requests, ...this.requests]);
    if (update.changes) this.changes = [...update.changes, ...this.changes].slice(0, REMEMBERED);
  }

  /** The time of day of a moment in the time of the router's process. */
  unixMs(atMs) {
    return this.now.unix_ms - this.now.uptime_ms + atMs;
  }

  /** The number of the cell that is being filled now. */
  currentCell() {
    return Math.floor(this.now.uptime_ms / 1000 / this.cellSeconds);
  }

  /** What came of the requests of the last `seconds`. */
  window(seconds) {
    return this.windows.find((window) => window.seconds === seconds);
  }

  /** How long that has been, of a router that was started a moment ago. */
  covered(seconds) {
    return Math.max(1, Math.min(seconds, this.now.uptime_ms / 1000));
  }

  /** The engines of the fleet. */
  fleet() {
    return [...this.engines.values()].filter((row) => row.place !== null);
  }
}

function newest(requests) {
  const kept = { failed: 0, retried: 0, refused: 0, held: 0 };
  return requests.filter((request) => ++kept[request.kind] <= REMEMBERED);
}
