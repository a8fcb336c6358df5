// What the charts show: series over cells of time, and their figures over a window.

import { count, mark, millis, rate, share } from "./format.js";

const left = (it) => it.outcomes.client_gone ?? 0;
const failed = (it) => it.faults.fleet + it.faults.router;
const answered = (it) => it.requests - failed(it) - it.faults.client - left(it);

/**
 * Each chart has series from the bottom up. `of` reads a series from a cell, in the unit of the
 * chart; `over` tells it for a window of `covered` seconds, as text.
 */
export function charts(cellSeconds) {
  const perSecond = (read) => ({
    of: (cell) => read(cell) / cellSeconds,
    over: (window, covered) => rate(read(window) / covered),
  });
  const number = (read) => ({
    of: read,
    over: (window) => count(read(window)),
  });
  const percentile = (name, which) => ({
    of: (cell) => cell[name][which],
    over: (window) => millis(window[name][which]),
  });
  return [
    {
      title: "Requests",
      unit: "per second",
      kind: "stack",
      fractions: true,
      format: rate,
      tick: mark,
      figure: (window, covered) => `${rate(window.requests / covered)} /s`,
      series: [
        { name: "answered", look: "answered", ...perSecond(answered) },
        { name: "client left", look: "left", ...perSecond(left) },
        { name: "refused", look: "client", ...perSecond((it) => it.faults.client) },
        { name: "failed", look: "fleet", ...perSecond(failed) },
      ],
    },
    {
      title: "Failures by fault",
      unit: `per ${cellSeconds} s`,
      kind: "stack",
      format: count,
      tick: count,
      figure: (window) => (window.requests === 0 ? "" : `${share(failed(window), window.requests)} failed`),
      series: [
        { name: "fleet", look: "fleet", ...number((it) => it.faults.fleet) },
        { name: "router", look: "router", ...number((it) => it.faults.router) },
        { name: "client", look: "client", ...number((it) => it.faults.client) },
        { name: "client left", look: "left", ...number(left) },
      ],
    },
    {
      title: "Retries",
      unit: `per ${cellSeconds} s`,
      kind: "lines",
      format: count,
      tick: count,
      figure: (window) => `${count(window.retries.saved)} saved`,
      series: [
        { name: "extra attempts", look: "extra", ...number((it) => it.retries?.extra_attempts ?? it.extra_attempts) },
        { name: "saved", look: "saved", ...number((it) => it.retries?.saved ?? it.saved) },
        { name: "lost", look: "lost", ...number((it) => it.retries?.lost ?? it.lost) },
      ],
    },
    {
      title: "Latency",
      unit: "TTFT and whole answers",
      kind: "lines",
      logarithmic: true,
      format: millis,
      tick: millis,
      figure: (window) => (window.ttft_ms.p95 === null ? "" : `TTFT p95 ${millis(window.ttft_ms.p95)}`),
      series: [
        { name: "TTFT p50", look: "ttft50", ...percentile("ttft_ms", "p50") },
        { name: "TTFT p95", look: "ttft95", ...percentile("ttft_ms", "p95") },
        { name: "whole p95", look: "total95", ...percentile("total_ms", "p95") },
      ],
    },
  ];
}

/** A cell in which nothing ended. */
export const EMPTY = {
  requests: 0,
  outcomes: {},
  faults: { fleet: 0, router: 0, client: 0 },
  extra_attempts: 0,
  saved: 0,
  lost: 0,
  ttft_ms: { p50: null, p95: null, p99: null },
  total_ms: { p50: null, p95: null, p99: null },
};
