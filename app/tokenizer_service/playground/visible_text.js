/**
 * Make every byte of a token visible: white space and invisible characters as symbols, partial
 * characters as bytes.
 */

import { characterLength, hexOf, textOf } from "./encoding.js";
import { make } from "./elements.js";

const SYMBOLS = new Map([
  [" ", ["·", "space"]], ["\t", ["→", "tab"]], ["\n", ["⏎", "newline"]], ["\r", ["␍", "carriage return"]],
  ["\u00a0", ["⍽", "no-break space"]], ["\u200b", ["ZWSP", "zero-width space"]],
  ["\u200c", ["ZWNJ", "zero-width non-joiner"]], ["\u200d", ["ZWJ", "zero-width joiner"]],
  ["\ufe0e", ["VS15", "text presentation"]], ["\ufe0f", ["VS16", "emoji presentation"]],
  ["\ufeff", ["BOM", "byte order mark"]], ["\u3000", ["□", "ideographic space"]], ["\0", ["NUL", "null"]],
]);
const MARKED = /[\p{Z}\p{C}\ufe0e\ufe0f]/u;

export const codePointOf = (character) =>
  `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** Symbol and name of an invisible character; null for all others. */
function symbolOf(character) {
  if (SYMBOLS.has(character)) return SYMBOLS.get(character);
  return MARKED.test(character) ? [codePointOf(character), codePointOf(character)] : null;
}

const nameOf = (character) => symbolOf(character)?.[1] ?? character;

/**
 * The parts of a token in order: {text}, {symbol, name} and {bytes, offset}. `offset` is the offset in
 * the token of bytes that belong to a partial character or to none.
 */
export function partsOf(bytes) {
  const whole = textOf(bytes);
  if (whole !== null) return [...textParts(whole)];
  const parts = [];
  let offset = 0;
  while (offset < bytes.length) {
    const start = offset;
    let text = "";
    for (;;) {
      const length = characterLength(bytes[offset] ?? 0x80);
      const isWhole = length > 0 && offset + length <= bytes.length;
      const character = isWhole ? textOf(bytes.subarray(offset, offset + length)) : null;
      if (character === null) break;
      text += character;
      offset += length;
    }
    if (text) parts.push(...textParts(text));
    else {
      offset++;
      while (offset < bytes.length && (bytes[offset] & 0xc0) === 0x80) offset++;
      parts.push({ bytes: bytes.subarray(start, offset), offset: start });
    }
  }
  return parts;
}

function* textParts(text) {
  let plain = "";
  for (const character of MARKED.test(text) ? text : [text]) {
    const symbol = character.length <= 2 ? symbolOf(character) : null;
    if (symbol === null) {
      plain += character;
      continue;
    }
    if (plain) yield { text: plain };
    plain = "";
    yield { symbol: symbol[0], name: symbol[1] };
  }
  if (plain) yield { text: plain };
}

/**
 * Append the visible parts of a token to `element`; a newline also breaks the line. `characterOf(part)`
 * names the character that partial bytes belong to, if known.
 */
export function showParts(element, parts, characterOf = () => null) {
  if (!parts.length) element.append(make("span", { class: "sign", textContent: "empty" }));
  for (const part of parts) {
    if (part.text !== undefined) {
      // A combining mark alone would attach to the previous token.
      element.append(/^\p{M}/u.test(part.text) ? `◌${part.text}` : part.text);
    } else if (part.symbol !== undefined) {
      const isWord = part.symbol.length > 1;
      element.append(make("span", { class: isWord ? "sign word" : "sign", textContent: part.symbol }));
      if (part.symbol === "⏎") element.append(make("br"));
    } else {
      const character = characterOf(part);
      const whole = character === null ? "" : make("small", { textContent: symbolOf(character)?.[0] ?? character });
      element.append(make("span", { class: "raw" }, hexOf(part.bytes), whole));
    }
  }
}

/** The same in words, for screen readers. */
export function describeParts(parts, characterOf = () => null) {
  const words = parts.map((part) => {
    if (part.text !== undefined) return part.text;
    if (part.symbol !== undefined) return part.name;
    const character = characterOf(part);
    return `bytes ${hexOf(part.bytes)}${character === null ? "" : ` of ${nameOf(character)}`}`;
  });
  return words.join(" ") || "empty";
}

/** Make `characterOf` for a token of a text. */
export const inText = (encoding, index) => (part) =>
  encoding.characterAt(encoding.start(index) + part.offset)?.text ?? null;

const graphemes = new Intl.Segmenter("en", { granularity: "grapheme" });
const AROUND_BYTES = 80;

/**
 * Describe in sentences the characters that the token at `index` splits: code points by their bytes,
 * and grapheme clusters (a family, a flag) by their code points.
 */
export function brokenCharacters(encoding, index) {
  const [start, end] = encoding.span(index);
  const found = [];
  for (const part of partsOf(encoding.bytesOf(index))) {
    if (part.bytes === undefined) continue;
    const character = encoding.characterAt(start + part.offset);
    if (character === null) {
      found.push(`${hexOf(part.bytes)}: part of no character; these bytes are not UTF-8 here`);
      continue;
    }
    const n = character.end - character.start;
    const first = start + part.offset - character.start + 1;
    const last = first + part.bytes.length - 1;
    const which = first === last ? `byte ${first}` : `bytes ${first} to ${last}`;
    found.push(`${hexOf(part.bytes)}: ${which} of the ${n} of ${nameOf(character.text)} (${codePointOf(character.text)})`);
  }
  const cluster = found.length ? null : brokenCluster(encoding, start, end);
  return cluster === null ? found : [...found, cluster];
}

function brokenCluster(encoding, start, end) {
  let from = Math.max(0, start - AROUND_BYTES);
  while (from > 0 && (encoding.slice(from, from + 1)[0] & 0xc0) === 0x80) from--;
  const text = new TextDecoder().decode(encoding.slice(from, end + AROUND_BYTES));
  const utf8 = new TextEncoder();
  let offset = from;
  for (const { segment } of graphemes.segment(text)) {
    const next = offset + utf8.encode(segment).length;
    const isInside = offset < end && next > start;
    if (isInside && (offset < start || next > end) && !segment.includes("\ufffd") && segment !== "\r\n") {
      const points = [...segment].map(codePointOf).join(" ");
      return `part of ${segment}, which reads as one character (${points})`;
    }
    offset = next;
  }
  return null;
}
