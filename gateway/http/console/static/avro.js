// Values in Avro, where a schema is known: one that the viewer gave for a topic. It is kept in this browser alone.

const KEPT = "tierlog.avro.";
const MOST_ITEMS = 100_000;
const DEEPEST = 100;
const SIMPLE = new Set(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]);

// Returns {schema, skip}: the schema's text, and how many bytes stand before each value. Null where none is known.
export const known = (topic) => JSON.parse(localStorage.getItem(KEPT + topic) ?? "null");

export function keep(topic, given) {
  if (!given) return localStorage.removeItem(KEPT + topic);
  decoder(given); // It must be a schema.
  return localStorage.setItem(KEPT + topic, JSON.stringify(given));
}

export const decoderOf = (topic) => (known(topic) ? decoder(known(topic)) : undefined);

// Returns a function from the bytes of a value to what it holds; it throws if they do not fit the schema to the last byte.
export function decoder({ schema, skip }) {
  const names = new Map();
  const type = JSON.parse(schema);
  name(type, "", names);
  return (bytes) => {
    const from = new Reader(bytes, skip);
    const value = read(type, from, names, "", 0);
    if (from.at !== bytes.length) throw new Error(`${bytes.length - from.at} bytes are left over`);
    return value;
  };
}

const full = (given, space) => (given.includes(".") || !space ? given : `${space}.${given}`);
const spaceOf = (type, space) => (type.name?.includes(".") ? type.name.slice(0, type.name.lastIndexOf(".")) : type.namespace ?? space);

function name(type, space, names) {
  if (Array.isArray(type)) return type.forEach((each) => name(each, space, names));
  if (typeof type === "string") return undefined;
  if (type === null || typeof type !== "object" || type.type === undefined) throw new Error("This is not an Avro schema.");
  const inner = spaceOf(type, space);
  if (type.name) names.set(full(type.name, inner), [type, inner]);
  if (typeof type.type === "object") name(type.type, inner, names);
  for (const field of type.fields ?? []) name(field.type, inner, names);
  if (type.items) name(type.items, inner, names);
  if (type.values) name(type.values, inner, names);
  return undefined;
}

class Reader {
  constructor(bytes, at) {
    this.bytes = bytes;
    this.at = at;
    this.items = 0;
  }

  take(size) {
    if (size < 0 || this.at + size > this.bytes.length) throw new Error("the value ends too early");
    this.at += size;
    return this.bytes.subarray(this.at - size, this.at);
  }

  long() {
    let found = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const [byte] = this.take(1);
      found |= BigInt(byte & 127) << shift;
      if (byte < 128) {
        const value = BigInt.asIntN(64, (found >> 1n) ^ -(found & 1n));
        return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
      }
    }
    throw new Error("a number is too long");
  }

  float(size) {
    const part = this.take(size);
    const view = new DataView(part.buffer, part.byteOffset, size);
    return size === 4 ? view.getFloat32(0, true) : view.getFloat64(0, true);
  }

  // Arrays and maps come in blocks; one with its size in bytes has a negative count.
  * blocks() {
    for (let count = this.long(); count !== 0; count = this.long()) {
      if (count < 0) { this.long(); count = -count; }
      this.items += count;
      if (!(this.items <= MOST_ITEMS)) throw new Error("it has too many items");
      for (let each = 0; each < count; each += 1) yield each;
    }
  }
}

const hex = (bytes) => [...bytes].map((each) => each.toString(16).padStart(2, "0")).join("");
const text = (from) => new TextDecoder("utf-8", { fatal: true }).decode(from.take(from.long()));

function chosen(choices, from) {
  const choice = choices[from.long()];
  if (choice === undefined) throw new Error("a choice is not in the schema");
  return choice;
}

function read(type, from, names, space, depth) {
  if (depth > DEEPEST) throw new Error("it is nested too deeply");
  const inside = (other, within = space) => read(other, from, names, within, depth + 1);
  if (Array.isArray(type)) return inside(chosen(type, from));
  if (typeof type === "string") {
    if (SIMPLE.has(type)) return simple(type, from);
    const [named, within] = names.get(full(type, space)) ?? names.get(type) ?? [];
    if (!named) throw new Error(`the schema has no type ${type}`);
    return inside(named, within);
  }
  const inner = spaceOf(type, space);
  if (type.type === "record" || type.type === "error") return Object.fromEntries(type.fields.map((field) => [field.name, inside(field.type, inner)]));
  if (type.type === "enum") return chosen(type.symbols, from);
  if (type.type === "fixed") return hex(from.take(type.size));
  if (type.type === "array") return Array.from(from.blocks(), () => inside(type.items, inner));
  if (type.type === "map") return Object.fromEntries(Array.from(from.blocks(), () => [text(from), inside(type.values, inner)]));
  return inside(type.type, inner);
}

function simple(type, from) {
  if (type === "null") return null;
  if (type === "boolean") return from.take(1)[0] === 1;
  if (type === "int" || type === "long") return from.long();
  if (type === "float") return from.float(4);
  if (type === "double") return from.float(8);
  return type === "string" ? text(from) : hex(from.take(from.long()));
}
