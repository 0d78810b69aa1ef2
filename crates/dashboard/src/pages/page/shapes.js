// The shapes of marks: each look has a shape of its own, so that colour is never the only difference.

import { LOOKS } from "./marks.js";

// Marks smaller than this are squares of one colour.
export const SHAPED = 7;

// Draws a look into a cell at (x, y) with a side of `size` pixels.
export function shape(context, index, colour, x, y, size) {
  const edge = Math.max(1, Math.round(size * 0.14));
  const [left, top, side] = [x + edge, y + edge, size - 2 * edge];
  const [middle, centre] = [left + side / 2, top + side / 2];
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1.25, size * 0.14);
  context.beginPath();
  switch (LOOKS[index].shape) {
    case "square":
      context.rect(left, top, side, side);
      context.fill();
      break;
    case "diamond":
      points(context, [[middle, top - 0.5], [left + side + 0.5, centre], [middle, top + side + 0.5], [left - 0.5, centre]]);
      context.fill();
      break;
    case "triangle":
      points(context, [[middle, top], [left + side, top + side], [left, top + side]]);
      context.fill();
      break;
    case "hourglass":
      points(context, [[left, top], [left + side, top], [left, top + side], [left + side, top + side]]);
      context.fill();
      break;
    case "cross":
      context.moveTo(left, top);
      context.lineTo(left + side, top + side);
      context.moveTo(left + side, top);
      context.lineTo(left, top + side);
      context.stroke();
      break;
    case "plus":
      context.moveTo(middle, top);
      context.lineTo(middle, top + side);
      context.moveTo(left, centre);
      context.lineTo(left + side, centre);
      context.stroke();
      break;
    case "ring":
      context.lineWidth = 1;
      context.rect(left + 0.5, top + 0.5, side - 1, side - 1);
      context.stroke();
      break;
    default:
      context.arc(middle, centre, Math.max(1, size * 0.16), 0, 2 * Math.PI);
      context.fill();
  }
}

function points(context, corners) {
  corners.forEach(([x, y], index) => (index === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
  context.closePath();
}

// A small canvas with each look at one size, from which many marks are copied.
export function sprites(colours, size, ratio) {
  const sheet = document.createElement("canvas");
  sheet.width = Math.ceil(LOOKS.length * size * ratio);
  sheet.height = Math.ceil(size * ratio);
  const context = sheet.getContext("2d");
  context.scale(ratio, ratio);
  LOOKS.forEach((_, index) => shape(context, index, colours[index], index * size, 0, size));
  return sheet;
}
