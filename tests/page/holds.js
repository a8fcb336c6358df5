// How the first request's waits are drawn on its line: what their titles say, without times, whether
// no two parts are in one place, and what tells a wait for an engine from a backoff.
const track = document.querySelector("#requests summary .track");
const spans = (name) => [...track.querySelectorAll(`.part.${name}`)];
const place = (part) => {
  const from = parseFloat(part.style.left);
  return [from, from + parseFloat(part.style.width)];
};
// Times are told to a tenth of a millisecond.
const SLACK = 0.2;
const places = [...track.children].map(place).sort(([a], [b]) => a - b);
const apart = places.every(([from], at) => at === 0 || places[at - 1][1] <= from + SLACK);

const brightness = (colour) => {
  const [r, g, b] = colour.match(/[\d.]+/g).map((channel) => {
    const part = Number(channel) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const look = (part) => {
  const { backgroundColor, backgroundImage, top, bottom } = getComputedStyle(part);
  return [backgroundColor, backgroundImage, top, bottom].join("; ");
};
const [ink] = getComputedStyle(spans("hold")[0]).backgroundImage.match(/rgb\([^)]*\)/);
const [a, b] = [ink, getComputedStyle(track).backgroundColor].map(brightness).sort((x, y) => y - x);
return {
  apart,
  places,
  titles: spans("hold").map((part) => part.title.replace(/ [\d.]+ m?s/, "")),
  rows: document.querySelectorAll("#requests details[open] .timeline .held .part.hold").length,
  hold: look(spans("hold")[0]),
  wait: look(spans("wait")[0]),
  contrast: (a + 0.05) / (b + 0.05),
};
