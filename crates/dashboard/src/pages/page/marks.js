// The marks of one track of a connection as columns of numbers: a million of them take 34 MB.
//
// A record of the channel has 32 bytes (`docs/dashboard.md`). A record with a number that is known replaces
// the older one: its fate was found. Numbers ascend in a track, with gaps where marks were dropped.

import { lowerBound } from "./model.js";

export const RECORD = 32;
// The most marks kept of a track; then the oldest quarter goes. Chosen: 70 MB.
const MOST = 1 << 21;
// Width of a bin of the overview, in seconds.
export const BIN = 0.1;

// What a packet carries, or how a symbol came, in the order of the channel's numbers.
export const KINDS = [
  "control frames", "a probe of the packet size", "the base of a lane", "a source symbol", "a source symbol again", "a repair sent ahead", "a repair that was asked for", "a combination of a relay", "a symbol",
];
export const SOURCE = 3, AGAIN = 4, AHEAD = 5, ASKED = 6, RECODED = 7, SYMBOL = 8;

// Fates, in the order of the channel's numbers.
export const FLYING = 0, ARRIVED = 1, LOST = 2, LATE = 3, DIRECT = 4, RESENT = 5, REPAIRED = 6, GIVEN_UP = 7, DROPPED = 8;

// How a mark looks: one entry for each colour and shape.
export const LOOKS = [
  { name: "in flight", css: "--flying", shape: "ring" },
  { name: "arrived", css: "--arrived", shape: "square" },
  { name: "repair", css: "--repair", shape: "diamond" },
  { name: "resent", css: "--resent", shape: "triangle" },
  { name: "lost", css: "--lost", shape: "cross" },
  { name: "late", css: "--late", shape: "hourglass" },
  { name: "control", css: "--control", shape: "dot" },
  { name: "dropped at our own rate", css: "--dropped", shape: "plus" },
];

// The look of each kind and fate.
export function look(kind, fate) {
  if (fate === LOST || fate === GIVEN_UP) return 4;
  if (fate === DROPPED) return 7;
  if (fate === LATE) return 5;
  if (kind === SYMBOL) return fate === REPAIRED ? 2 : fate === RESENT ? 3 : 1;
  if (kind < SOURCE) return 6;
  if (fate === FLYING) return 0;
  return kind === AGAIN ? 3 : kind === AHEAD || kind === ASKED ? 2 : 1;
}

const TYPES = {
  time: Float64Array, number: Uint32Array, symbol: Uint32Array, span: Uint16Array, bytes: Uint16Array, kind: Uint8Array, lane: Uint8Array, fate: Uint8Array, after: Float32Array, by: Uint32Array,
};

// Twice the connection of the record at `place`, and its track: a number, because a text for each record
// would be garbage.
export function owner(view, place) {
  return 2 * view.getUint16(place + 22, true) + (view.getUint8(place + 21) >> 7);
}

export class Marks {
  constructor() {
    this.length = 0;
    this.capacity = 4096;
    // How many were forgotten at the front.
    this.gone = 0;
    this.columns = Object.fromEntries(Object.entries(TYPES).map(([name, type]) => [name, new type(this.capacity)]));
    // Marks of each look in each bin.
    this.bins = [];
    this.total = new Array(LOOKS.length).fill(0);
  }

  // Reads the record at `place`, and adds or replaces its mark.
  take(view, place) {
    const number = view.getUint32(place + 8, true);
    const { columns } = this;
    let index = this.length;
    if (index > 0 && columns.number[index - 1] >= number) {
      index = this.find(number);
      if (index < 0) return;
      this.tally(index, -1);
    } else {
      if (index === this.capacity) this.grow();
      index = this.length;
      this.length += 1;
    }
    columns.time[index] = view.getFloat64(place, true);
    columns.number[index] = number;
    columns.symbol[index] = view.getUint32(place + 12, true);
    columns.span[index] = view.getUint16(place + 16, true);
    columns.bytes[index] = view.getUint16(place + 18, true);
    const kind = view.getUint8(place + 20);
    columns.kind[index] = kind & 0xf;
    columns.fate[index] = kind >> 4;
    columns.lane[index] = view.getUint8(place + 21) & 0x7f;
    columns.after[index] = view.getFloat32(place + 24, true);
    columns.by[index] = view.getUint32(place + 28, true);
    this.tally(index, 1);
  }

  // The index of a number, or -1.
  find(number) {
    const numbers = this.columns.number;
    const guess = number - numbers[0];
    if (guess >= 0 && guess < this.length && numbers[guess] === number) return guess;
    const index = lowerBound(numbers, number, this.length);
    return index < this.length && numbers[index] === number ? index : -1;
  }

  look(index) {
    return look(this.columns.kind[index], this.columns.fate[index]);
  }

  tally(index, by) {
    const bin = Math.max(0, Math.floor(this.columns.time[index] / BIN));
    while (this.bins.length <= bin) this.bins.push(null);
    this.bins[bin] ??= new Uint32Array(LOOKS.length);
    const mark = this.look(index);
    this.bins[bin][mark] += by;
    this.total[mark] += by;
  }

  grow() {
    if (this.capacity < MOST) {
      this.capacity *= 2;
      for (const [name, type] of Object.entries(TYPES)) {
        const wider = new type(this.capacity);
        wider.set(this.columns[name]);
        this.columns[name] = wider;
      }
      return;
    }
    const quarter = MOST / 4;
    for (const name of Object.keys(TYPES)) this.columns[name].copyWithin(0, quarter);
    this.length -= quarter;
    this.gone += quarter;
  }

  // The nearest mark of a loss before (-1) or after (1) `index`; -1 if there is none.
  loss(index, step) {
    for (let at = index + step; at >= 0 && at < this.length; at += step) {
      if (this.look(at) === 4 || this.look(at) === 7) return at;
    }
    return -1;
  }

  // The packets that arrived and repair the symbol of a packet that was lost: copies of it, and repairs
  // whose span has it, sent at most `seconds` later.
  repairs(index, seconds, most) {
    const { time, symbol, span, kind, fate, lane } = this.columns;
    const found = [];
    for (let at = index + 1; at < this.length && time[at] <= time[index] + seconds && found.length < most; at += 1) {
      if (lane[at] !== lane[index] || (fate[at] !== ARRIVED && fate[at] !== LATE)) continue;
      const spans = (kind[at] === AHEAD || kind[at] === ASKED) && symbol[index] - symbol[at] >= 0 && symbol[index] - symbol[at] < span[at];
      if (spans || (kind[at] === AGAIN && symbol[at] === symbol[index])) found.push(at);
    }
    return found;
  }
}
