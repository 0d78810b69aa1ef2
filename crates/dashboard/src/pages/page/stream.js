// Reads the channel: frames of a length (4 bytes, little-endian), a kind (1 byte) and a payload, in the body
// of one response that does not end while the job runs. `docs/dashboard.md` describes the frames.

export const HELLO = 1;
export const CONNECTION = 2;
export const SAMPLE = 3;
export const MARKS = 4;
export const NOTE = 5;
export const SUMMARY = 6;
export const END = 7;
export const DROPPED = 8;
export const DELAYS = 9;

// A frame that claims to be longer is not one of ours.
const LONGEST = 1 << 24;
const HEADER = 5;

// Calls `each(kind, payload)` for every frame; the payload is a Uint8Array at the start of its own buffer.
// Lets the browser draw between pieces, however fast they come. Returns when the response ends.
export async function read(address, each) {
  const response = await fetch(address, { cache: "no-store", credentials: "omit" });
  if (!response.ok) throw new Error(`the job answered ${response.status}`);
  const reader = response.body.getReader();
  const frames = new Frames(each);
  let breath = performance.now();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    frames.add(value);
    if (performance.now() - breath > 30) {
      await new Promise((resolve) => setTimeout(resolve));
      breath = performance.now();
    }
  }
}

// Cuts pieces into frames.
class Frames {
  constructor(each) {
    this.each = each;
    this.rest = new Uint8Array(0);
    // A long frame is filled in place, so that its pieces are copied once.
    this.open = null;
  }

  add(piece) {
    let place = 0;
    while (place < piece.length || this.open) {
      if (this.open) {
        const part = piece.subarray(place, place + this.open.payload.length - this.open.filled);
        this.open.payload.set(part, this.open.filled);
        this.open.filled += part.length;
        place += part.length;
        if (this.open.filled < this.open.payload.length) return;
        const { kind, payload } = this.open;
        this.open = null;
        this.each(kind, payload);
        continue;
      }
      const missing = HEADER - this.rest.length;
      const joined = new Uint8Array(this.rest.length + Math.min(missing, piece.length - place));
      joined.set(this.rest);
      joined.set(piece.subarray(place, place + missing), this.rest.length);
      place += joined.length - this.rest.length;
      this.rest = joined;
      if (joined.length < HEADER) return;
      const length = new DataView(joined.buffer).getUint32(0, true);
      if (length > LONGEST) throw new Error(`a frame of ${length} bytes`);
      this.open = { kind: joined[4], payload: new Uint8Array(length), filled: 0 };
      this.rest = new Uint8Array(0);
    }
  }
}

const decoder = new TextDecoder();

// The text of a frame.
export function text(payload) {
  return decoder.decode(payload);
}

// The object of a frame of JSON.
export function json(payload) {
  return JSON.parse(text(payload));
}
