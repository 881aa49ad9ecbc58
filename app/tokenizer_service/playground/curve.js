/** Plot bytes per token against vocabulary size, as recorded by the trainer. */

import { formatCount, make } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [520, 200, 44, 30, 12, 16];

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Make a figure of `points` [{vocab_size, bytes_per_token}], sorted by size, on a logarithmic x axis. */
export function drawCurve(points) {
  const [first, last] = [points[0], points.at(-1)];
  const widest = Math.log(last.vocab_size / first.vocab_size) || 1;
  const x = (size) => LEFT + ((WIDTH - LEFT - RIGHT) * Math.log(size / first.vocab_size)) / widest;
  const most = Math.max(...points.map((point) => point.bytes_per_token));
  const top = Math.ceil(most * 2) / 2;
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * (value - 1)) / Math.max(0.5, top - 1);
  const [from, to] = [first, last].map((point) => point.bytes_per_token.toFixed(2));
  const summary = `Bytes per token rise from ${from} with ${formatCount(first.vocab_size)} entries ` +
    `to ${to} with ${formatCount(last.vocab_size)}.`;
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img", "aria-label": summary });
  for (let value = 1; value <= top; value += top > 3 ? 1 : 0.5) {
    svg.append(
      draw("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }),
      draw("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, value));
  }
  for (const size of ticks(first.vocab_size, last.vocab_size)) {
    const anchor = size === last.vocab_size ? "end" : "middle";
    svg.append(draw("text", { x: x(size), y: HEIGHT - 10, "text-anchor": anchor }, formatCount(size)));
  }
  const path = points.map((point) => [x(point.vocab_size).toFixed(1), y(point.bytes_per_token).toFixed(1)]);
  svg.append(draw("polyline", { points: path.join(" "), class: "line" }));
  svg.append(draw("circle", { cx: x(last.vocab_size), cy: y(last.bytes_per_token), r: 4, class: "dot" }));
  const caption = `${summary} Measured on the training text.`;
  return make("figure", {}, svg, make("figcaption", { class: "hint", textContent: caption }));
}

function ticks(least, most) {
  const found = [least];
  for (let power = 100; power < most; power *= 10) {
    for (const times of [1, 2, 5]) {
      const size = times * power;
      if (size > found.at(-1) * 1.7 && size * 1.5 < most) found.push(size);
    }
  }
  return [...found, most];
}
