/**
 * A view of the page as an address. The state follows the `#`, which browsers do not send, so only
 * people who have the link see the text.
 */

const PLAIN_CHARACTERS = 300;
const MOST_CHARACTERS = 32_000;

async function throughStream(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

function toBase64Url(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function fromBase64Url(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

/**
 * Make the fragment for `view` {text, tab, a, b, special, ids}; empty fields are omitted. A long text
 * is compressed. Throws RangeError if it is too long for an address.
 */
export async function makeFragment(view) {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(view)) {
    if (!value) continue;
    if (name === "text" && value.length > PLAIN_CHARACTERS) {
      const packed = await throughStream(new TextEncoder().encode(value), new CompressionStream("deflate-raw"));
      fields.set("packed", toBase64Url(packed));
    } else {
      fields.set(name, value);
    }
  }
  const fragment = fields.toString();
  if (fragment.length > MOST_CHARACTERS) {
    throw new RangeError("This text is too long for a link; shorten it, or send it as a file.");
  }
  return fragment;
}

/** Parse the view of a fragment; {} if it has none. Throws on a damaged fragment. */
export async function readFragment(fragment) {
  const view = Object.fromEntries(new URLSearchParams(fragment.replace(/^#/, "")));
  if (view.packed) {
    const bytes = await throughStream(fromBase64Url(view.packed), new DecompressionStream("deflate-raw"));
    view.text = new TextDecoder().decode(bytes);
  }
  return view;
}
