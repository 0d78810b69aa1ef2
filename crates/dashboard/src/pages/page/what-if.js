// The panel that runs a recorded flow again with other choices. The server computes, with the code of
// `tidewire replay`, and answers line by line: progress, rows, and at last a picture or an error.

import { element, table } from "./format.js";

// The quantiles of the table, with their names in a row.
const QUANTILES = [["p50", "p50"], ["p95", "p95"], ["p99", "p99"], ["p99.9", "p999"]];

const get = (id) => document.getElementById(id);

export class WhatIf {
  constructor() {
    this.form = get("what-if-form");
    this.rows = [];
    // Stops the replay that runs.
    this.running = null;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.running !== null) this.running.abort();
      else this.run();
    });
  }

  // Offers the recordings of the page. A job that runs has none, and the panel says so.
  offer({ recordings, profiles }) {
    get("what-if").hidden = false;
    get("what-if-none").hidden = recordings.length > 0;
    this.form.hidden = recordings.length === 0;
    const options = () => recordings.map((name, place) => element("option", name, { value: String(place) }));
    get("what-if-file").replaceChildren(...options());
    get("what-if-peer").replaceChildren(element("option", "estimated", { value: "" }), ...options());
    for (const id of ["what-if-file", "what-if-peer"]) get(id).parentElement.hidden = recordings.length < 2;
    get("what-if-profiles").replaceChildren(...profiles.map((value) => element("option", null, { value })));
  }

  // What the form asks for.
  asked() {
    const choices = {};
    for (const input of this.form.querySelectorAll("input")) {
      if (input.value.trim() !== "") choices[input.name] = input.value.trim();
    }
    const peer = get("what-if-peer").value;
    return { file: Number(get("what-if-file").value), peer: peer === "" ? null : Number(peer), choices };
  }

  async run() {
    this.running = new AbortController();
    this.rows = [];
    this.show("Running", "running");
    get("what-if-picture").replaceChildren();
    this.tabulate();
    try {
      await this.read(this.asked(), this.running.signal);
    } catch (error) {
      this.show(error.name === "AbortError" ? "Stopped." : error.message, error.name === "AbortError" ? "done" : "wrong");
    }
    this.running = null;
    get("what-if-progress").hidden = true;
    get("what-if-run").textContent = "Run";
  }

  // Reads the answer. Throws what is wrong as a sentence.
  async read(asked, signal) {
    const response = await fetch("replay", { method: "POST", body: JSON.stringify(asked), signal, cache: "no-store", credentials: "omit" });
    if (!response.ok) throw new Error((await response.text()) || `the server answered ${response.status}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      lines.forEach((line) => this.take(JSON.parse(line)));
    }
    if (get("what-if").dataset.state === "running") throw new Error("the server ended before the replay");
  }

  take(line) {
    switch (line.event) {
      case "waiting": return this.progress("Another replay runs first", null);
      case "progress": return this.progress(line.name === "recorded" ? "Reading the recording" : line.name, line.share);
      case "remark": return get("what-if-remarks").append(element("li", line.words));
      case "replay":
        this.rows.push(line);
        return this.tabulate();
      case "picture":
        this.draw(line.svg);
        return this.show(`${this.rows.length} runs.`, "done");
      case "error": throw new Error(line.message);
      default: return undefined;
    }
  }

  // Says what is going on. The attribute is for the style, and for tests.
  show(text, state) {
    get("what-if").dataset.state = state;
    get("what-if-state").textContent = text;
    if (state !== "running") return;
    get("what-if-run").textContent = "Stop";
    get("what-if-remarks").replaceChildren();
    this.progress("Starting", null);
  }

  // A share that is null is not known.
  progress(name, share) {
    const bar = get("what-if-progress");
    bar.hidden = false;
    const [label, meter] = bar.children;
    label.textContent = name;
    if (share === null) meter.removeAttribute("value");
    else meter.value = share;
  }

  tabulate() {
    const rows = this.rows.map((row) => [
      row.done === false ? `${row.name} (not all bytes arrived)` : row.name,
      `${(100 * row.overhead).toFixed(1)} %`, `${(100 * row.loss).toFixed(1)} %`,
      ...QUANTILES.map(([, key]) => (row.delay_ms[key] === null ? "–" : `${row.delay_ms[key].toFixed(1)} ms`)),
    ]);
    const columns = ["run", "overhead", "loss", ...QUANTILES.map(([name]) => name)];
    get("what-if-table").replaceChildren(...(rows.length > 0 ? [table("In-order delay beyond the one-way time, and overhead, of each run", columns, rows)] : []));
    get("what-if").dataset.rows = JSON.stringify(this.rows);
  }

  // Shows the picture of the server. It is read as a picture, so nothing in it runs.
  draw(text) {
    const picture = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", "In-order delay against overhead of each run; the table has the figures");
    get("what-if-picture").replaceChildren(document.importNode(picture, true));
  }
}
