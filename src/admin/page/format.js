// Figures as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const oneAtMost = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const hundredths = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const clockShort = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/** Stands where there is nothing to tell. */
export const NOTHING = "–";

export function count(n) {
  return whole.format(n);
}

/** `1 request`, `2 requests`. */
export function counted(n, one, many = `${one}s`) {
  return `${whole.format(n)} ${n === 1 ? one : many}`;
}

/** A number as short as it can be, for the marks of an axis. */
export function mark(n) {
  return hundredths.format(n);
}

/** How often a second. */
export function rate(perSecond) {
  if (perSecond === 0) return "0";
  if (perSecond < 0.01) return "<0.01";
  if (perSecond < 1) return hundredths.format(perSecond);
  return perSecond < 100 ? tenths.format(perSecond) : whole.format(perSecond);
}

/** A part of a whole, in per cent; nothing of nothing is nothing. */
export function share(part, all) {
  if (all === 0) return NOTHING;
  const percent = (100 * part) / all;
  if (part === 0) return "0 %";
  if (percent < 0.1) return "<0.1 %";
  // Not all is not all.
  if (part < all && percent > 99.9) return ">99.9 %";
  return percent < 10 ? `${tenths.format(percent)} %` : `${whole.format(percent)} %`;
}

/** Milliseconds. */
export function millis(ms) {
  if (ms === null || ms === undefined) return NOTHING;
  if (ms === 0) return "0 ms";
  if (ms < 1) return "<1 ms";
  if (ms < 10) return `${oneAtMost.format(ms)} ms`;
  if (ms < 1000) return `${whole.format(ms)} ms`;
  if (ms < 100e3) return `${hundredths.format(ms / 1e3)} s`;
  return duration(ms / 1e3);
}

/** A time span in the two largest units. */
export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 && s < 600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function timeOfDay(unixMs) {
  return clock.format(unixMs);
}

export function hourAndMinute(unixMs) {
  return clockShort.format(unixMs);
}

/** A word of the router's as people write it: `no_engine_available`. */
export function words(label) {
  return label.replaceAll("_", " ");
}

/** The name of a window of this many seconds. */
export function windowName(seconds) {
  return `last ${seconds / 60} min`;
}
