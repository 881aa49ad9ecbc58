/** The Encode page: the text, one tokenizer or two side by side, and links to the view. */

import * as api from "./api.js";
import { commonTokens } from "./encoding.js";
import { byId, counted, debounce, formatBytes, formatCount, make, onFile } from "./elements.js";
import { announce } from "./notices.js";
import { Pane } from "./pane.js";
import { makeFragment } from "./permalink.js";
import { fillChoice, served } from "./served.js";

const SAMPLES = {
  Hello: "Hello, world! Tokenizers split text into pieces that a model has numbers for.",
  Emoji: "A family 👩‍👩‍👧, a flag 🇸🇪, thumbs up 👍🏽 and a 🦜 that few vocabularies know.",
  Languages: "The quick brown fox. Der schnelle Fuchs läuft. Быстрая лиса. 敏捷的狐狸跳过懒狗。 素早い狐。 빠른 여우.",
  Code: "def fib(n: int) -> int:\n    \"\"\"The n-th Fibonacci number.\"\"\"\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n",
  Numbers: "3.14159 1234567890 2026-11-22T10:45:00Z 0xDEADBEEF 1,000,000 €19.99\tA1:B2",
  Special: "One document ends here.<|endoftext|>And another one begins.",
};
const MOST_BYTES = 4_000_000;
const LARGE_CHARACTERS = 50_000;
const SHOWN_CHARACTERS = 5_000;
const utf8 = new TextEncoder();

export class EncodeView {
  /** `chosen(pane, index, byKey)` is called when a token is selected. */
  constructor(chosen) {
    this.chosen = chosen;
    this.box = byId("text");
    this.held = null; // a text too large for the text box: laying out 1 MB takes half a second
    this.special = byId("special");
    this.panes = [this.#makePane("First tokenizer")];
    byId("panes").append(this.panes[0].element);
    const wait = () => (this.text.length > LARGE_CHARACTERS ? 300 : 80);
    const encodeSoon = debounce(() => this.encode(), wait);
    this.box.addEventListener("input", () => {
      this.#forgetLink();
      encodeSoon();
    });
    this.box.addEventListener("paste", (event) => this.#paste(event));
    byId("held-edit").addEventListener("click", () => this.#put(this.text, false));
    byId("held-clear").addEventListener("click", () => this.use(""));
    this.special.addEventListener("change", () => this.encode());
    this.#startSamples();
    this.#startFiles();
    byId("compare").addEventListener("click", () => {
      this.#forgetLink();
      this.compare(this.panes.length === 1);
    });
    byId("link").addEventListener("click", () => this.#copyLink());
    this.sayCounts = debounce(() => this.#sayCounts(), () => 600);
    served.addEventListener("listed", () => this.panes.forEach((pane) => fillChoice(pane.select)));
    served.addEventListener("swapped", ({ detail }) => detail.before && this.#onSwap());
  }

  #makePane(label) {
    return new Pane(label, {
      hovered: (span, from) => this.#light(span, from),
      chosen: this.chosen,
      retargeted: () => {
        this.#forgetLink();
        this.encode();
      },
      encoded: (pane) => this.#onEncoded(pane),
    });
  }

  get text() {
    return this.held ?? this.box.value;
  }

  /** Encode `text` and show it in the text box; of a large text, show the beginning. */
  use(text) {
    this.#put(text);
    this.#forgetLink();
    return this.encode();
  }

  #put(text, isLarge = text.length > LARGE_CHARACTERS) {
    this.held = isLarge ? text : null;
    this.box.value = isLarge ? text.slice(0, SHOWN_CHARACTERS) : text;
    this.box.readOnly = isLarge;
    byId("held").hidden = !isLarge;
  }

  /** Handle a large paste without the text box; it replaces the selection as usual. */
  #paste(event) {
    const pasted = event.clipboardData.getData("text/plain");
    if (this.held === null && pasted.length <= LARGE_CHARACTERS) return;
    event.preventDefault();
    const { value, selectionStart, selectionEnd } = this.box;
    this.use(this.held === null ? value.slice(0, selectionStart) + pasted + value.slice(selectionEnd) : pasted);
  }

  /** Encode the current text with every pane's tokenizer. */
  async encode() {
    const { text } = this;
    const nBytes = utf8.encode(text).length;
    byId("text-figures").replaceChildren(
      ...boldNumber(countCharacters(text), "character"), " ", ...boldNumber(nBytes, "byte"));
    if (nBytes > MOST_BYTES) {
      announce(`The page takes up to ${formatBytes(MOST_BYTES)}. Longer texts: POST /encode_stream, ` +
        "or tokenizer encode on the command line.", "bad");
      return;
    }
    await Promise.all(this.panes.map((pane) => pane.encode(text, this.special.value)));
  }

  /** Show one tokenizer or two side by side; `second` names the second one. */
  compare(isOn, second) {
    byId("compare").setAttribute("aria-pressed", isOn);
    byId("panes").classList.toggle("two", isOn);
    if (!isOn) {
      this.panes.splice(1).forEach((pane) => pane.element.remove());
      this.#onEncoded();
      return undefined;
    }
    if (this.panes.length === 1) {
      this.panes.push(this.#makePane("Second tokenizer"));
      byId("panes").append(this.panes[1].element);
    }
    fillChoice(this.panes[1].select, second ?? this.#another());
    return this.panes[1].encode(this.text, this.special.value);
  }

  /** Choose a version to compare with: one of another name if possible, else any other. */
  #another() {
    const own = this.panes[0].tokenizer || served.active.version || "";
    const all = served.versions.map(({ name, version }) => `${name}@${version}`);
    const others = all.filter((one) => !one.startsWith(`${own.split("@")[0]}@`));
    const known = others.find((one) => one.startsWith("gpt2@")); // the one that people have seen elsewhere
    return known ?? others[0] ?? all.find((one) => one !== own) ?? "";
  }

  #onSwap() {
    if (this.panes.some((pane) => pane.tokenizer === "")) this.encode();
  }

  #onEncoded(pane) {
    this.sayCounts();
    if (pane?.tokenizer === "" && pane.encoding) served.note(pane.encoding); // the response shows that a swap happened
    const [one, other] = this.panes.map((pane) => pane.encoding);
    const line = byId("comparison");
    line.hidden = !(one && other && one.length);
    if (!line.hidden) line.replaceChildren(...compareInWords(...this.panes));
  }

  #sayCounts() {
    const said = this.panes.filter((pane) => pane.encoding).map(({ encoding }) => {
      const perToken = encoding.length ? `, ${(encoding.nBytes / encoding.length).toFixed(2)} bytes per token` : "";
      return `${counted(encoding.length, "token")}${perToken}`;
    });
    byId("counts").textContent = said.join("; second tokenizer: ");
  }

  /** Highlight the same bytes everywhere, and scroll the lists that are not under the pointer. */
  #light(span, from) {
    for (const pane of this.panes) pane.light(span, span !== null && pane !== from);
    // In the hovered pane, ids follow the pieces and pieces follow the ids.
    if (span) from.light(span, true);
  }

