"""The page in a real browser: what a person sees, points at, types and presses."""

import base64
import json
import re
import shutil
import zlib
from urllib.parse import quote

import pytest

from tests.conftest import REPOSITORY
from tests.integration.server_process import ADMIN_KEY, serve
from tests.tokenizer_service.conftest import CORPUS
from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.registry import ArtifactStore

api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
expect = api.expect

PANES = "#panes .pane"
PARROT = "a 🦜\tb\n"


def wait_for_ids(pane, ids):
    expect(pane.locator(".n-tokens")).to_have_text(f"{len(ids):,}")
    expect(pane.locator(".ids .id")).to_have_text(list(map(str, ids)))


def with_text(open_page, text, **options):
    page = open_page(f"#text={quote(text)}", **options)
    expect(page.locator(f"{PANES} .piece").first).to_be_visible()
    return page


def unlock(page, key=ADMIN_KEY):
    page.click("#tab-train")
    page.click("#train-unlock")
    page.fill("#key-input", key)
    page.keyboard.press("Enter")
    if key == ADMIN_KEY:
        expect(page.locator("#key-toggle")).to_have_text("Key ✓")


def test_a_vocabulary_is_imported_and_not_served(open_page, service, tmp_path):
    ranks = tmp_path / "my ranks.tiktoken"
    lines = [b"%b %d" % (base64.b64encode(bytes([byte])), byte) for byte in range(256)]
    ranks.write_bytes(b"\n".join(lines))
    page = open_page(with_problems=True)
    unlock(page)
    page.click("text=Import a vocabulary")
    page.fill("#import-name", "ranks")
    page.set_input_files("#import-files", ranks)
    page.click("#import-start")
    expect(page.locator("#import-problem")).to_contain_text("special=TOKEN=ID")
    page.fill("#import-pattern", "gpt2")
    page.click("#import-start")
    expect(page.locator("#import-problem")).to_contain_text("no_special=true")  # it is not guessed
    page.fill("#import-specials", "<|end|>=256 <|a|>=300")
    page.click("#import-start")
    expect(page.locator("#import-state")).to_contain_text("258 tokens")
    expect(page.locator("#import-problem")).to_be_hidden()
    expect(page.locator("#versions")).to_contain_text("ranks")
    assert service.encode("a<|a|>", "ranks") == [97, 300]
    assert service.ask("GET", "/tokenizers/active")["name"] == "starter"


def test_typing_shows_pieces_ids_and_counts(open_page, service):
    page = open_page("#text=a")
    pane = page.locator(PANES)
    expect(page.locator("#text-figures")).to_have_text("1 character 1 byte")
    page.fill("#text", "naïve 中文 the en")
    page.type("#text", "d")
    ids = service.encode("naïve 中文 the end")
    wait_for_ids(pane, ids)
    expect(page.locator("#text-figures")).to_have_text(re.compile("16 characters.*21 bytes"))
    expect(pane.locator(".per-token")).to_have_text(f"{21 / len(ids):.2f}")
    assert "".join(pane.locator(".pieces .piece").all_text_contents()).endswith("·the·end")
    said = f"{len(ids)} tokens, {21 / len(ids):.2f} bytes per token"
    expect(page.locator("#counts")).to_have_text(said)


def test_parts_of_a_character_are_shown_as_bytes(open_page):
    page = with_text(open_page, PARROT)
    parts = page.locator(f"{PANES} .raw")
    shown = [part.replace(" ", "") for part in parts.all_text_contents()]
    assert shown == ["F09FA6🦜", "9C🦜"]
    assert page.locator(f"{PANES} .sign").all_text_contents() == ["·", "→", "⏎"]
    page.click(f"{PANES} .as-bytes")
    assert page.locator(f"{PANES} .piece").all_text_contents()[-2:] == ["09 62", "0A"]
    page.click(f"{PANES} .as-bytes")
    parts.last.click()
    expect(page.locator("#details .broken")).to_have_text("9C: byte 4 of the 4 of 🦜 (U+1F99C)")
    # One visible character may be several code points: a flag has two letters.
    page.fill("#text", "🇸🇰")
    expect(parts.first).to_contain_text("🇰")


