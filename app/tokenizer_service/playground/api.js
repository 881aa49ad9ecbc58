/**
 * The service's routes as functions. Addresses are relative to the page, so that it also works under
 * a proxy's path prefix.
 */

const IDS = "application/octet-stream; dtype=u32";
const BATCH = "application/octet-stream; dtype=u32; layout=batch";
const MOST_IN_A_BATCH = 65_536;
const KEPT = "tokenizer-key";

/** An error document of the service: its title, the remedy in `detail`, a stable `code`. */
export class ServiceProblem extends Error {
  constructor(status, document) {
    super(document.detail ?? document.error?.message ?? document.title ?? `The service answered ${status}.`);
    this.status = status;
    this.code = document.code ?? "";
    this.errors = document.errors ?? [];
  }
}

/** The key, in memory and, on request, in this tab's session. Events: `changed`, `wanted`. */
class Key extends EventTarget {
  value = sessionStorage.getItem(KEPT) ?? "";

  use(value, isKept) {
    this.value = value;
    if (isKept && value) sessionStorage.setItem(KEPT, value);
    else sessionStorage.removeItem(KEPT);
    this.dispatchEvent(new Event("changed"));
  }

  get isKept() {
    return sessionStorage.getItem(KEPT) !== null;
  }
}

export const key = new Key();

function headersOf(more) {
  return key.value ? { "X-API-Key": key.value, ...more } : { ...more };
}

/** The service's response. Throws ServiceProblem, with a default message when the body has none. */
async function ask(path, { method = "GET", json, body, headers = {}, signal, accept = [] } = {}) {
  if (json !== undefined) {
    body = JSON.stringify(json);
    headers = { "Content-Type": "application/json", ...headers };
  }
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), {
      method, body, signal, headers: headersOf(headers), referrerPolicy: "no-referrer", cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ServiceProblem(0, {
      code: "unreachable",
      detail: "The service cannot be reached. It may be restarting; this page continues when it is back.",
    });
  }
  if (response.ok || accept.includes(response.status)) return response;
  const document_ = await response.json().catch(() => ({}));
  if (response.status === 401) key.dispatchEvent(new Event("wanted"));
  throw new ServiceProblem(response.status, document_);
}

const asJson = async (response) => (await response).json();

/** The name@version of the tokenizer that responded, and its digest. */
function identityOf(response) {
  return {
    version: response.headers.get("Tokenizer-Version"),
    digest: response.headers.get("Tokenizer-Digest"),
  };
}

/** The special-token policy, in the service's format. */
function policyOf(special) {
  return special === "forbid"
    ? { allowed_special: "none", disallowed_special: "all" }
    : { allowed_special: special };
}

/** Encode `text` to binary ids: 1 MB of text gives 1 MB of ids without parsing JSON. */
export async function encode(text, { tokenizer, special, signal }) {
  const json = { text, ...policyOf(special), ...(tokenizer ? { tokenizer } : {}) };
  const response = await ask("encode", { method: "POST", json, signal, headers: { Accept: IDS } });
  return { ids: new Uint32Array(await response.arrayBuffer()), ...identityOf(response) };
}

/** Encode messages by a chat template: {tokens, count, text, spans: [{role, tokens}]} and who did. */
export async function encodeChat(messages, { tokenizer, template, addPrompt, signal }) {
  const json = {
    messages, add_generation_prompt: addPrompt, return: ["ids", "text", "spans"],
    ...(template ? { chat_template: template } : {}), ...(tokenizer ? { tokenizer } : {}),
  };
  const response = await ask("chat/encode", { method: "POST", json, signal });
  return { ...(await response.json()), ...identityOf(response) };
}

/** The names of the chat templates of `name@version`. */
export async function chatTemplates(full) {
  const path = `tokenizers/${full.split("@").map(encodeURIComponent).join("/")}/chat_templates.json`;
  return Object.keys((await asJson(ask(path))).templates);
}

/** The ids of the special tokens. */
export async function specialIds(tokenizer) {
  const described = await asJson(ask(`tokenizer_info?tokenizer=${encodeURIComponent(tokenizer)}`));
  const special = new Set(described.additional_special_tokens);
  const added = Object.entries(described.added_tokens_decoder);
  return new Set(added.filter(([, token]) => special.has(token)).map(([id]) => Number(id)));
}

/** The number of tokens of each text. */
export async function countEach(text, tokenizer) {
  return (await asJson(ask("count", { method: "POST", json: { text, tokenizer } }))).count;
}

/** Decode each of `ids` separately, in one batch, and call `found(id, bytes)` for each. */
export async function decodeEach(ids, { tokenizer, signal, found }) {
  for (let start = 0; start < ids.length; start += MOST_IN_A_BATCH) {
    const batch = ids.slice(start, start + MOST_IN_A_BATCH);
    const body = new Uint32Array(1 + 3 * batch.length);
    body[0] = batch.length;
    batch.forEach((id, index) => {
      body[1 + 2 * index] = 1; // a u64 whose upper half stays 0
      body[1 + 2 * batch.length + index] = id;
    });
    const response = await ask(`decode?tokenizer=${encodeURIComponent(tokenizer)}`, {
      method: "POST", body, signal, headers: { "Content-Type": BATCH, Accept: "application/octet-stream" },
    });
    const answer = await response.arrayBuffer();
    const lengths = new Uint32Array(answer, 4, 2 * batch.length);
    let offset = 4 + 8 * batch.length;
    batch.forEach((id, index) => {
      found(id, new Uint8Array(answer, offset, lengths[2 * index]));
      offset += lengths[2 * index];
    });
  }
}

