/** The Languages page: one sentence in twelve languages, and the tokens that each tokenizer needs. */

import * as api from "./api.js";
import { byId, formatCount, make } from "./elements.js";
import { announce, reportProblem } from "./notices.js";
import { served, shortName } from "./served.js";

/** The first sentence of the Universal Declaration of Human Rights, article 1; English is the base. */
const SENTENCES = {
  English: "All human beings are born free and equal in dignity and rights.",
  Spanish: "Todos los seres humanos nacen libres e iguales en dignidad y derechos.",
  German: "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
  Turkish: "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar.",
  Swahili: "Watu wote wamezaliwa huru, hadhi na haki zao ni sawa.",
  Vietnamese: "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
  Russian: "Все люди рождаются свободными и равными в своем достоинстве и правах.",
  Arabic: "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق.",
  Hindi: "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
  Thai: "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
  Chinese: "人人生而自由，在尊严和权利上一律平等。",
  Japanese: "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
};
const MOST_TOKENIZERS = 4;
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";
const [BAR, GAP, LABEL, HEAD] = [15, 14, 92, 34];
const EXPORTED = { width: 900, scale: 2, margin: 24, title: "Tokens for one sentence in twelve languages" };

export class LanguagesView {
  constructor() {
    this.canvas = byId("languages-chart");
    this.problem = byId("languages-problem");
    this.results = new Map(); // name@version -> tokens of each sentence
    this.chosen = null;
    this.isOpen = false;
    byId("languages-png").addEventListener("click", () => this.#export());
    served.addEventListener("listed", () => this.isOpen && this.open());
    new ResizeObserver(() => this.isOpen && this.#draw()).observe(byId("languages-figure"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.isOpen && this.#draw());
  }

  /** Show the tokenizers to choose from, and the chart of the chosen ones. */
  open() {
    this.isOpen = true;
    if (!served.versions.length) return Promise.resolve(); // `listed` opens it then
    // The newest version of each name; the served one first.
    const names = new Map();
    for (const { name, version } of served.versions) {
      if (!names.has(name)) names.set(name, `${name}@${version}`);
    }
    const first = served.active.version?.split("@")[0];
    const all = [...names.values()].sort((a, b) => b.startsWith(`${first}@`) - a.startsWith(`${first}@`));
    this.chosen = (this.chosen ?? all.slice(0, 2)).filter((full) => all.includes(full));
    const box = (full) => make("label", { class: "check", title: full },
      make("input", {
        type: "checkbox", value: full, checked: this.chosen.includes(full),
        disabled: !this.chosen.includes(full) && this.chosen.length >= MOST_TOKENIZERS,
        onchange: (event) => this.#choose(full, event.target.checked),
      }), shortName(full));
    byId("languages-tokenizers").replaceChildren(...all.map(box));
    return this.#load();
  }

  #choose(full, isOn) {
    this.chosen = this.chosen.filter((one) => one !== full);
    if (isOn) this.chosen.push(full);
    this.open().then(() =>
      byId("languages-tokenizers").querySelector(`[value="${CSS.escape(full)}"]`)?.focus());
  }

  async #load() {
    try {
      await Promise.all(this.chosen.filter((full) => !this.results.has(full)).map(async (full) => {
        this.results.set(full, await api.countEach(Object.values(SENTENCES), full));
      }));
      this.problem.hidden = true;
    } catch (error) {
      reportProblem(this.problem, error);
    }
    this.#draw();
    this.#describe();
  }