def test_two_tokenizers_and_the_merges_of_a_token(open_page, service):
    page = open_page()
    first, second = page.locator(PANES).nth(0), page.locator(PANES).nth(1)
    wait_for_ids(second, service.encode(page.input_value("#text"), "gpt2"))
    names = page.locator(f"{PANES} .pane-tokenizer option:checked")
    expect(names).to_have_text(["starter (served now)", "gpt2"])
    page.fill("#text", "Hello, Hello!")
    second.locator(".pane-tokenizer").select_option(label="bytes")
    wait_for_ids(second, service.encode("Hello, Hello!", "bytes"))
    assert second.locator(".pane-tokenizer").input_value().startswith("bytes@")
    n_first = len(service.encode("Hello, Hello!"))
    verdict = page.locator("#comparison")
    percent = round(100 * (13 - n_first) / n_first)
    expect(verdict).to_contain_text(f"starter: {n_first} tokens, bytes: 13 (+{percent}%).")
    expect(verdict).to_contain_text("50% of the first one's tokens")  # "," and "!"
    first.locator(".piece").nth(0).hover()
    expect(second.locator(".pieces .lit")).to_have_count(5)
    expect(first.locator(".ids .lit")).to_have_count(1)
    page.locator("#text").hover()
    expect(page.locator(".lit")).to_have_count(0)
    first.locator(".piece").nth(0).click()
    details = page.locator("#details")
    expect(details.locator("h2")).to_have_text("Token 10687")
    expect(details.locator(".facts")).to_contain_text("48 65 6C 6C 6F")
    expect(details.locator(".facts")).to_contain_text("10,428")
    assert details.locator(".node-id").all_text_contents()[:3] == ["10687", "72", "6212"]
    details.locator(".node").nth(2).click()
    expect(details.locator("h2")).to_have_text("Token 6212")


def test_the_slider_gives_the_ids_of_a_smaller_vocabulary(open_page, service):
    text = "Hello, world! naïve 中文<|endoftext|>"
    page = with_text(open_page, text)
    pane = page.locator(PANES)
    size = pane.locator(".size-slider")
    expect(pane.locator(".size-shown")).to_have_text("63,997")
    store = ArtifactStore(REPOSITORY / "artifacts")
    spec = store.open(store.resolve("starter"))
    for value in ("600", "0"):
        size.fill(value)
        n_tokens = int(pane.locator(".size-shown").inner_text().replace(",", ""))
        smaller = TokenizerSpec.from_merges(
            spec.vocab, spec.merges[: n_tokens - 256], [*spec.special_tokens], pattern=spec.pattern
        )
        wait_for_ids(pane, Tokenizer.from_spec(smaller).encode(text))
    assert n_tokens == 256
    page.type("#text", "!")  # the slider keeps its position
    expect(pane.locator(".n-tokens")).to_have_text(str(len(text.encode()) - 13 + 1 + 1))
    size.fill("1000")
    wait_for_ids(pane, service.encode(text + "!"))


def test_the_language_tax_as_bars_table_and_png(open_page, service, tmp_path):
    page = with_text(open_page, "a")
    page.click("#tab-languages")
    chosen = page.locator("#languages-tokenizers input:checked")
    expect(chosen).to_have_count(2)
    rows = page.locator("#languages-table tbody tr")
    expect(rows).to_have_count(12)
    english = "All human beings are born free and equal in dignity and rights."
    n_english = len(service.encode(english))
    german = "Alle Menschen sind frei und gleich an Würde und Rechten geboren."
    n_german = len(service.encode(german))
    page.click("#panel-languages summary")
    expect(rows.nth(0).locator("td").first).to_have_text(f"{n_english} (1.0×)")
    expect(rows.nth(2).locator("td").first).to_have_text(
        f"{n_german} ({n_german / n_english:.1f}×)"
    )
    page.uncheck('#languages-tokenizers label:has-text("gpt2") input')
    page.check('#languages-tokenizers label:has-text("bytes") input')
    expect(rows.nth(0).locator("td").nth(1)).to_have_text(f"{len(english)} (1.0×)")
    expect(page.locator("#languages-verdict")).to_contain_text("bytes: ")
    with page.expect_download() as download:
        page.click("#languages-png")
    saved = tmp_path / "tax.png"
    download.value.save_as(saved)
    assert saved.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert download.value.suggested_filename == "language-tax.png"


def test_the_documentation_follows_the_colour_scheme(open_page):
    page = open_page("docs", color_scheme="dark")
    expect(page.locator("html")).to_have_class("dark-mode")
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).not_to_have_class("dark-mode")


