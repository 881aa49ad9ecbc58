/**
 * A view of the page as an address. The state follows the `#`, which browsers do not send, so only
 * people who have the link see the text.
 */

const PLAIN_CHARACTERS = 300;
const MOST_CHARACTERS = 32_000;
const MOST_BYTES = 1_000_000; // of the text; a link of 10 kB could otherwise unpack to 10 MB

/** Pipe `bytes` through a compression stream. Throws RangeError if it returns over `most` bytes. */
async function throughStream(bytes, stream, most = Infinity) {
  const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader();
  const parts = [];
  let nBytes = 0;
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    nBytes += next.value.length;
    if (nBytes > most) {
      await reader.cancel();
      throw new RangeError("The text of this link is longer than 1 MB; ask for it as a file.");
    }
    parts.push(next.value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
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
 * Make the fragment for `view` {text, special, a, b}; empty fields are omitted. A long text is
 * compressed. Throws RangeError if it is too long for an address.
 */
export async function makeFragment(view) {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(view)) {
    if (!value) continue;
    if (name === "text" && value.length > PLAIN_CHARACTERS) {
      const bytes = new TextEncoder().encode(value);
      if (bytes.length > MOST_BYTES) throw tooLong();
      const packed = await throughStream(bytes, new CompressionStream("deflate-raw"));
      fields.set("packed", toBase64Url(packed));
    } else {
      fields.set(name, value);
    }
  }
  const fragment = fields.toString();
  if (fragment.length > MOST_CHARACTERS) throw tooLong();
  return fragment;
}

const tooLong = () => new RangeError("This text is too long for a link; shorten it, or send it as a file.");

/**
 * Parse the view of a fragment; {} if it has none. Throws RangeError if its text is too long, and
 * another error if it is damaged.
 */
export async function readFragment(fragment) {
  const view = Object.fromEntries(new URLSearchParams(fragment.replace(/^#/, "")));
  if (view.packed) {
    // No link of this page is longer. Browsers unpack all they get, however little is read of it.
    if (view.packed.length > MOST_CHARACTERS) throw new RangeError("This link is too long; ask for a file.");
    const packed = fromBase64Url(view.packed);
    const bytes = await throughStream(packed, new DecompressionStream("deflate-raw"), MOST_BYTES);
    view.text = new TextDecoder().decode(bytes);
  }
  return view;
}
