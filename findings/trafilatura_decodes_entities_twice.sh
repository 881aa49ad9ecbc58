#!/bin/sh
# One would expect: the text that trafilatura extracts from a page is the text that a reader of the page sees.
# What happens: trafilatura 2.3.1 decodes entities once more in the finished text. A page that shows `&lt;b&gt;` to
# explain it, as documentation of HTML does, becomes one that shows `<b>`, and the address `?a=1&copy=2`, correctly
# written as `?a=1&amp;copy=2`, becomes `?a=1©=2`. Text, markdown and JSON do so; XML keeps what the page shows.
# And the three leave out blank lines inside `<pre>`, so code loses them. No error, no warning.
# Source of the expectation: the HTML standard, "Character reference state", which decodes a reference once;
# trafilatura's own XML; resiliparse 2.0.1, another extractor, gives the text that is shown.
# trafilatura 2.3.1, 2026-11-30
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet trafilatura==2.3.1 lxml-html-clean==0.4.6 resiliparse==2.0.1 2> "$work/messages" \
    || { cat "$work/messages"; exit 1; }
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version
from xml.etree import ElementTree

import trafilatura
from resiliparse.extract.html2text import extract_plain_text

for name in ("trafilatura", "resiliparse"):
    print(name, version(name))
SHOWN = ("Write &lt;b&gt; for a bold word.", "The address ends with ?a=1&copy=2 as it is.", "a = 1\n\nb = 2")
page = (
    "<html><body><article><h1>Notes</h1><p>Write &amp;lt;b&amp;gt; for a bold word.</p>"
    "<p>The address ends with ?a=1&amp;copy=2 as it is.</p><p>A paragraph that is long enough to be kept.</p>"
    "<pre><code>a = 1\n\nb = 2\n</code></pre></article></body></html>"
)
text = trafilatura.extract(page)
xml = "\n".join(ElementTree.fromstring(trafilatura.extract(page, output_format="xml")).itertext())
other = extract_plain_text(page)
print(text)
for shown in SHOWN:
    print(repr(shown), "in the text:", shown in text, "in XML:", shown in xml, "resiliparse:", shown in other)
    assert shown in xml and shown in other
    assert shown not in text, "the behaviour changed"
assert "Write <b> for" in text and "?a=1©=2" in text and "a = 1\nb = 2" in text, "the behaviour changed"
markdown = trafilatura.extract(page, output_format="markdown")
assert "&lt;b&gt;" not in markdown and "a = 1\nb = 2" in markdown, "the behaviour changed"
PYTHON