def test_the_page_works_by_keyboard(open_page):
    page = with_text(open_page, "Hello, world! And more.\nA second line.")
    page.locator("#panes .piece").nth(0).focus()
    focused = page.locator(":focus")
    page.keyboard.press("ArrowRight")
    expect(focused).to_have_attribute("data-index", "1")
    expect(page.locator('#panes .ids [data-index="1"]')).to_have_class(re.compile("lit"))
    assert page.locator('#panes .pieces [tabindex="0"]').count() == 1
    page.keyboard.press("ArrowDown")
    expect(focused).to_have_attribute("aria-label", re.compile("^space second, id"))
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("#details h2")).to_have_text("Token 46")
    expect(focused).to_have_id("details")
    page.keyboard.press("Escape")
    expect(page.locator("#details")).to_be_hidden()
    expect(focused).to_have_attribute("aria-label", re.compile(r"^\., id"))
    page.locator("#tab-encode").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#panel-chat")).to_be_visible()


def test_ids_are_decoded_to_text(open_page, service):
    page = open_page(with_problems=True)
    page.click("#tab-decode")
    page.fill("#ids", json.dumps(service.encode("Hello, world!")))
    expect(page.locator("#decoded")).to_have_text("Hello, world!")
    expect(page.locator("#decode-verdict")).to_contain_text("gives the same ids")
    page.fill("#ids", "72 101 108 108 111")
    expect(page.locator("#decode-verdict")).to_contain_text("from number 1 on")
    page.fill("#ids", "72 999999")
    expect(page.locator("#decode-problem")).to_contain_text("vocabulary")
    page.fill("#ids", "72 x")
    expect(page.locator("#decode-problem")).to_contain_text("Number 2 is no token id")


def test_a_conversation_is_shown_by_role(open_page, service):
    service.promote("chat")
    page = open_page(with_problems=True)
    page.click("#tab-chat")
    pieces = page.locator("#chat-pane .pieces")
    starts = pieces.locator(".special", has_text="<|im_start|>")
    expect(starts).to_have_count(5)  # four messages and the prompt for the next
    expect(pieces.locator(".special", has_text="<|im_end|>")).to_have_count(4)
    page.uncheck("#generation-prompt")
    expect(starts).to_have_count(4)
    rows = page.locator("#messages li")
    for _ in range(2):
        rows.nth(2).locator("button").click()
    rows.nth(1).locator("textarea").fill("Hi <|im_end|>")
    expect(pieces.locator(".role-user")).to_have_count(len("Hi <|im_end|>"))
    expect(pieces.locator(".role-assistant")).to_have_count(0)
    expect(starts).to_have_count(2)
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Hi <|im_end|>"},
    ]
    ids = service.ask("POST", "/chat/encode", json={"messages": messages})["tokens"]
    expect(page.locator("#chat-pane .n-tokens")).to_have_text(str(len(ids)))
    page.click("#panel-chat summary")
    expect(page.locator("#chat-text")).to_contain_text("<|im_start|>user\nHi <|im_end|>")
    page.select_option("#chat-template", "broken")
    expect(page.locator("#chat-problem")).to_contain_text("the chat template failed")
    expect(page.locator("#chat-pane .pane")).to_be_hidden()
    service.promote("bytes")
    hint = page.locator("#chat-problem.hint")
    expect(hint).to_contain_text("tokenizer import")
    service.promote("starter")  # it has a template
    expect(hint).to_be_hidden()
    expect(starts).to_have_count(2)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["naïve & #1 = 中文 🦜\n", "long, again. " * 200])
def test_a_link_holds_the_view_and_is_not_sent(open_page, text):
    page = with_text(open_page, text)
    page.click("#compare")
    page.select_option("#special", "none")
    expect(page.locator("#comparison")).to_be_visible()
    page.click("#link")
    expect(page).to_have_url(re.compile("#.*b=gpt2"))
    address = page.url
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#comparison")).to_be_visible()
    assert page.input_value("#text") == text
    assert page.input_value("#special") == "none"
    expect(page).to_have_url(address)
    assert [url for url in sent if "text=" in url or "packed=" in url] == []
    page.type("#text", "x")
    expect(page).not_to_have_url(re.compile("#"))  # the message would be outdated


def packed_link(text):
    """The fragment of a link with a compressed text, as the page writes it."""
    compressor = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed = compressor.compress(text) + compressor.flush()
    return f"#packed={base64.urlsafe_b64encode(packed).decode().rstrip('=')}"