export async function decode(tokens, { tokenizer, skipSpecial, signal }) {
  const json = { tokens, skip_special_tokens: skipSpecial, ...(tokenizer ? { tokenizer } : {}) };
  const response = await ask("decode", { method: "POST", json, signal });
  return { ...(await response.json()), ...identityOf(response) };
}

export const verify = (tokens, tokenizer, signal) =>
  asJson(ask("verify", { method: "POST", json: { tokens, tokenizer }, signal }));

export const token = (id, tokenizer, signal) =>
  asJson(ask(`vocab/${id}?tokenizer=${encodeURIComponent(tokenizer)}`, { signal }));

/** The merges of up to `MOST_MERGED` tokens: {merges: [[token, left, right, size]], base_size, full_size}. */
export const merges = (tokens, tokenizer, signal) =>
  asJson(ask("merges", { method: "POST", json: { tokens, tokenizer }, signal }));
export const MOST_MERGED = 4096;

export const info = () => asJson(ask("info"));
export const readiness = () => asJson(ask("readyz"));
export const tokenizers = () => asJson(ask("tokenizers"));
export const versionsOf = (name) => asJson(ask(`tokenizers/${encodeURIComponent(name)}`));

let activeTag = null;

/** The active tokenizer: {version, digest, previous}. An unchanged one costs a 304, without the last. */
export async function active() {
  const headers = activeTag ? { "If-None-Match": activeTag } : {};
  const response = await ask("tokenizers/active", { headers, accept: [304] });
  activeTag = response.headers.get("ETag");
  const { previous } = response.status === 304 ? {} : await response.json();
  return { ...identityOf(response), previous: previous && `${previous.name}@${previous.version}` };
}

/** Promote `tokenizer`, unless another was promoted since `presentDigest`. */
export const promote = (tokenizer, presentDigest) =>
  asJson(ask("tokenizers/active", {
    method: "PUT",
    json: { tokenizer },
    headers: presentDigest ? { "If-Match": `"${presentDigest}"` } : {},
  }));

/** Throws ServiceProblem if the service does not know this key; 403 is one that only reads. */
export const checkKey = (value) => ask("train?limit=1", { headers: { "X-API-Key": value }, accept: [403] });

/** Publish `files` as a version of `name`: {name, version, vocab_size}. */
export function importVocabulary(name, files, { pattern, specials, noSpecial }) {
  const form = new FormData();
  for (const file of files) {
    form.append(file.name.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+/, ""), file);
  }
  const query = new URLSearchParams(specials.map((special) => ["special", special]));
  if (pattern) query.set("pattern", pattern);
  if (noSpecial) query.set("no_special", "true");
  return asJson(ask(`tokenizers/${encodeURIComponent(name)}?${query}`, { method: "POST", body: form }));
}

export const corpora = () => asJson(ask("corpora"));
export const removeCorpus = (id) => ask(`corpora/${encodeURIComponent(id)}`, { method: "DELETE" });
export const train = (json) => asJson(ask("train", { method: "POST", json }));
export const jobs = () => asJson(ask("train?limit=10"));
export const cancel = (id) => asJson(ask(`train/${encodeURIComponent(id)}`, { method: "DELETE" }));

/**
 * Upload `file` as a corpus. Uses XMLHttpRequest because fetch does not report upload progress.
 */
export function upload(id, file, { progress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", new URL(`corpora/${encodeURIComponent(id)}`, document.baseURI));
    for (const [name, value] of Object.entries(headersOf({ "Content-Type": "application/octet-stream" }))) {
      request.setRequestHeader(name, value);
    }
    request.responseType = "json";
    request.upload.onprogress = (event) => progress(event.loaded, event.total);
    request.onload = () => {
      const answer = request.response ?? {}; // null if it is no JSON
      if (request.status < 300) return resolve(answer);
      if (request.status === 401) key.dispatchEvent(new Event("wanted"));
      return reject(new ServiceProblem(request.status, answer));
    };
    request.onerror = () => reject(new ServiceProblem(0, {
      code: "unreachable", detail: "The upload was interrupted. The previous corpus is unchanged; send the file again.",
    }));
    request.onabort = () => reject(new DOMException("stopped", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/**
 * Yield a job's documents until its final state. EventSource cannot send a key, so this reads the
 * stream itself and resumes it after an interruption.
 */
export async function* events(id, signal) {
  let seen = "";
  for (;;) {
    const headers = { Accept: "text/event-stream", ...(seen ? { "Last-Event-ID": seen } : {}) };
    try {
      const response = await ask(`train/${encodeURIComponent(id)}/events`, { headers, signal });
      if (response.status === 204) return;
      for await (const event of readEvents(response.body)) {
        if (event.id) seen = event.id;
        const view = JSON.parse(event.data);
        yield view;
        if (isFinal(view)) return;
      }
    } catch (error) {
      const comesBack = !signal.aborted && (!(error instanceof ServiceProblem) || [0, 503].includes(error.status));
      if (!comesBack) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

export const isFinal = (view) => ["live", "succeeded", "failed", "cancelled"].includes(view.state);

/** Parse server-sent events with `id` and one-line `data` fields. */
async function* readEvents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      waiting += value;
      const blocks = waiting.split("\n\n");
      waiting = blocks.pop();
      for (const block of blocks) {
        const fields = Object.fromEntries(block.split("\n").map((line) => {
          const colon = line.indexOf(":");
          return [line.slice(0, colon), line.slice(colon + 1).trimStart()];
        }));
        if (fields.data) yield fields;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
