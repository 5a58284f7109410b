// Bytes of records: as text, as digits, as a dump, with what was searched for marked.

import { make } from "./format.js";

export const decode = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

// wanted are the bytes that a search names: text, or hex:0d0a. null: none, or not readable.
export function wanted(contains) {
  if (!contains) return null;
  if (!contains.startsWith("hex:")) return new TextEncoder().encode(contains);
  const digits = contains.slice(4).replaceAll(" ", "");
  return digits.length % 2 || /[^0-9a-f]/i.test(digits) ? null : Uint8Array.from(digits.match(/../g) ?? [], (d) => parseInt(d, 16));
}

const hex = (b) => [...b].map((n) => n.toString(16).padStart(2, "0")).join(" ");

// readable shows control characters by their pictures: a carriage return is ␍.
const readable = (b) => new TextDecoder().decode(b).replace(/[\u0000-\u001f\u007f]/g, (c) => c === "\u007f" ? "␡" : String.fromCharCode(0x2400 + c.charCodeAt(0)));

const shown = 96; // bytes in one line

function find(b, want) {
  for (let i = 0; want?.length && i + want.length <= b.length; i++) {
    if (want.every((n, j) => b[i + j] === n)) return i;
  }
  return -1;
}

// line shows the bytes in one line, from a little before what was searched for.
export function line(b, asText, want) {
  const at = find(b, want), from = at > shown / 2 ? at - 8 : 0, to = Math.min(b.length, from + shown);
  const write = asText ? readable : hex, gap = asText ? "" : " ";
  const code = make("code", "bytes");
  if (from > 0) code.append("… ");
  if (at < 0) code.append(write(b.subarray(from, to)));
  else code.append(write(b.subarray(from, at)), at > from ? gap : "", make("mark", "", write(b.subarray(at, at + want.length))), gap, write(b.subarray(at + want.length, Math.max(to, at + want.length))));
  if (to < b.length) code.append(" …");
  return code;
}

// dump shows all bytes, sixteen a line: offset, digits, characters.
export function dump(b) {
  const lines = [];
  for (let i = 0; i < b.length; i += 16) {
    const part = b.subarray(i, i + 16);
    const text = [...part].map((n) => n >= 0x20 && n < 0x7f ? String.fromCharCode(n) : "·").join("");
    lines.push(`${i.toString(16).padStart(4, "0")}  ${hex(part).padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}