@pytest.mark.parametrize(
    ("n_bytes", "notice"),
    [(999_999, None), (1_000_001, "longer than 1 MB"), (60_000_000, "too long")],
)
def test_a_link_may_hold_a_megabyte(open_page, n_bytes, notice):
    page = open_page(packed_link(b"ab " * (n_bytes // 3) + b"ab"[: n_bytes % 3]))
    if notice is None:
        expect(page.locator("#text-figures")).to_contain_text("999,999 bytes")
        expect(page.locator("#notices")).to_be_empty()
    else:
        expect(page.locator("#notices")).to_contain_text(notice)
        assert len(page.input_value("#text")) < 1000  # the sample text


@pytest.mark.slow
def test_a_large_text_is_shown_in_part(open_page, service):
    text = "".join(f"line {number} of a long text\n" for number in range(12_000))
    page = with_text(open_page, "a")
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.setData("text/plain", text);
            const box = document.getElementById("text");
            box.select();
            box.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, cancelable: true}));
        }""",
        text,
    )
    ids = service.encode(text)
    expect(page.locator("#panes .n-tokens")).to_have_text(f"{len(ids):,}")
    expect(page.locator("#held")).to_be_visible()
    last = page.locator(f'#panes .ids [data-index="{len(ids) - 1}"]')
    expect(last).to_have_count(0)
    page.locator("#panes .pieces .piece").nth(0).focus()
    page.keyboard.press("End")
    expect(last).to_have_text(str(ids[-1]))
    assert 50 < page.locator("#panes .pieces .piece").count() < 3_000
    page.click("#held-clear")
    expect(page.locator("#panes .n-tokens")).to_have_text("0")


def test_upload_train_see_it_live_roll_back_and_be_swapped(open_page, service, tmp_path):
    page = with_text(open_page, "the quick brown fox")
    unlock(page)
    corpus = tmp_path / "My Corpus.txt"
    corpus.write_text(CORPUS * 20, encoding="utf-8")
    page.set_input_files("#upload", corpus)
    expect(page.locator("#upload-state")).to_contain_text("Uploaded My Corpus.txt as my-corpus.txt")
    assert page.is_checked('#corpora input[value="my-corpus.txt"]')
    page.fill("#train-size", "350")
    page.fill("#train-name", "small")
    assert page.input_value("#train-promote") == "manual"
    page.select_option("#train-promote", "always")
    page.click("#train-start")
    expect(page.locator("#job .state")).to_have_text("live", timeout=60_000)
    expect(page.locator("#job .result")).to_contain_text("350 entries")
    expect(page.locator("#job .numbers")).to_contain_text("took")
    expect(page.locator("#job svg.curve")).to_have_attribute("aria-label", re.compile("350"))
    expect(page.locator("#served")).to_contain_text("serves small")
    expect(page.locator("#versions .is-served")).to_contain_text("small")
    page.click("#job summary")
    expect(page.locator("#job .log")).to_contain_text("published small@")
    page.reload()
    unlock(page)
    page.click("#roll-back")
    expect(page.locator("#served")).to_contain_text("serves starter")
    assert service.ask("GET", "/tokenizers/active")["name"] == "starter"
    # Somebody else promotes while the page is open.
    page.click("#tab-encode")
    wait_for_ids(page.locator(PANES), service.encode("the quick brown fox"))
    service.promote("bytes")
    expect(page.locator(".notice")).to_contain_text("Now serving bytes; before, it was starter.")
    wait_for_ids(page.locator(PANES), service.encode("the quick brown fox", "bytes"))


@pytest.mark.slow
def test_a_run_under_way_is_followed_and_can_be_cancelled(open_page, service):
    documents = [" ".join(str(number * 7919 % 1_000_003) for number in range(400_000))]
    body = {"documents": documents, "vocab_size": 100_000, "name": "large", "promote": "manual"}
    service.ask("POST", "/train", json=body)
    page = open_page(with_problems=True)
    unlock(page)
    expect(page.locator("#job .numbers")).to_contain_text("elapsed")
    page.click("#job button:has-text('Cancel')")
    expect(page.locator("#job .state")).to_have_text("cancelled", timeout=60_000)
    expect(page.locator("#jobs li").first).to_contain_text("cancelled")


def test_a_wrong_key_is_not_kept(open_page):
    page = open_page(with_problems=True)
    unlock(page, "a wrong key")
    expect(page.locator("#key-problem")).to_contain_text("does not know this key")
    expect(page.locator("#key-toggle")).to_have_text("Key")
    page.fill("#key-input", ADMIN_KEY)
    page.keyboard.press("Enter")
    expect(page.locator("#key-toggle")).to_have_text("Key ✓")
    expect(page.locator("#train-open")).to_be_visible()


def test_a_text_too_short_for_the_size_says_so_and_its_tokenizer_can_be_served(open_page):
    page = with_text(open_page, "one two two")
    unlock(page)
    page.check("input[name=source][value=text]")
    page.fill("#train-name", "toy")
    page.click("#train-start")
    result = page.locator("#job .result")
    expect(result).to_contain_text("toy: 262 entries")
    expect(result).to_contain_text("entries: no pair is left to merge")
    expect(page.locator("#served")).to_contain_text("serves starter")
    result.locator("button", has_text="Compare").click()
    expect(page.locator("#comparison")).to_contain_text("toy: ")
    page.click("#tab-train")
    page.click("#job button:has-text('Serve it')")
    expect(page.locator("#served")).to_contain_text("serves toy")


@pytest.mark.slow
def test_a_key_to_read_can_be_typed(open_page, tmp_path, other_spec):
    ArtifactStore(tmp_path / "artifacts").publish(other_spec, name="starter")
    with serve(tmp_path / "artifacts", read_keys="to-read") as locked:
        page = open_page(url=locked.url, with_problems=True)
        expect(page.locator("#key-form")).to_be_visible()
        page.fill("#key-input", "to-read")
        page.keyboard.press("Enter")
        expect(page.locator(f"{PANES} .piece").first).to_be_visible()
        assert page.evaluate("sessionStorage.length + localStorage.length") == 0


@pytest.mark.slow
def test_the_page_says_why_nothing_is_served_and_promotes(open_page, tmp_path, other_spec):
    store = ArtifactStore(tmp_path / "artifacts")
    store.publish(other_spec, name="starter")
    lost = store.publish(other_spec, name="lost")
    store.promote(lost)
    shutil.rmtree(store.root / "tokenizers" / "lost")
    with serve(store.root) as damaged:
        page = open_page(url=damaged.url, with_problems=True)
        said = f"{lost}, the active tokenizer, cannot be loaded"
        expect(page.locator("#served")).to_contain_text(said)
        unlock(page)
        page.click("button[aria-label='Serve starter']")
        expect(page.locator("#served")).to_contain_text("serves starter")
        (store.root / "active.json").write_text("")
        expect(page.locator("#served")).to_contain_text("The active pointer cannot be loaded")


def every_view(page):
    """The page in each of its states, one after the other."""
    page.locator("#panes .pieces .piece").nth(0).click()
    expect(page.locator("#details")).to_be_visible()
    page.locator("#compare").evaluate("button => button.click()")
    expect(page.locator("#comparison")).to_be_visible()
    yield "encode"
    page.locator("#tab-chat").evaluate("tab => tab.click()")
    page.select_option("#chat-tokenizer", label="chat")
    expect(page.locator("#chat-pane .piece").first).to_be_visible()
    yield "chat"
    page.locator("#tab-decode").evaluate("tab => tab.click()")
    page.click("#take-ids")
    expect(page.locator("#decode-verdict")).not_to_be_empty()
    yield "decode"
    page.locator("#tab-languages").evaluate("tab => tab.click()")
    page.click("#panel-languages summary")
    expect(page.locator("#languages-table tbody tr")).to_have_count(12)
    yield "languages"
    unlock(page)
    expect(page.locator("#train-open")).to_be_visible()
    page.click("#key-toggle")
    yield "train"


def test_axe_finds_nothing_and_a_phone_scrolls_in_one_direction(open_page):
    wide, narrow = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
    page = with_text(open_page, "x" * 40 + PARROT, reduced_motion="reduce", viewport=wide)
    page.evaluate(axe.Axe().axe_script)

    def violations():
        return page.evaluate(
            """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
                .flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html}`))"""
        )

    for view in every_view(page):
        page.emulate_media(color_scheme="light")
        assert violations() == [], view
        page.emulate_media(color_scheme="dark")
        assert violations() == [], view
        page.set_viewport_size(narrow)
        assert page.evaluate("document.documentElement.scrollWidth") == 360, view
        page.set_viewport_size(wide)
