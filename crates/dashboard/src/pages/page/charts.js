// The charts over time and the distribution: uPlot, a legend of buttons, and a table behind each.

import uPlot from "./vendor/uplot.js";
import { at, bytes, count, element, ms, percent, rate, table } from "./format.js";

// Rows drawn at most: more than a wide screen has columns.
const MOST_ROWS = 1500;
// Rows of a table.
const TABLE_ROWS = 30;

// One chart: its title, what it shows in a sentence, and its series with name, colour and unit.
const CHARTS = [
  { key: "goodput", title: "Goodput and its cost", about: "Data of the application, and all bytes on the wire with headers and repair.", unit: rate, series: [["wire", "on the wire", "--wire"], ["goodput", "goodput", "--goodput"]], fill: true },
  { key: "delay", title: "In-order delay", about: "Beyond the least one-way time, of the symbols that this end delivered in the last second.", unit: ms, log: true, series: [["p50", "p50", "--low"], ["p95", "p95", "--middle"], ["p99", "p99", "--high"]] },
  { key: "loss", title: "Loss", about: "Recent part of our packets that the medium lost, and the part that was dropped at our own rate.", unit: percent, series: [["dropped", "dropped at our own rate", "--dropped"], ["loss", "loss", "--lost"]], fill: true },
  { key: "burst", title: "Bursts", about: "Mean number of packets that were lost in a row.", unit: (value) => (Number.isFinite(value) ? value.toFixed(2) : "–"), series: [["burst", "mean run", "--resent"]] },
  { key: "redundancy", title: "Redundancy", about: "Repairs for each source symbol: planned ahead, and sent ahead or asked for.", unit: percent, series: [["planned", "planned", "--middle"], ["sent", "sent", "--repair"]] },
  { key: "rtt", title: "Round trip and queueing", about: "Smoothed round trip, the least of the path, and the part that is queue.", unit: ms, series: [["least", "least", "--low"], ["queue", "queue", "--late"], ["rtt", "smoothed", "--goodput"]] },
  { key: "window", title: "In flight", about: "Bytes in flight, and what rate control allows.", unit: bytes, series: [["window", "allowed", "--wire"], ["flight", "in flight", "--goodput"]] },
  { key: "streams", title: "Streams", about: "Streams that are open.", unit: count, series: [["streams", "open", "--goodput"]], step: true },
];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A panel with a heading, a place to draw, a legend and a table.
class Panel {
  constructor(host, definition) {
    this.definition = definition;
    this.hidden = new Set();
    this.visible = true;
    this.plot = null;
    this.data = null;
    const title = `chart-${definition.key}`;
    this.node = element("section", null, { class: "panel chart", "aria-labelledby": title, id: `panel-${definition.key}` });
    this.node.append(element("h2", definition.title, { id: title }), element("p", definition.about, { class: "about" }));
    this.legend = element("div", null, { class: "legend", role: "group", "aria-label": `Series of ${definition.title}` });
    this.values = definition.series.map(([key, name, css], index) => this.entry(name, css, index));
    this.place = element("div", null, { class: "plot", role: "img", "aria-label": definition.title });
    this.details = element("details");
    this.details.append(element("summary", "As a table"));
    this.body = element("div", null, { class: "scroll" });
    this.details.append(this.body);
    this.node.append(this.legend, this.place, this.details);
    this.details.addEventListener("toggle", () => this.tabulate());
    host.append(this.node);
    new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      if (this.visible) this.draw();
    }, { rootMargin: "200px" }).observe(this.node);
    // In the next frame: changing the size here would call the observer again.
    new ResizeObserver(() => requestAnimationFrame(() => this.resize())).observe(this.place);
  }

  entry(name, css, index) {
    const button = element("button", null, { type: "button", "aria-pressed": "true", class: "series" });
    const swatch = element("span", null, { class: "swatch" });
    swatch.style.background = `var(${css})`;
    const value = element("output", "–");
    button.append(swatch, element("span", name), value);
    button.addEventListener("click", () => {
      if (!this.hidden.delete(index)) this.hidden.add(index);
      button.setAttribute("aria-pressed", String(!this.hidden.has(index)));
      this.plot?.setSeries(index + 1, { show: !this.hidden.has(index) });
    });
    this.legend.append(button);
    return value;
  }

  set(data) {
    this.data = data;
    this.draw();
  }

  // Forgets the drawing, whose colours are of another theme.
  renew() {
    this.plot?.destroy();
    this.plot = null;
    this.draw();
  }

  draw() {
    if (!this.visible || this.data === null) return;
    if (this.plot === null) {
      this.plot = new uPlot(this.options(), this.data, this.place);
      this.hidden.forEach((index) => this.plot.setSeries(index + 1, { show: false }));
    } else {
      this.plot.setData(this.data);
    }
    this.say(this.plot.cursor.idx);
    if (this.details.open) this.tabulate();
  }

  resize() {
    const width = this.place.clientWidth;
    if (this.plot !== null && width > 0) this.plot.setSize({ width, height: height(width) });
  }

  // Writes the values at the cursor, or the last ones, into the legend.
  say(index) {
    this.values.forEach((value, series) => {
      const column = this.data[series + 1];
      const row = index ?? column.findLastIndex((figure) => figure !== null);
      value.textContent = this.definition.unit(column[row] ?? NaN);
    });
    this.place.setAttribute("aria-label", `${this.definition.title}: ${this.definition.series.map(([, name], series) => `${name} ${this.values[series].textContent}`).join(", ")}`);
  }

  options() {
    const { definition } = this;
    const width = this.place.clientWidth || 400;
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const series = definition.series.map(([, name, css], index) => ({
      label: name, stroke: colour(css), width: 1.75, points: { show: false }, spanGaps: true,
      fill: definition.fill && index === 0 ? `${colour(css)}22` : undefined,
      paths: definition.step ? uPlot.paths.stepped({ align: 1 }) : undefined,
    }));
    return {
      width, height: height(width),
      legend: { show: false },
      cursor: { sync: { key: definition.across ? undefined : "time" }, points: { size: 6 }, drag: { x: true, y: false } },
      scales: {
        x: definition.across ? { time: false, distr: 3 } : { time: false },
        y: definition.log || definition.across ? { distr: 3, range: decades } : { range: (_, low, high) => [0, high > 0 ? 1.08 * high : 1] },
      },
      axes: [
        { ...axis, size: 26, gap: 4, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : (definition.across ?? ((value) => at(value, 0)))(tick))) },
        { ...axis, size: 78, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : short(definition.unit(tick)))) },
      ],
      series: [{}, ...series],
      hooks: { setCursor: [(plot) => this.say(plot.cursor.idx)] },
    };
  }

  tabulate() {
    if (!this.details.open || this.data === null) return;
    const [times, ...values] = this.data;
    const step = Math.max(1, Math.floor(times.length / TABLE_ROWS));
    const rows = [];
    for (let row = times.length - 1; row >= 0 && rows.length < TABLE_ROWS; row -= step) {
      const first = (this.definition.across ?? at)(times[row]);
      rows.push([first, ...values.map((column) => this.definition.unit(column[row] ?? NaN))]);
    }
    const names = this.definition.series.map(([, name]) => name);
    this.body.replaceChildren(table(this.definition.title, [this.definition.across ? "delay" : "time", ...names], rows));
  }
}

