/** The page's tabs, with arrow-key navigation. */

const NAMES = ["encode", "chat", "decode", "languages", "train"];

/** Wire the tabs; call `opened(name)` on each change. Returns a function that opens a tab by name. */
export function startTabs(opened) {
  const tabs = NAMES.map((name) => document.getElementById(`tab-${name}`));
  const open = (name, focus = false) => {
    if (!NAMES.includes(name)) return;
    tabs.forEach((tab, index) => {
      const isOpen = NAMES[index] === name;
      tab.setAttribute("aria-selected", isOpen);
      tab.tabIndex = isOpen ? 0 : -1;
      document.getElementById(`panel-${NAMES[index]}`).hidden = !isOpen;
      if (isOpen && focus) tab.focus();
    });
    opened(name);
  };
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => open(NAMES[index]));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const end = { Home: 0, End: NAMES.length - 1 }[event.key];
      const target = end ?? (step && (index + step + NAMES.length) % NAMES.length);
      if (target === undefined) return;
      open(NAMES[target], true);
      event.preventDefault();
    });
  });
  return open;
}
