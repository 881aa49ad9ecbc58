/** Assemble the page. */

import { key } from "./api.js";
import { ChatView } from "./chat_view.js";
import { DecodeView } from "./decode_view.js";
import { byId } from "./elements.js";
import { EncodeView } from "./encode_view.js";
import { startKeyForm } from "./key_form.js";
import { LanguagesView } from "./languages_view.js";
import { announce } from "./notices.js";
import { readFragment } from "./permalink.js";
import { served } from "./served.js";
import { startTabs } from "./tabs.js";
import { TokenDetails } from "./token_details.js";
import { TrainView } from "./train_view.js";
import { VersionsView } from "./versions_view.js";

const FIRST_TEXT =
  "Hello, world! Tokens are pieces of text: naïve café, 中文, 👩‍👩‍👧 and\tindeed  white space.\n";

let from = null; // the focused cell when the details opened
const details = new TokenDetails(() => {
  from?.pane.mark(null);
  from?.element?.focus({ preventScroll: true });
});

async function lookAt(pane, index, byKey) {
  const { encoding } = pane;
  const element = document.activeElement;
  from = { pane, element };
  const id = encoding.ids[index];
  pane.mark(id, index);
  await details.show({ id, version: encoding.version, encoding, index, takeFocus: byKey });
  element.scrollIntoView({ block: "nearest" }); // on a phone the details cover the rest of the page
}

const encodeView = new EncodeView(lookAt);
const chatView = new ChatView(lookAt);
const decodeView = new DecodeView(lookAt, () => {
  const [{ encoding, tokenizer }] = encodeView.panes;
  return { ids: encoding?.ids ?? [], tokenizer: tokenizer || encoding?.version };
});
const languagesView = new LanguagesView();
const compare = (version) => {
  openTab("encode");
  encodeView.compare(true, version);
};
const versions = new VersionsView(compare);
const trainView = new TrainView(() => encodeView.text, { compare, serve: (version) => versions.promote(version) });

const openTab = startTabs((name) => {
  if (details.isOpen) details.close();
  if (name === "train") trainView.open();
  if (name === "chat") chatView.open();
  if (name === "languages") languagesView.open();
});

/** Show the view that the address describes, or a sample text. */
async function showAddress(isFirst) {
  const hasLink = Boolean(location.hash); // typing removes it
  let view = {};
  try {
    view = await readFragment(location.hash);
  } catch (error) {
    const isTooLong = error instanceof RangeError;
    announce(isTooLong ? error.message : "This link is damaged; ask for a new one.", "bad");
  }
  if (isFirst && view.text === undefined) view.text = byId("text").value || FIRST_TEXT;
  await encodeView.restore(view);
  if (isFirst && !hasLink) await encodeView.compareAtStart();
}

startKeyForm();
key.addEventListener("changed", async () => {
  await served.look();
  await encodeView.encode();
});
window.addEventListener("hashchange", () => showAddress(false));
served.start();
versions.render();
await showAddress(true);
