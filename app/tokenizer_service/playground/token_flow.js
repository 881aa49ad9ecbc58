/**
 * Tokens as a flow of cells. Only cells near the viewport are elements, because a text of 1 MB has
 * 250,000 tokens. Cells are grouped into blocks of about a hundred: a block near the viewport is
 * filled, a distant one is emptied and keeps its height. One cell is focusable; the arrow keys move it.
 */

import { make } from "./elements.js";

const BLOCK_TOKENS = 96;
const LEAST_IN_A_BLOCK = 32;
const NEAR_PIXELS = 250;
const FILL_MILLISECONDS = 10;
const NEWLINE = 0x0a;

export class TokenFlow {
  /**
   * `renderCell(encoding, index)` makes the element of one token. Callbacks: `hovered(index)`, null
   * when the pointer leaves, and `chosen(index, byKey)`.
   */
  constructor(container, { label, renderCell, hovered, chosen }) {
    this.container = container;
    this.renderCell = renderCell;
    this.hovered = hovered;
    this.chosen = chosen;
    this.lit = [0, -1];
    this.watcher = new IntersectionObserver((entries) => this.#onSeen(entries), {
      root: container, rootMargin: `${NEAR_PIXELS}px 0px`,
    });
    container.setAttribute("role", "listbox");
    container.setAttribute("aria-label", label);
    container.setAttribute("aria-orientation", "horizontal");
    container.addEventListener("pointerover", (event) => this.#onPointer(event));
    container.addEventListener("pointerleave", () => this.hovered(null));
    container.addEventListener("focusin", (event) => this.#onFocus(event));
    container.addEventListener("focusout", () => this.hovered(null));
    container.addEventListener("click", (event) => this.#onClick(event));
    container.addEventListener("keydown", (event) => this.#onKey(event));
    this.show(null);
  }

  /** Show the tokens of `encoding`, scrolled to the top. */
  show(encoding) {
    this.encoding = encoding;
    this.active = 0;
    this.selectedId = null;
    this.lit = [0, -1];
    this.waiting = new Set();
    this.watcher.disconnect();
    this.starts = encoding ? startsOf(encoding) : [];
    this.container.hidden = this.starts.length === 0;
    this.blocks = this.starts.map((_, number) =>
      make("div", { class: "block", role: "presentation", "data-number": number }));
    const width = Math.max(200, this.container.clientWidth);
    this.blocks.forEach((block, number) => {
      const [first, last] = this.#range(number);
      const bytes = encoding.ends[last] - encoding.start(first);
      const lines = Math.ceil((bytes * 8.5 + (last - first + 1) * 3) / width);
      block.style.minHeight = `${lines * 27}px`;
    });
    this.container.replaceChildren(...this.blocks);
    this.container.scrollTop = 0;
    if (this.blocks.length) this.#fill(0);
    for (const block of this.blocks) this.watcher.observe(block);
  }

  /** Highlight the tokens first to last; none if last is smaller. */
  light([first, last]) {
    const [oldFirst, oldLast] = this.lit;
    this.lit = [first, last];
    for (const index of cellsOf(oldFirst, oldLast)) this.#cell(index)?.classList.remove("lit");
    for (const index of cellsOf(first, last)) this.#cell(index)?.classList.add("lit");
  }

  /** Scroll a token into view within the container; the page itself does not scroll. */
  reveal(index) {
    if (!this.encoding || index < 0 || index >= this.encoding.length) return;
    const number = this.#blockOf(index);
    this.#fill(number);
    const cell = this.#cell(index);
    const box = this.container.getBoundingClientRect();
    const own = cell.getBoundingClientRect();
    if (own.top < box.top) this.container.scrollTop -= box.top - own.top + 8;
    else if (own.bottom > box.bottom) this.container.scrollTop += own.bottom - box.bottom + 8;
  }

  /** Mark every cell of this id as selected. */
  select(id, index) {
    this.selectedId = id;
    for (const block of this.blocks) for (const cell of block.children) this.#markSelected(cell);
    if (index !== undefined && index < (this.encoding?.length ?? 0)) this.#activate(index);
  }

  #markSelected(cell) {
    const isSelected = String(this.encoding.ids[cell.dataset.index] === this.selectedId);
    // Skip unchanged cells: setting the same value costs as much as a change.
    if (cell.ariaSelected !== isSelected) cell.ariaSelected = isSelected;
  }

  #range(number) {
    const next = this.starts[number + 1] ?? this.encoding.length;
    return [this.starts[number], next - 1];
  }

  #blockOf(index) {
    let [low, high] = [0, this.starts.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= index) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #cell(index) {
    const number = this.#blockOf(index);
    return this.blocks[number]?.children[index - this.starts[number]];
  }

