// What the page knows of one connection: its samples as columns, and its delays.

// The most samples kept, at ten a second: an hour. Then every second one is left out, and so on.
const MOST = 36_000;
// Samples over which rates are means, and delays are counted.
const RATE_SAMPLES = 5;
const DELAY_SAMPLES = 10;

// The columns that the charts draw. A figure that is not known is null.
const COLUMNS = [
  "time", "goodput", "wire", "p50", "p95", "p99", "loss", "dropped", "burst", "planned", "sent", "rtt", "least", "queue", "window", "flight", "pacing", "streams",
];

export class Connection {
  constructor({ id, peer }) {
    this.id = id;
    this.peer = peer;
    this.closed = null;
    this.columns = Object.fromEntries(COLUMNS.map((name) => [name, []]));
    // The last samples as they came, for differences.
    this.recent = [];
    this.last = null;
    // Upper bound of a bucket in microseconds -> delays in it.
    this.delays = new Map();
    this.delayed = 0;
    this.notes = [];
    this.stride = 1;
    this.seen = 0;
  }

  // True if this end received more bytes of the application than it sent.
  get receives() {
    return this.last !== null && this.last.app[1] > this.last.app[0];
  }

  add(sample) {
    for (const [upper, count] of sample.delay) {
      this.delays.set(upper, (this.delays.get(upper) ?? 0) + count);
      this.delayed += count;
    }
    this.last = sample;
    this.recent.push(sample);
    if (this.recent.length > DELAY_SAMPLES) this.recent.shift();
    this.seen += 1;
    if (this.seen % this.stride !== 0) return;
    const row = this.row(sample);
    COLUMNS.forEach((name) => this.columns[name].push(row[name] ?? null));
    if (this.columns.time.length > MOST) this.thin();
  }

  // Replaces the delays so far, after some did not reach the page.
  replaceDelays(buckets) {
    this.delays = new Map(buckets);
    this.delayed = buckets.reduce((sum, [, count]) => sum + count, 0);
  }

  row(sample) {
    const before = this.recent.at(-1 - RATE_SAMPLES) ?? this.recent[0];
    const seconds = sample.t - before.t;
    const way = this.receives ? 1 : 0;
    const per = (now, then) => (seconds > 0 ? Math.max(0, now - then) / seconds : null);
    const sent = (counts) => counts.packets.repair + counts.packets.feedback_repair;
    const packets = sample.packets.sent - before.packets.sent;
    const sources = sample.packets.source - before.packets.source;
    const merged = merge(this.recent);
    const bits = (now, then) => (seconds > 0 ? 8 * per(now, then) : null);
    return {
      time: sample.t,
      goodput: bits(sample.app[way], before.app[way]),
      wire: bits(sample.wire[way], before.wire[way]),
      p50: quantile(merged, 0.5), p95: quantile(merged, 0.95), p99: quantile(merged, 0.99),
      loss: sample.loss, dropped: packets > 0 ? Math.max(0, sample.dropped.packets - before.dropped.packets) / packets : null, burst: sample.burst, planned: sample.planned,
      sent: sources > 0 ? (sent(sample) - sent(before)) / sources : null,
      rtt: sample.rtt_ms[0], least: sample.rtt_ms[1], queue: sample.queue_ms,
      window: sample.window, flight: sample.in_flight, pacing: sample.pacing_bps, streams: sample.streams,
    };
  }

  // Leaves out every second row.
  thin() {
    for (const name of COLUMNS) this.columns[name] = this.columns[name].filter((_, index) => index % 2 === 1);
    this.stride *= 2;
  }

  // The columns `names` from the last `seconds` (0: all), with at most about `most` rows: of each group the
  // row with the largest value of the first figure stays, so that peaks are seen.
  window(names, seconds, most) {
    const time = this.columns.time;
    let from = 0;
    if (seconds > 0 && time.length > 0) {
      from = lowerBound(time, time.at(-1) - seconds);
    }
    const step = Math.ceil((time.length - from) / most);
    if (step <= 1) return ["time", ...names].map((name) => this.columns[name].slice(from));
    const rows = [];
    const first = this.columns[names.at(-1)];
    for (let start = from - (from % step); start < time.length; start += step) {
      let peak = Math.max(start, from);
      for (let index = peak; index < Math.min(start + step, time.length); index += 1) {
        if ((first[index] ?? -1) > (first[peak] ?? -1)) peak = index;
      }
      rows.push(peak);
    }
    return ["time", ...names].map((name) => rows.map((row) => this.columns[name][row]));
  }

  // Delays so far as a distribution: milliseconds, and the fraction of symbols above them.
  distribution() {
    const sorted = [...this.delays].sort(([a], [b]) => a - b);
    let left = this.delayed;
    const upper = [], above = [];
    for (const [bound, count] of sorted) {
      left -= count;
      upper.push(bound / 1000);
      above.push(left / this.delayed);
    }
    return [upper, above];
  }

  quantile(fraction) {
    return quantile([...this.delays].sort(([a], [b]) => a - b), fraction);
  }
}

// The first index whose value is at least `wanted`, in ascending values.
export function lowerBound(values, wanted, end = values.length) {
  let low = 0, high = end;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

// The delays of several samples, ascending.
function merge(samples) {
  const counts = new Map();
  for (const sample of samples) {
    for (const [upper, count] of sample.delay) counts.set(upper, (counts.get(upper) ?? 0) + count);
  }
  return [...counts].sort(([a], [b]) => a - b);
}

// The delay in milliseconds that a fraction of all does not exceed; null without any.
function quantile(sorted, fraction) {
  const total = sorted.reduce((sum, [, count]) => sum + count, 0);
  if (total === 0) return null;
  const rank = Math.max(1, Math.ceil(fraction * total));
  let below = 0;
  for (const [upper, count] of sorted) {
    below += count;
    if (below >= rank) return upper / 1000;
  }
  return null;
}
