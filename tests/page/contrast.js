// All texts that are harder to read than WCAG AA allows: less than 4.5 times as bright as their
// ground, or the other way round. A text of 18.66 px in bold or 24 px may be at 3.
const channels = (colour) => colour.match(/[\d.]+/g).map(Number);

const over = (top, below) => {
  const alpha = top[3] ?? 1;
  return below.map((channel, at) => (at < 3 ? top[at] * alpha + channel * (1 - alpha) : 1));
};

const ground = (node) => {
  const layers = [];
  for (let it = node; it; it = it.parentElement) layers.push(channels(getComputedStyle(it).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
};

const brightness = (colour) => {
  const [r, g, b] = colour.map((channel) => {
    const part = channel / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};

const pale = new Set();
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode.textContent.trim();
  const node = texts.currentNode.parentElement;
  if (text === "" || !node.checkVisibility() || node.closest("script, noscript, .hidden")) continue;
  const style = getComputedStyle(node);
  const ink = channels(node.closest("svg") ? style.fill : style.color);
  const below = ground(node);
  const [a, b] = [brightness(over(ink, below)), brightness(below)].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (contrast < (large ? 3 : 4.5)) pale.add(`${contrast.toFixed(2)}: ${node.tagName} ${node.getAttribute("class") ?? ""}: ${text}`);
}
return [...pale];
