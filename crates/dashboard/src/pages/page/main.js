// Joins the channel, what is known of each connection, and what the page shows.

import { Charts } from "./charts.js";
import { at, bytes, count, element, ms, percent, rate, table } from "./format.js";
import { Ledger } from "./ledger.js";
import { Marks, RECORD, owner } from "./marks.js";
import { Connection } from "./model.js";
import * as channel from "./stream.js";
import { WhatIf } from "./what-if.js";

// Connections that the page keeps.
const MOST_CONNECTIONS = 64;
// Notes that the page keeps of a connection.
const MOST_NOTES = 500;
// Tracks of a connection, in the order of the channel's numbers.
const TRACKS = ["packets sent", "symbols delivered"];

const get = (id) => document.getElementById(id);
// What the page knows, and what it shows.
const state = { connections: new Map(), tracks: new Map(), shown: null, chosen: false, track: null, held: false, live: true, dirty: true };
const charts = new Charts(get("charts"));
const ledger = new Ledger();
const whatIf = new WhatIf();

// What a frame of each kind does.
const handlers = {
  [channel.HELLO]: (payload) => {
    const hello = channel.json(payload);
    state.live = hello.live;
    get("title").textContent = hello.title;
    document.title = `${hello.title} – Tidewire`;
    say(hello.live ? "Live" : "Reading", hello.live ? "live" : "reading");
    if (!hello.live) get("span").value = "0";
    whatIf.offer(hello);
  },
  [channel.CONNECTION]: (payload) => {
    const told = channel.json(payload);
    const known = state.connections.get(told.id);
    if (known !== undefined) Object.assign(known, told);
    else if (state.connections.size < MOST_CONNECTIONS) state.connections.set(told.id, new Connection(told));
    listConnections();
  },
  [channel.SAMPLE]: (payload) => {
    const sample = channel.json(payload);
    state.connections.get(sample.c)?.add(sample);
  },
  [channel.MARKS]: (payload) => {
    const view = new DataView(payload.buffer);
    // Nearly all records of a frame are of one track.
    let [of, marks] = [null, null];
    for (let place = 0; place + RECORD <= payload.length; place += RECORD) {
      const next = owner(view, place);
      if (next !== of) [of, marks] = [next, track(next)];
      marks.take(view, place);
    }
  },
  [channel.NOTE]: (payload) => {
    const note = channel.json(payload);
    const connection = state.connections.get(note.c);
    if (connection === undefined) return;
    connection.notes.push(note);
    if (connection.notes.length > MOST_NOTES) connection.notes.shift();
  },
  [channel.SUMMARY]: (payload) => summarize(channel.json(payload)),
  [channel.DROPPED]: (payload) => {
    const { dropped } = channel.json(payload);
    get("skipped").textContent = `${count(dropped)} messages were dropped because this page, or its machine, was too slow. Counts are right; marks and points may be missing.`;
  },
  [channel.DELAYS]: (payload) => {
    const told = channel.json(payload);
    state.connections.get(told.c)?.replaceDelays(told.delay);
  },
  [channel.END]: (payload) => {
    const trouble = channel.text(payload);
    say(trouble ? `Ends early: ${trouble}` : state.live ? "Ended" : "Recording", trouble ? "broken" : "ended");
  },
};

// The marks of a track.
function track(owner) {
  const name = `${owner >> 1}/${owner & 1}`;
  if (!state.tracks.has(name)) {
    state.tracks.set(name, new Marks());
    listTracks();
  }
  return state.tracks.get(name);
}

function handle(kind, payload) {
  handlers[kind]?.(payload);
  state.dirty = true;
}

function say(text, kind) {
  get("state").textContent = text;
  get("state").dataset.kind = kind;
  document.documentElement.dataset.channel = kind;
}

function listConnections() {
  const list = get("connection");
  const before = list.value;
  list.replaceChildren(...[...state.connections.values()].map(({ id, peer, closed }) => element("option", closed ? `${peer} (closed)` : peer, { value: String(id) })));
  const newest = [...state.connections.keys()].at(-1);
  const old = before === "" ? undefined : state.connections.get(Number(before));
  // A job that makes one connection after the other is followed, until the user chooses one.
  const isOver = state.live && !state.chosen && old?.closed;
  list.value = old === undefined || isOver ? String(newest) : before;
  show();
}

// The connection that is chosen.
function show() {
  const id = Number(get("connection").value);
  state.shown = state.connections.get(id) ?? null;
  listTracks();
}

function listTracks() {
  const list = get("track");
  const before = list.value;
  const id = state.shown?.id;
  const names = TRACKS.map((name, track) => [`${id}/${track}`, name]).filter(([name]) => state.tracks.has(name));
  list.replaceChildren(...names.map(([value, name]) => element("option", name, { value })));
  const fullest = names.reduce((most, [name]) => Math.max(most, state.tracks.get(name).length), -1);
  const wanted = names.some(([name]) => name === before) ? before : names.find(([name]) => state.tracks.get(name).length === fullest)?.[0];
  if (wanted === undefined) return;
  list.value = wanted;
  ledger.show(state.tracks.get(wanted));
}

