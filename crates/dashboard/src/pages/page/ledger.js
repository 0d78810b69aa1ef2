// The ledger: one mark for each packet or symbol on a canvas, and the whole run above it.
//
// The cost of drawing follows the marks on the screen, not those in the run: a cell of the canvas is a mark,
// and the overview draws bins that are kept as marks come.

import { at, count, element, ms, table } from "./format.js";
import { BIN, KINDS, LOOKS, RECODED, SOURCE, SYMBOL, AGAIN, AHEAD, ASKED, LOST, LATE, FLYING, DIRECT, RESENT, REPAIRED, GIVEN_UP, DROPPED } from "./marks.js";
import { SHAPED, shape, sprites } from "./shapes.js";

// Sides of a mark in pixels.
const SIZES = [2, 3, 4, 6, 9, 12, 16, 24];
const HEIGHT = 288;
const OVERVIEW_HEIGHT = 52;
// Repairs named for one lost packet, and how long after it they are looked for.
const MOST_REPAIRS = 4;
const REPAIR_SECONDS = 3;
// Rows of the table.
const TABLE_ROWS = 200;

const get = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Ledger {
  constructor() {
    this.marks = null;
    this.size = 4;
    // The first mark of the screen, and the chosen one; -1: none.
    this.first = 0;
    this.chosen = -1;
    this.following = true;
    this.grid = get("grid");
    this.overview = get("overview");
    this.detail = get("detail");
    this.recolour();
    this.listen();
  }

  // Reads the colours of the theme.
  recolour() {
    this.colours = LOOKS.map(({ css }) => colour(css));
    // The same as pixels of an image: red, green, blue and opacity from the lowest byte up.
    this.shades = this.colours.map((text) => {
      const value = Number.parseInt(text.slice(1), 16);
      return ((255 << 24) | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
    });
    this.sheet = null;
    this.legend();
  }

  legend() {
    const host = get("looks");
    host.replaceChildren(...LOOKS.map(({ name }, index) => {
      const item = element("li");
      const icon = element("canvas", null, { width: 28, height: 28, "aria-hidden": "true" });
      const context = icon.getContext("2d");
      shape(context, index, this.colours[index], 0, 0, 28);
      const total = element("span", "0", { class: "total", id: `look-${index}` });
      item.append(icon, element("span", name), total);
      return item;
    }));
  }

  // Shows another track.
  show(marks) {
    if (marks === this.marks) return;
    this.marks = marks;
    this.choose(-1);
    this.first = 0;
    this.follow(true);
  }

  get columns() {
    return Math.max(1, Math.floor(this.grid.clientWidth / SIZES[this.size]));
  }

  get rows() {
    return Math.max(1, Math.floor(HEIGHT / SIZES[this.size]));
  }

  // Draws what is new.
  draw() {
    if (this.marks === null) return;
    const shown = this.columns * this.rows;
    if (this.following) {
      const behind = this.marks.length - shown;
      this.first = Math.max(0, Math.ceil(behind / this.columns) * this.columns);
    }
    this.first = Math.max(0, Math.min(this.first, this.marks.length - 1));
    this.drawGrid(shown);
    this.drawOverview();
    // For tests, which read the page as text.
    this.grid.dataset.marks = String(this.marks.length + this.marks.gone);
    this.grid.dataset.losses = String(this.marks.total[4]);
    get("ledger-count").textContent = `${count(this.marks.length + this.marks.gone)} marks`;
    this.marks.total.forEach((total, index) => { get(`look-${index}`).textContent = count(total); });
    if (get("marks-details").open) this.tabulate(shown);
  }

  drawGrid(shown) {
    const context = fit(this.grid, HEIGHT);
    const ratio = devicePixelRatio || 1;
    const side = SIZES[this.size];
    const { columns, marks } = this;
    const end = Math.min(marks.length, this.first + shown);
    if (side >= SHAPED) {
      this.sheet ??= sprites(this.colours, side, ratio);
      const wide = side * ratio;
      for (let index = this.first; index < end; index += 1) {
        const cell = index - this.first;
        context.drawImage(this.sheet, marks.look(index) * wide, 0, wide, wide, (cell % columns) * side, Math.floor(cell / columns) * side, side, side);
      }
    } else {
      this.drawPixels(context, Math.max(1, Math.round(side * ratio)), end);
    }
    this.outline(context, side, columns, end);
  }

  // Small marks are written as pixels: a hundred thousand calls to draw would take too long.
  drawPixels(context, side, end) {
    const { marks, columns } = this;
    const width = this.grid.width;
    const image = context.createImageData(width, this.grid.height);
    const pixels = new Uint32Array(image.data.buffer);
    const filled = side > 2 ? side - 1 : side;
    for (let index = this.first; index < end; index += 1) {
      const cell = index - this.first;
      const row = Math.floor(cell / columns);
      const corner = row * side * width + (cell - row * columns) * side;
      const shade = this.shades[marks.look(index)];
      for (let y = 0; y < filled; y += 1) pixels.fill(shade, corner + y * width, corner + y * width + filled);
    }
    context.putImageData(image, 0, 0);
  }

  outline(context, side, columns, end) {
    if (this.chosen < this.first || this.chosen >= end) return;
    const cell = this.chosen - this.first;
    context.strokeStyle = colour("--text");
    context.lineWidth = 2;
    context.strokeRect((cell % columns) * side - 1, Math.floor(cell / columns) * side - 1, side + 2, side + 2);
  }

  // One column of pixels for each part of the run: marks by look, the losses on top, and the part that the
  // grid shows.
  drawOverview() {
    const context = fit(this.overview, OVERVIEW_HEIGHT);
    const width = this.overview.clientWidth;
    const { bins, columns } = this.marks;
    const per = Math.max(1, bins.length / width);
    const groups = [];
    for (let x = 0; x * per < bins.length; x += 1) {
      const sum = new Float64Array(LOOKS.length);
      const end = Math.min(bins.length, Math.max(Math.floor((x + 1) * per), Math.floor(x * per) + 1));
      for (let bin = Math.floor(x * per); bin < end; bin += 1) bins[bin]?.forEach((value, index) => { sum[index] += value; });
      groups.push(sum);
    }
    const wide = width / Math.max(groups.length, 1);
    const highest = Math.max(1, ...groups.map((sum) => sum.reduce((a, b) => a + b, 0)));
    groups.forEach((sum, x) => {
      let base = OVERVIEW_HEIGHT;
      // Losses stand on the ground, so that their height can be compared.
      for (const index of [4, 7, 5, 3, 2, 6, 1, 0]) {
        const tall = (sum[index] / highest) * (OVERVIEW_HEIGHT - 2);
        context.fillStyle = this.colours[index];
        context.fillRect(x * wide, base - tall, Math.max(wide, 1), tall);
        base -= tall;
      }
    });
    const shown = this.columns * this.rows;
    const place = (index) => (columns.time[Math.max(0, Math.min(index, this.marks.length - 1))] / BIN / Math.max(bins.length, 1)) * width;
    const [left, right] = [place(this.first), place(this.first + shown)];
    context.strokeStyle = colour("--text");
    context.lineWidth = 1.5;
    context.strokeRect(left + 0.75, 0.75, Math.max(3, right - left) - 1.5, OVERVIEW_HEIGHT - 1.5);
    this.overview.setAttribute("aria-valuemax", String(this.marks.length));
    this.overview.setAttribute("aria-valuenow", String(this.first));
    this.overview.setAttribute("aria-valuetext", at(columns.time[this.first]));
  }

  listen() {
    this.grid.addEventListener("click", (event) => {
      const side = SIZES[this.size];
      const column = Math.floor(event.offsetX / side);
      if (column >= this.columns) return;
      this.choose(this.first + Math.floor(event.offsetY / side) * this.columns + column);
    });
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.grid.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1 : -1);
    }, { passive: false });
    const drag = (event) => {
      if (event.type === "pointerdown") this.overview.setPointerCapture(event.pointerId);
      if (event.buttons === 1) this.seek(event.offsetX / this.overview.clientWidth);
    };
    this.overview.addEventListener("pointerdown", drag);
    this.overview.addEventListener("pointermove", drag);
    this.overview.addEventListener("keydown", (event) => {
      const page = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageUp: 10, PageDown: -10 }[event.key];
      if (page !== undefined) this.move(page * this.columns * this.rows);
      else if (event.key === "Home") this.move(-Infinity);
      else if (event.key === "End") this.follow(true);
      else return;
      event.preventDefault();
    });
    get("zoom-in").addEventListener("click", () => this.zoom(1));
    get("zoom-out").addEventListener("click", () => this.zoom(-1));
    get("next-loss").addEventListener("click", () => this.loss(1));
    get("previous-loss").addEventListener("click", () => this.loss(-1));
    get("follow").addEventListener("click", () => this.follow(!this.following));
    get("marks-details").addEventListener("toggle", () => this.draw());
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
    if (step !== undefined) this.choose(this.chosen < 0 ? this.first : this.chosen + step);
    else if (event.key === "n") this.loss(1);
    else if (event.key === "p") this.loss(-1);
    else if (event.key === "+" || event.key === "=") this.zoom(1);
    else if (event.key === "-") this.zoom(-1);
    else if (event.key === "PageDown") this.move(this.columns * this.rows);
    else if (event.key === "PageUp") this.move(-this.columns * this.rows);
    else if (event.key === "Escape") this.choose(-1);
    else return;
    event.preventDefault();
  }

  follow(following) {
    this.following = following;
    get("follow").setAttribute("aria-pressed", String(following));
    this.draw();
  }

  // Moves the grid by a number of marks.
  move(by) {
    if (this.marks === null) return;
    const last = Math.max(0, this.marks.length - this.columns * this.rows);
    this.first = Math.max(0, Math.min(last + this.columns, this.first + by));
    this.first -= this.first % this.columns;
    this.follow(false);
  }

  // Moves the grid to a part of the run, 0 to 1.
  seek(part) {
    if (this.marks === null || this.marks.length === 0) return;
    const { time } = this.marks.columns;
    const wanted = Math.max(0, Math.min(1, part)) * this.marks.bins.length * BIN;
    let low = 0, high = this.marks.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (time[middle] < wanted) low = middle + 1; else high = middle;
    }
    this.first = 0;
    this.move(low - (this.columns * this.rows) / 2);
  }

  zoom(step) {
    const middle = this.chosen >= 0 ? this.chosen : this.first + (this.columns * this.rows) / 2;
    this.size = Math.max(0, Math.min(SIZES.length - 1, this.size + step));
    this.sheet = null;
    if (this.following) return this.draw();
    this.first = 0;
    this.move(middle - (this.columns * this.rows) / 2);
  }

  loss(step) {
    if (this.marks === null) return;
    const from = this.chosen >= 0 ? this.chosen : step > 0 ? this.first - 1 : this.first + this.columns * this.rows;
    const found = this.marks.loss(Math.min(from, this.marks.length), step);
    if (found < 0) this.detail.replaceChildren(element("p", step > 0 ? "No loss after this one." : "No loss before this one."));
    else this.choose(found);
  }

  // Chooses a mark, brings it into view and says what is known about it.
  choose(index) {
    if (this.marks === null || index >= this.marks.length || index < 0) {
      this.chosen = -1;
      this.detail.replaceChildren();
      if (this.marks !== null) this.draw();
      return;
    }
    this.chosen = index;
    const shown = this.columns * this.rows;
    if (index < this.first || index >= this.first + shown) {
      this.first = 0;
      this.move(index - shown / 2);
    } else {
      this.follow(false);
    }
    this.detail.replaceChildren(...describe(this.marks, index));
  }

  tabulate(shown) {
    const rows = [];
    const end = Math.min(this.marks.length, this.first + Math.min(shown, TABLE_ROWS));
    for (let index = this.first; index < end; index += 1) rows.push(row(this.marks, index));
    get("marks-table").replaceChildren(table("Marks", ["number", "time", "carries", "fate", "after"], rows));
  }
}

