/**
 * Ids with their bytes: the position of each token and the characters it contains part of. Pure,
 * except that it loads the bytes of ids it has not seen before.
 */

import { MOST_MERGED, decodeEach, merges as loadMerges } from "./api.js";

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Decode `bytes`, or return null if they are not UTF-8. */
export function textOf(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return null;
  }
}

export const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0").toUpperCase()).join(" ");

const KEPT_VERSIONS = 6;
const vocabularies = new Map(); // digest -> Map of id -> bytes

function vocabularyOf(digest) {
  const known = vocabularies.get(digest) ?? new Map();
  vocabularies.delete(digest);
  vocabularies.set(digest, known); // keep insertion order = order of last use
  if (vocabularies.size > KEPT_VERSIONS) vocabularies.delete(vocabularies.keys().next().value);
  return known;
}

/** Request the bytes of those of `ids` that `vocabulary` lacks. */
function loadBytes(vocabulary, ids, tokenizer, signal) {
  const unseen = [...ids].filter((id) => !vocabulary.has(id));
  return decodeEach(unseen, { tokenizer, signal, found: (id, bytes) => vocabulary.set(id, bytes) });
}

/** The length in bytes of a character that starts with this byte; 0 if none does. */
export function characterLength(lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

export class Encoding {
  /** @param ids Uint32Array @param vocabulary Map of id -> bytes, with all of them */
  constructor(ids, identity, vocabulary) {
    this.ids = ids;
    this.version = identity.version;
    this.digest = identity.digest;
    this.vocabulary = vocabulary;
    this.ends = new Uint32Array(ids.length);
    let offset = 0;
    for (let index = 0; index < ids.length; index++) {
      offset += vocabulary.get(ids[index]).length;
      this.ends[index] = offset;
    }
    this.nBytes = offset;
  }

  /** Make an encoding of `ids`, requesting the bytes of unseen ids only. */
  static async load(ids, identity, signal) {
    const vocabulary = vocabularyOf(identity.digest);
    const distinct = new Set(ids);
    await loadBytes(vocabulary, distinct, identity.version, signal);
    const encoding = new Encoding(ids, identity, vocabulary);
    encoding.nDistinct = distinct.size;
    return encoding;
  }

  get length() {
    return this.ids.length;
  }

  bytesOf(index) {
    return this.vocabulary.get(this.ids[index]);
  }

  start(index) {
    return index === 0 ? 0 : this.ends[index - 1];
  }

  /** The byte range [start, end) of the token in the text. */
  span(index) {
    return [this.start(index), this.ends[index]];
  }

  /** The token that contains the byte at `offset`. */
  at(offset) {
    let [low, high] = [0, this.ends.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] > offset) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The tokens [first, last] that overlap the byte range [start, end). */
  overlapping([start, end]) {
    if (start >= end || start >= this.nBytes) return [0, -1];
    return [this.at(start), this.at(Math.min(end, this.nBytes) - 1)];
  }

  /** The bytes [start, end) of the text. */
  slice(start, end) {
    const from = Math.max(0, start);
    const to = Math.min(end, this.nBytes);
    const bytes = new Uint8Array(Math.max(0, to - from));
    if (!bytes.length) return bytes;
    for (let index = this.at(from); index < this.length && this.start(index) < to; index++) {
      const base = this.start(index);
      const own = this.bytesOf(index).subarray(Math.max(0, from - base), to - base);
      bytes.set(own, Math.max(base, from) - from);
    }
    return bytes;
  }

  /**
   * The character that contains the byte at `offset`: {start, end, text}, or null if the bytes around
   * it are not UTF-8.
   */
  characterAt(offset) {
    const around = this.slice(offset - 3, offset + 4);
    const own = Math.min(3, offset);
    for (let lead = own; lead >= 0 && lead > own - 4; lead--) {
      const length = characterLength(around[lead]);
      if (length === 0) continue;
      const text = lead + length > own ? textOf(around.subarray(lead, lead + length)) : null;
      const start = offset - own + lead;
      return text === null ? null : { start, end: start + length, text };
    }
    return null;
  }

  /**
   * This text as a vocabulary of `size` tokens encodes it, without added tokens. `merges` is a response
   * of `api.merges` for these ids; the vocabulary has the bytes of all tokens in it.
   */
  undo({ merges }, size) {
    const parts = new Map();
    for (const [made, left, right, from] of merges) if (from > size) parts.set(made, [left, right]);
    const ids = [];
    const waiting = [];
    for (const id of this.ids) {
      waiting.push(id);
      while (waiting.length) {
        const next = waiting.pop();
        const both = parts.get(next);
        if (both) waiting.push(both[1], both[0]);
        else ids.push(next);
      }
    }
    const smaller = new Encoding(Uint32Array.from(ids), this, this.vocabulary);
    smaller.nDistinct = new Set(ids).size;
    return smaller;
  }

  /** Load the merges of these ids and the bytes of what they join; null if the ids are too many. */
  async loadMerges(signal) {
    const ids = [...new Set(this.ids)];
    if (!ids.length || ids.length > MOST_MERGED) return null;
    const answer = await loadMerges(ids, this.version, signal);
    const parts = new Set(answer.merges.flatMap(([, left, right]) => [left, right]));
    await loadBytes(this.vocabulary, parts, this.version, signal);
    return answer;
  }

  /** The number of occurrences of this id. */
  occurrences(id) {
    let found = 0;
    for (const other of this.ids) if (other === id) found++;
    return found;
  }
}

/**
 * Count the tokens that two encodings share: the same byte range of the text as one token. Null if
 * their texts differ, as after a normalizer.
 */
export function commonTokens(one, other) {
  if (one.nBytes !== other.nBytes) return null;
  let [first, second, common] = [0, 0, 0];
  while (first < one.length && second < other.length) {
    const [a, b] = [one.ends[first], other.ends[second]];
    if (a === b && one.start(first) === other.start(second)) common++;
    if (a <= b) first++;
    if (b <= a) second++;
  }
  return common;
}