  #startSamples() {
    for (const [name, text] of Object.entries(SAMPLES)) {
      const sample = { type: "button", class: "sample", textContent: name, onclick: () => this.use(text) };
      byId("samples").append(make("button", sample));
    }
  }

  #startFiles() {
    const read = async (file) => {
      if (!file) return;
      if (file.size > MOST_BYTES) {
        announce(`${file.name} has ${formatBytes(file.size)}; the page takes up to ` +
          `${formatBytes(MOST_BYTES)}. On the command line: tokenizer encode FILE.`, "bad");
        return;
      }
      try {
        this.use(new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer()));
      } catch {
        announce(`${file.name} is not UTF-8 text; convert it first, for instance with iconv.`, "bad");
      }
    };
    onFile(byId("file"), this.box, read);
  }

  /** The view as link state. It names versions, so that the link shows the same after a swap. */
  get view() {
    const [a, b] = this.panes.map((pane) => pane.encoding?.version ?? pane.tokenizer);
    return { text: this.text, special: this.special.value === "all" ? "" : this.special.value, a, b };
  }

  /** Show two tokenizers if two are published. */
  async compareAtStart() {
    await served.list();
    if (this.#another()) await this.compare(true);
  }

  /** Restore the view from link state. */
  async restore({ text, special, a, b }) {
    if (text !== undefined) this.#put(text);
    if (["all", "none", "forbid"].includes(special)) this.special.value = special;
    fillChoice(this.panes[0].select, a ?? "");
    if (b || this.panes.length > 1) this.compare(Boolean(b), b);
    await this.encode();
  }

  async #copyLink() {
    let fragment;
    try {
      fragment = await makeFragment(this.view);
    } catch (error) {
      announce(error.message, "bad");
      return;
    }
    history.replaceState(null, "", `#${fragment}`);
    try {
      await navigator.clipboard.writeText(location.href);
      announce("Link copied. Its text follows the #, which browsers never send to a server.");
    } catch {
      announce("The page address is now the link; copy it from the address bar.");
    }
  }

  /** Clear the link from the address once the view has changed. */
  #forgetLink() {
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  }
}

function boldNumber(n, noun) {
  const [number, word] = counted(n, noun).split(" ");
  return [make("b", { textContent: number }), ` ${word}`];
}

/** Count code points, as the service counts characters. */
function countCharacters(text) {
  let n = text.length;
  for (let index = 0; index < text.length; index++) {
    const unit = text.charCodeAt(index);
    if (unit >= 0xd800 && unit < 0xdc00) n--;
  }
  return n;
}

/** The verdict: "starter: 94 tokens, gpt2: 118 (+26%)", and what both have in common. */
function compareInWords(first, second) {
  const [one, other] = [first.encoding, second.encoding];
  const common = commonTokens(one, other);
  const percentCommon = Math.round((100 * common) / one.length);
  const share = common === null ? "" : ` ${percentCommon}% of the first one's tokens also occur in the second.`;
  const percent = (100 * (other.length - one.length)) / one.length;
  const shown = Math.abs(percent).toFixed(Math.abs(percent) < 10 ? 1 : 0);
  const difference = other.length === one.length ? "the same number" : `${percent < 0 ? "−" : "+"}${shown}%`;
  const verdict = `${first.title}: ${counted(one.length, "token")}, ` +
    `${second.title}: ${formatCount(other.length)} (${difference}).`;
  return [make("b", { textContent: verdict }), share];
}