  #onSeen(entries) {
    for (const entry of entries) {
      const number = Number(entry.target.dataset.number);
      if (this.blocks[number] !== entry.target) continue;
      if (entry.isIntersecting) this.waiting.add(number);
      else {
        this.waiting.delete(number);
        this.#empty(number);
      }
    }
    this.#fillWaiting();
  }

  /** Fill a few blocks per frame, so that no frame takes long. */
  #fillWaiting() {
    if (this.isFilling) return; // a scheduled frame continues the work
    const until = performance.now() + FILL_MILLISECONDS;
    for (const number of this.waiting) {
      this.waiting.delete(number);
      this.#fill(number);
      // Force the layout here so that it is timed: with missing fonts it dominates.
      void this.blocks[number].offsetHeight;
      if (performance.now() > until) break;
    }
    this.isFilling = this.waiting.size > 0;
    if (!this.isFilling) return;
    requestAnimationFrame(() => {
      this.isFilling = false;
      this.#fillWaiting();
    });
  }

  #fill(number) {
    const block = this.blocks[number];
    if (block.hasChildNodes()) return;
    const [first, last] = this.#range(number);
    const cells = document.createDocumentFragment();
    for (let index = first; index <= last; index++) cells.append(this.#prepare(index));
    block.style.minHeight = "";
    block.append(cells);
  }

  #prepare(index) {
    const cell = this.renderCell(this.encoding, index);
    cell.dataset.index = index;
    cell.role = "option";
    cell.tabIndex = index === this.active ? 0 : -1;
    cell.setAttribute("aria-posinset", index + 1);
    cell.setAttribute("aria-setsize", this.encoding.length);
    if (index >= this.lit[0] && index <= this.lit[1]) cell.classList.add("lit");
    this.#markSelected(cell);
    return cell;
  }

  /** Keep the block with the focusable cell. */
  #empty(number) {
    const block = this.blocks[number];
    if (!block.hasChildNodes() || number === this.#blockOf(this.active)) return;
    block.style.minHeight = `${block.offsetHeight}px`;
    block.replaceChildren();
  }

  #activate(index) {
    const old = this.#cell(this.active);
    if (old) old.tabIndex = -1;
    this.active = index;
    const cell = this.#cell(index);
    if (cell) cell.tabIndex = 0;
  }

  #indexOf(event) {
    const cell = event.target.closest?.("[data-index]");
    return cell ? Number(cell.dataset.index) : null;
  }

  #onPointer(event) {
    if (event.pointerType !== "touch") this.hovered(this.#indexOf(event));
  }

  #onFocus(event) {
    const index = this.#indexOf(event);
    if (index === null) return;
    this.#activate(index);
    this.hovered(index);
  }

  #onClick(event) {
    const index = this.#indexOf(event);
    if (index !== null) this.chosen(index, false);
  }

  #onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.encoding.length - 1;
    const moves = {
      ArrowRight: () => Math.min(last, this.active + 1),
      ArrowLeft: () => Math.max(0, this.active - 1),
      ArrowDown: () => this.#nearestInLine(1),
      ArrowUp: () => this.#nearestInLine(-1),
      PageDown: () => Math.min(last, this.active + BLOCK_TOKENS),
      PageUp: () => Math.max(0, this.active - BLOCK_TOKENS),
      Home: () => 0,
      End: () => last,
    };
    if (event.key === "Enter" || event.key === " ") this.chosen(this.active, true);
    else if (moves[event.key]) this.#focus(moves[event.key]());
    else return;
    event.preventDefault();
  }

  #focus(index) {
    this.reveal(index);
    this.#cell(index)?.focus({ preventScroll: true });
  }

  /** The cell in the line above or below that is nearest to the middle of the current one. */
  #nearestInLine(step) {
    const from = this.#cell(this.active).getBoundingClientRect();
    const x = (from.left + from.right) / 2;
    let [best, distance, line] = [this.active, Infinity, null];
    for (let index = this.active + step; index >= 0 && index < this.encoding.length; index += step) {
      this.#fill(this.#blockOf(index));
      const box = this.#cell(index).getClientRects()[0];
      const isOnward = step > 0 ? box.top > from.top + 4 : box.top < from.top - 4;
      if (!isOnward) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > 4) break;
      const away = Math.max(box.left - x, x - box.right, 0);
      if (away < distance) [best, distance] = [index, away];
    }
    return best;
  }
}

const known = new WeakMap(); // two flows share one encoding

function startsOf(encoding) {
  if (!known.has(encoding)) known.set(encoding, blockStarts(encoding));
  return known.get(encoding);
}

/** Block starts: after a line end if one comes soon enough, because people read lines. */
function blockStarts(encoding) {
  const starts = [];
  let start = 0;
  while (start < encoding.length) {
    starts.push(start);
    let next = Math.min(encoding.length, start + BLOCK_TOKENS);
    for (let index = next - 1; index > start + LEAST_IN_A_BLOCK && next < encoding.length; index--) {
      if (encoding.bytesOf(index).at(-1) === NEWLINE) {
        next = index + 1;
        break;
      }
    }
    start = next;
  }
  return starts;
}

const MOST_LIT = 400;

function* cellsOf(first, last) {
  for (let index = first; index <= Math.min(last, first + MOST_LIT); index++) yield index;
}