// The figures at the top: name, value, and what it means.
function tiles(connection) {
  const last = (name) => connection.columns[name].at(-1) ?? NaN;
  const total = connection.last;
  const way = connection.receives ? 1 : 0;
  const overhead = total.app[way] > 0 ? total.wire[way] / total.app[way] - 1 : NaN;
  return [
    ["Goodput", rate(last("goodput")), `${bytes(total.app[way])} so far`],
    ["On the wire", rate(last("wire")), `${percent(overhead)} more than the data`],
    ["In-order delay p99", ms(last("p99")), connection.delayed > 0 ? `p50 ${ms(last("p50"))}` : "known where data arrives"],
    ["Loss", percent(last("loss")), `${count(total.packets.lost)} of ${count(total.packets.sent)} packets`],
    ["Rate control", total.state || "–", `${bytes(total.dropped.bytes)} dropped at our own rate`],
    ["Repair", percent(last("sent")), `planned ${percent(last("planned"))}`],
    ["Round trip", ms(last("rtt")), `least ${ms(last("least"))}`],
  ];
}

function drawTiles(connection) {
  const host = get("tiles");
  const figures = tiles(connection);
  if (host.children.length !== figures.length) {
    host.replaceChildren(...figures.map(([name]) => {
      const tile = element("div", null, { class: "tile" });
      tile.append(element("dt", name), element("dd", "–"), element("dd", "", { class: "more" }));
      return tile;
    }));
  }
  figures.forEach(([, value, more], index) => {
    const [, first, second] = host.children[index].children;
    first.textContent = value;
    second.textContent = more;
  });
}

// Every counter with its name, as the JSON summary has them.
function drawCounts(connection) {
  const total = connection.last;
  const rows = [
    ...Object.entries(total.packets).map(([name, value]) => [`packets.${name}`, count(value)]),
    ...Object.entries(total.symbols).map(([name, value]) => [`symbols.${name}`, count(value)]),
    ["packets dropped at our own rate", count(total.dropped.packets)], ["bytes dropped at our own rate", count(total.dropped.bytes)],
    ["wire bytes sent", count(total.wire[0])], ["wire bytes received", count(total.wire[1])],
    ["application bytes sent", count(total.app[0])], ["application bytes received", count(total.app[1])],
  ];
  get("counts").replaceChildren(table("Counts of this end", ["count", "value"], rows));
  document.documentElement.dataset.counts = JSON.stringify(total);
}

function drawNotes(connection) {
  const host = get("notes");
  const newest = connection.notes.slice(-100).reverse();
  if (host.dataset.of === `${connection.id}/${connection.notes.length}`) return;
  host.dataset.of = `${connection.id}/${connection.notes.length}`;
  host.replaceChildren(...newest.map((note) => {
    const item = element("li", null, { class: note.feasible === false ? "unmet" : "" });
    item.append(element("time", at(note.t)), element("p", note.words));
    return item;
  }));
  if (newest.length === 0) host.append(element("li", "No decision yet.", { class: "empty" }));
}

// The summary of `--json`, as pairs of name and value.
function summarize(summary) {
  const list = element("dl", null, { class: "pairs" });
  const flatten = (value, name) => {
    if (value !== null && typeof value === "object") {
      Object.entries(value).forEach(([key, inner]) => flatten(inner, name ? `${name}.${key}` : key));
      return;
    }
    const pair = element("div");
    pair.append(element("dt", name), element("dd", typeof value === "number" ? figure(value) : String(value ?? "–")));
    list.append(pair);
  };
  flatten(summary, "");
  get("summary-table").replaceChildren(list);
  get("summary").hidden = false;
}

const figure = (value) => (Number.isInteger(value) || value > 1e6 ? count(value) : value.toPrecision(4));

// Draws at most ten times a second, and nothing while the page is hidden. A recording is read as fast as it
// comes: then drawing would take time from reading, so it is drawn three times a second.
let drawn = 0;
function frame(now) {
  requestAnimationFrame(frame);
  const kind = document.documentElement.dataset.channel;
  if (!state.dirty || state.held || now - drawn < (kind === "reading" ? 330 : 95)) return;
  drawn = now;
  state.dirty = false;
  const connection = state.shown;
  if (connection?.last) {
    drawTiles(connection);
    drawNotes(connection);
    drawCounts(connection);
    charts.show(connection, Number(get("span").value));
  }
  ledger.draw();
  // For those who wait until the page shows all of a recording.
  document.documentElement.dataset.drawn = kind;
}

function themed(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  get("theme").setAttribute("aria-pressed", String(dark));
  ledger.recolour();
  charts.renew();
  state.dirty = true;
}

get("connection").addEventListener("change", () => {
  state.chosen = true;
  show();
});
get("track").addEventListener("change", () => { ledger.show(state.tracks.get(get("track").value)); });
get("span").addEventListener("change", () => { state.dirty = true; });
get("hold").addEventListener("click", () => {
  state.held = !state.held;
  state.dirty = true;
  get("hold").setAttribute("aria-pressed", String(state.held));
});
get("theme").addEventListener("click", () => themed(document.documentElement.dataset.theme !== "dark"));
addEventListener("resize", () => { state.dirty = true; });
const wished = new URLSearchParams(location.search).get("theme");
themed(wished ? wished === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
requestAnimationFrame(frame);

try {
  await channel.read("stream", handle);
  if (!["ended", "broken"].includes(get("state").dataset.kind)) say("The job has ended", "ended");
} catch (error) {
  say(`Disconnected: ${error.message}`, "broken");
}
state.dirty = true;