// Makes the canvas as wide as its place, with the pixels of the screen, and clears it.
function fit(canvas, tall) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(tall * ratio)];
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, tall);
  return context;
}

const FATES = ["in flight", "arrived", "lost", "declared lost, and arrived after all", "came in its first transmission", "came in a retransmission", "computed from repairs", "given up", "dropped at our own rate"];

// What a mark carries.
function content(marks, index) {
  const { kind, symbol, span, lane } = marks.columns;
  const what = KINDS[kind[index]] ?? "unknown";
  switch (kind[index]) {
    case SOURCE: case AGAIN: return `${what}: ${count(symbol[index])} of lane ${lane[index]}`;
    case AHEAD: case ASKED:
      return `${what}, over ${span[index]} symbols from ${count(symbol[index])} of lane ${lane[index]}`;
    case RECODED: return `${what}: generation ${count(symbol[index])}`;
    case SYMBOL: return `symbol ${count(symbol[index])} of lane ${lane[index]}`;
    default: return what;
  }
}

function row(marks, index) {
  const { number, time, fate, after } = marks.columns;
  return [count(number[index]), at(time[index], 3), content(marks, index), FATES[fate[index]], ms(after[index])];
}

// What became of a mark, in sentences.
function describe(marks, index) {
  const { number, time, bytes, kind, fate, after, by } = marks.columns;
  const heading = kind[index] === SYMBOL ? "Symbol" : "Packet";
  const lines = [element("h3", `${heading} ${count(number[index])}`)];
  const facts = element("dl");
  const fact = (name, value) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    facts.append(pair);
  };
  fact(kind[index] === SYMBOL ? "delivered" : "sent", at(time[index], 4));
  fact("carries", content(marks, index));
  if (bytes[index] > 0) fact("length", `${count(bytes[index])} bytes`);
  fact("fate", FATES[fate[index]]);
  if ([LOST, LATE, DROPPED].includes(fate[index])) fact("found lost after", ms(after[index]));
  else if (fate[index] !== FLYING && kind[index] !== SYMBOL) fact("acknowledged after", ms(after[index]));
  else if ([DIRECT, RESENT, REPAIRED].includes(fate[index])) fact("in-order delay", ms(after[index]));
  else if (fate[index] === GIVEN_UP) fact("in-order delay", "never: its deadline passed");
  if (fate[index] === REPAIRED && by[index] > 0) fact("repaired by", `packet ${count(by[index])}`);
  if ([LOST, DROPPED].includes(fate[index]) && kind[index] === SOURCE) {
    const found = marks.repairs(index, REPAIR_SECONDS, MOST_REPAIRS);
    const says = found.map((repair) => `packet ${count(number[repair])}, sent ${ms(1000 * (time[repair] - time[index]))} later (${KINDS[kind[repair]]})`);
    fact("repaired by", says.length > 0 ? says[0] : "nothing that arrived yet");
    if (says.length > 1) fact("also covered by", says.slice(1).join("; "));
  }
  lines.push(facts);
  return lines;
}