  /** The chosen tokenizers whose counts have arrived. */
  get #series() {
    return this.chosen.filter((full) => this.results.has(full)).map((full) => ({ name: shortName(full), counts: this.results.get(full) }));
  }

  #draw() {
    if (!this.chosen) return; // not listed yet
    const width = byId("languages-figure").clientWidth;
    if (width > 0) draw(this.canvas, this.#series, { width, scale: devicePixelRatio }, getComputedStyle(this.canvas));
  }

  /** The verdict, and the same figures as a table, for screen readers and for copying. */
  #describe() {
    const languages = Object.keys(SENTENCES);
    const series = this.#series;
    const said = series.map(({ name, counts }) => {
      const most = counts.indexOf(Math.max(...counts));
      return `${name}: ${languages[most]} needs ${(counts[most] / counts[0]).toFixed(1)} times the tokens of English`;
    });
    byId("languages-verdict").textContent = said.length ? `${said.join("; ")}.` : "Choose a tokenizer.";
    const head = (scope, textContent) => make("th", { scope, textContent });
    const figures = (counts, row) => `${formatCount(counts[row])} (${(counts[row] / counts[0]).toFixed(1)}×)`;
    byId("languages-table").replaceChildren(
      make("thead", {}, make("tr", {}, ...["Language", ...series.map(({ name }) => name)].map((name) => head("col", name)))),
      make("tbody", {}, ...languages.map((language, row) => make("tr", {}, head("row", language),
        ...series.map(({ counts }) => make("td", { textContent: figures(counts, row) }))))));
  }

  #export() {
    const canvas = document.createElement("canvas");
    draw(canvas, this.#series, EXPORTED, getComputedStyle(this.canvas));
    canvas.toBlob((blob) => {
      if (blob === null) return announce("The browser cannot make a PNG of this size.", "bad");
      const link = make("a", { href: URL.createObjectURL(blob), download: "language-tax.png" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
      return undefined;
    });
  }
}

/** Draw bars of the tokens of each sentence, with the ratio to English beside them. */
function draw(canvas, series, { width, scale, margin = 0, title = "" }, style) {
  const colour = (name) => style.getPropertyValue(name).trim();
  const languages = Object.keys(SENTENCES);
  const rowHeight = series.length * (BAR + 2) + GAP;
  const above = title ? margin + 28 : margin;
  const height = HEAD + languages.length * rowHeight + 8;
  const [outerWidth, outerHeight] = [width + 2 * margin, height + above + margin];
  canvas.width = Math.round(outerWidth * scale);
  canvas.height = Math.round(outerHeight * scale);
  canvas.style.aspectRatio = `${outerWidth} / ${outerHeight}`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = colour("--card");
  context.fillRect(0, 0, outerWidth, outerHeight);
  context.translate(margin, above);
  context.textBaseline = "middle";
  context.fillStyle = colour("--ink");
  context.font = `600 17px ${FONT}`;
  context.fillText(title, 0, -18);
  const most = Math.max(1, ...series.flatMap(({ counts }) => counts));
  const room = width - LABEL - 92;
  const fills = [0, 1, 2, 3].map((index) => colour(`--edge-${index}`));
  let x = 0;
  context.font = `600 13px ${FONT}`;
  series.forEach(({ name }, index) => {
    context.fillStyle = fills[index];
    context.fillRect(x, 8, 12, 12);
    context.fillStyle = colour("--ink");
    context.fillText(name, x + 18, 14);
    x += 18 + context.measureText(name).width + 20;
  });
  languages.forEach((language, row) => {
    const top = HEAD + row * rowHeight;
    context.font = `13px ${FONT}`;
    context.fillStyle = colour("--ink");
    context.fillText(language, 0, top + (series.length * (BAR + 2)) / 2);
    series.forEach(({ counts }, index) => {
      const y = top + index * (BAR + 2);
      const length = (room * counts[row]) / most;
      context.fillStyle = fills[index];
      context.beginPath();
      context.roundRect(LABEL, y, Math.max(2, length), BAR, 3);
      context.fill();
      context.font = `12px ${FONT}`;
      context.fillStyle = colour("--soft");
      context.fillText(`${formatCount(counts[row])} · ${(counts[row] / counts[0]).toFixed(1)}×`,
        LABEL + length + 6, y + BAR / 2 + 1);
    });
  });
}
