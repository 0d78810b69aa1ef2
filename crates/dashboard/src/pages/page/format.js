// Figures with units, as the command prints them. A value that is not known is a dash.

const DASH = "–";

// A rate in bits per second: `21.4 Mbit/s`.
export function rate(bps) {
  if (!Number.isFinite(bps)) return DASH;
  for (const [scale, unit] of [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]]) {
    if (bps >= scale) return `${(bps / scale).toFixed(bps >= 100 * scale ? 0 : 1)} ${unit}`;
  }
  return `${bps.toFixed(0)} bit/s`;
}

// A time in milliseconds.
export function ms(value) {
  if (!Number.isFinite(value)) return DASH;
  if (value >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return `${value.toFixed(value >= 100 ? 0 : value >= 1 ? 1 : 2)} ms`;
}

// A fraction.
export function percent(fraction) {
  if (!Number.isFinite(fraction)) return DASH;
  const value = 100 * fraction;
  return `${value.toFixed(Math.abs(value) >= 10 ? 1 : 2)} %`;
}

// A count, in groups of three digits.
export function count(value) {
  if (!Number.isFinite(value)) return DASH;
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

// Bytes in decimal units.
export function bytes(value) {
  if (!Number.isFinite(value)) return DASH;
  for (const [scale, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= scale) return `${(value / scale).toFixed(1)} ${unit}`;
  }
  return `${value.toFixed(0)} B`;
}

// Seconds since the beginning: `12.3 s`, or `4:05` from a minute on.
export function at(seconds, digits = 1) {
  if (!Number.isFinite(seconds)) return DASH;
  if (Math.abs(seconds) < 60) return `${seconds.toFixed(digits)} s`;
  const minutes = Math.floor(seconds / 60);
  return `${minutes}:${(seconds - 60 * minutes).toFixed(digits).padStart(digits > 0 ? 3 + digits : 2, "0")}`;
}

// An element with text and attributes. All text of the page is set through this, never as markup.
export function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A table: a caption for screen readers, column names, and rows of text. The first cell of a row names it.
export function table(caption, columns, rows) {
  const made = element("table");
  made.append(element("caption", caption, { class: "hidden" }));
  const head = element("tr");
  for (const column of columns) head.append(element("th", column, { scope: "col" }));
  const top = element("thead");
  top.append(head);
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    row.forEach((cell, index) => line.append(index === 0 ? element("th", cell, { scope: "row" }) : element("td", cell)));
    body.append(line);
  }
  made.append(top, body);
  return made;
}