const height = (width) => Math.round(Math.min(200, Math.max(140, width * 0.38)));

// Ticks without zeros behind the point.
const short = (text) => text.replace(/\.0+(?=\s)/, "");

// Whole decades around the values of a logarithmic scale.
function decades(_, low, high) {
  if (!(high > 0)) return [0.1, 100];
  const floor = Math.max(low ?? 0, 1e-6);
  return [10 ** Math.floor(Math.log10(floor)), 10 ** Math.ceil(Math.log10(high * 1.0001))];
}

const DISTRIBUTION = { key: "distribution", title: "Delay as a distribution", about: "Part of all symbols of the job so far that came later than a delay.", unit: percent, across: ms, series: [["above", "later", "--high"]] };

// All charts of the page.
export class Charts {
  constructor(host) {
    this.panels = CHARTS.map((definition) => new Panel(host, definition));
    this.distribution = new Panel(host, DISTRIBUTION);
    const delay = this.panels.find((panel) => panel.definition.key === "delay");
    delay.node.after(this.distribution.node);
  }

  // Draws a connection: `seconds` of it, or all with 0.
  show(connection, seconds) {
    for (const panel of this.panels) {
      const names = panel.definition.series.map(([key]) => key);
      const data = connection.window(names, seconds, MOST_ROWS);
      // A logarithmic axis has no place for zero.
      panel.set(panel.definition.log ? [data[0], ...data.slice(1).map(positive)] : data);
    }
    const [upper, above] = connection.distribution();
    this.distribution.set([upper, above.map((value) => (value > 0 ? value : null))]);
  }

  renew() {
    [...this.panels, this.distribution].forEach((panel) => panel.renew());
  }
}

const positive = (column) => column.map((value) => (value === null ? null : Math.max(value, 0.01)));
