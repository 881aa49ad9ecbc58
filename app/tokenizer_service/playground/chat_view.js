/** The Chat page: messages, the text that a chat template makes of them, and its tokens by role. */

import * as api from "./api.js";
import { byId, counted, debounce, make, supersede } from "./elements.js";
import { reportProblem } from "./notices.js";
import { Pane } from "./pane.js";
import { fillChoice, served } from "./served.js";

const WAIT_MILLISECONDS = 150;
const noTemplate = (name) =>
  "This tokenizer has no chat template. Choose another, or publish a version with one: " +
  `\`tokenizer import ${name} --name ${name} --chat-template FILE\` adds it, ` +
  "`tokenizer import FOLDER` takes that of a model's folder.";
const ROLES = ["system", "user", "assistant", "tool"];
const FIRST_MESSAGES = [
  { role: "system", content: "You are a helpful assistant." },
  { role: "user", content: "What is a token?" },
  { role: "assistant", content: "A piece of text that a model reads as one number." },
  { role: "user", content: "Does <|im_end|> end my turn?" },
];

export class ChatView {
  /** `chosen(pane, index)` is called when a token is selected. */
  constructor(chosen) {
    this.list = byId("messages");
    this.select = byId("chat-tokenizer");
    this.template = byId("chat-template");
    this.isOpen = false;
    this.hasTemplate = true; // until the service says otherwise
    this.roles = []; // the role of each token, null for text of the template
    this.special = new Set();
    this.pane = new Pane("Tokens of the conversation", {
      hovered: (span) => this.pane.light(span, span !== null),
      chosen,
      classOf: (encoding, index) => this.#classOf(encoding.ids[index], index),
    });
    this.pane.element.classList.add("fixed-tokenizer");
    byId("chat-pane").append(this.pane.element);
    this.soon = debounce(() => this.encode(), () => WAIT_MILLISECONDS);
    this.list.addEventListener("input", this.soon);
    this.template.addEventListener("change", this.soon);
    byId("generation-prompt").addEventListener("change", this.soon);
    byId("add-message").addEventListener("click", () => this.#add());
    this.select.addEventListener("change", () => this.#retarget());
    served.addEventListener("listed", () => fillChoice(this.select));
    served.addEventListener("swapped", () => this.isOpen && !this.select.value && this.#retarget());
    for (const message of FIRST_MESSAGES) this.list.append(this.#row(message));
  }

  /** Show the view; loads the templates of the tokenizer the first time. */
  async open() {
    if (this.isOpen) return;
    this.isOpen = true;
    fillChoice(this.select);
    await this.#retarget();
  }

  /** Render and encode the messages. */
  async encode() {
    const signal = supersede(this);
    const problem = byId("chat-problem");
    problem.className = this.hasTemplate ? "problem" : "hint";
    try {
      if (!this.hasTemplate) {
        throw new Error(noTemplate((this.select.value || served.active.version).split("@")[0]));
      }
      const answer = await api.encodeChat(this.#messages(), {
        tokenizer: this.select.value,
        template: this.template.value,
        addPrompt: byId("generation-prompt").checked,
        signal,
      });
      problem.hidden = true;
      this.roles = rolesOf(answer);
      byId("chat-text").textContent = answer.text;
      this.pane.element.hidden = false;
      await this.pane.showIds(answer.tokens, answer);
      byId("chat-counts").textContent = counted(answer.count, "token");
    } catch (error) {
      if (signal.aborted) return;
      byId("chat-text").textContent = byId("chat-counts").textContent = "";
      this.pane.element.hidden = true;
      this.#mark(error.errors?.[0]?.pointer);
      reportProblem(problem, error);
      return;
    }
    this.#mark(null);
  }

  /** Load the templates and the special tokens of the selected tokenizer, then encode. */
  async #retarget() {
    const version = this.select.value || served.active.version;
    try {
      const [names, special] = version
        ? await Promise.all([api.chatTemplates(version), api.specialIds(version)]) : [[], new Set()];
      if (version !== (this.select.value || served.active.version)) return; // another was chosen
      this.special = special;
      this.hasTemplate = names.length > 0;
      const kept = this.template.value;
      this.template.replaceChildren(...names.map((name) => new Option(name, name)));
      if (names.includes(kept)) this.template.value = kept;
    } catch {
      this.template.replaceChildren();
      this.hasTemplate = true; // encoding reports the reason
    }
    this.template.parentElement.hidden = this.template.length === 0;
    await this.encode();
  }

  #messages() {
    return [...this.list.children].map((row) => ({
      role: row.querySelector("select").value, content: row.querySelector("textarea").value,
    }));
  }

  #add() {
    const last = this.#messages().at(-1)?.role;
    const row = this.#row({ role: last === "user" ? "assistant" : "user", content: "" });
    this.list.append(row);
    row.querySelector("textarea").focus();
    this.soon();
  }

  #row({ role, content }) {
    const choice = make("select", { "aria-label": "Role" }, ...ROLES.map((name) => new Option(name, name)));
    choice.value = role;
    const row = make("li", { class: "message" }, choice,
      make("textarea", { "aria-label": "Text of the message", rows: 2, spellcheck: false, value: content }),
      make("button", {
        type: "button", class: "quiet", textContent: "×", "aria-label": "Remove this message",
        onclick: () => {
          (row.nextElementSibling ?? row.previousElementSibling ?? byId("add-message"))
            .querySelector?.("textarea")?.focus();
          row.remove();
          this.soon();
        },
      }));
    const tint = () => (row.dataset.role = choice.value);
    choice.addEventListener("change", tint);
    tint();
    return row;
  }

  /** Mark the message that a problem names, or none. */
  #mark(pointer) {
    const index = /^\/messages\/(\d+)/.exec(pointer ?? "")?.[1];
    [...this.list.children].forEach((row, number) =>
      row.classList.toggle("wrong", String(number) === index));
  }

  #classOf(id, index) {
    const role = this.roles[index];
    const special = role === null && this.special.has(id) ? " special" : "";
    return `role-${ROLES.includes(role) ? role : role === null ? "template" : "other"}${special}`;
  }
}

/** The role of each token; null for text that the template writes. */
function rolesOf({ tokens, spans }) {
  const roles = new Array(tokens.length).fill(null);
  for (const { role, tokens: span } of spans) if (span) roles.fill(role, span[0], span[1]);
  return roles;
}
