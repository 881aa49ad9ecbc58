"""`tokenizer chat`: conversations to ids, as the chat template of a tokenizer writes them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tokenizer_core.chat.loss_mask import ChatEncoding
from tokenizer_core.chat.messages import left_out
from tokenizer_core.documents.conversations import Conversation, parse_conversation
from tokenizer_core.errors import ChatError, ConversationError
from tokenizer_core.spec.chat_templates import knows_tools
from tokenizer_core.strict_json import StrictJsonError, read_json
from tokenizer_core.tokenizer import Tokenizer
from tokenizer_service.commands.command_line import (
    CommandError,
    UsageError,
    add_command,
    refuse_packed,
    require_files,
)
from tokenizer_service.commands.outputs import (
    STANDARD_INPUT,
    STANDARD_OUTPUT,
    add_output,
    render_pieces,
    require_other_files,
    write_output,
)
from tokenizer_service.commands.progress import has_colours
from tokenizer_service.commands.tokenizer_arguments import (
    add_tokenizer_arguments,
    load_tokenizer,
    tokenizer_files,
)

_FORM: Final = (
    'a conversation is a JSON list of messages such as [{"role": "user", "content": "Hi"}], or an '
    "object with such messages"
)


def add_parsers(subcommands: Any) -> None:
    """Add the subcommand."""
    parser = add_command(subcommands, run_chat)
    parser.add("file FILE", "JSON or JSONL; - is stdin")
    forms = parser.add_mutually_exclusive_group()
    for form, about in (
        ("text", "print the text that the template makes"),
        ("count", "print the number of tokens"),
        ("pieces", "show the text cut into tokens, as tokenizer encode --pieces does"),
    ):
        forms.add_argument(f"--{form}", action="store_const", const=form, dest="form", help=about)
    parser.set_defaults(form="ids")
    parser.add("--tools FILE", "a JSON list of tools")
    parser.add(
        "--template NAME|FILE",
        "a chat template of the tokenizer by its name, or a file (default: tool_use with "
        "tools if there is one, else default)",
    )
    parser.add(
        "--generation-prompt",
        "end with what asks the model for its next turn",
        action=argparse.BooleanOptionalAction,
        default=False,
    )
    parser.add(
        "--kwargs JSON",
        "an object with further variables of the template: '{\"enable_thinking\": false}'",
    )
    parser.add(
        "--add-special-tokens",
        "put around each what the tokenizer's post-processor adds; most templates write it",
    )
    add_output(parser, about="write to a file, which appears when complete")
    add_tokenizer_arguments(parser)


def run_chat(arguments: argparse.Namespace) -> None:
    """Print the token ids of a conversation, or of each line of a JSONL file of them, as the
    chat template of the tokenizer writes it.

    A conversation is a JSON list of messages, or a record as corpus encode --format chat
    reads it: an object with `messages` or ShareGPT's `conversations`, and perhaps `tools`.

    examples:
      tokenizer chat chat.json --tokenizer Qwen3-8B --generation-prompt
      tokenizer chat chat.json --tokenizer qwen3 --text
      echo '[{"role": "user", "content": "Hi"}]' | tokenizer chat - --pieces
      tokenizer chat chats.jsonl --tools tools.json --count

    Control tokens come from the template only: one in a message of a user is plain text.
    """
    inputs = [path for path in (arguments.file, arguments.tools) if path]
    require_files([path for path in inputs if path != STANDARD_INPUT])
    require_other_files([arguments.output], [*inputs, *tokenizer_files(arguments)])
    kwargs = _parse_kwargs(arguments.kwargs)
    tools = _read_tools(arguments.tools)
    conversations = _read_conversations(arguments.file)
    tokenizer = load_tokenizer(arguments)
    template = _template(arguments.template, tokenizer)

    def render() -> Iterator[bytes]:
        for where, conversation in conversations:
            given = conversation.tools if tools is None else tools
            try:
                encoding = tokenizer.encode_chat(
                    conversation.messages,
                    tools=given,
                    documents=conversation.documents,
                    chat_template=template,
                    add_generation_prompt=arguments.generation_prompt,
                    template_kwargs={**conversation.template_kwargs, **kwargs},
                    messages_form="decoded",
                    add_special_tokens=arguments.add_special_tokens,
                )
            except ChatError as error:
                raise CommandError(f"{where}: {error}") from error
            note = f"note: {where}, "
            for index, name in left_out(encoding.rendered):
                place = f"messages[{index}].{name}"
                print(f"{note}{place}: the chat template writes nothing of it", file=sys.stderr)
            if given and not knows_tools(tokenizer.chat_templates, template):
                print(f"{note}tools: the chat template does not know them", file=sys.stderr)
            yield from _render(encoding, tokenizer, arguments)

    write_output(arguments.output, render())


def _render(
    encoding: ChatEncoding, tokenizer: Tokenizer, arguments: argparse.Namespace
) -> Iterator[bytes]:
    if arguments.form == "pieces":
        is_coloured = arguments.output == STANDARD_OUTPUT and has_colours(sys.stdout)
        blocks = [encoding.ids.tolist()]
        yield from render_pieces(blocks, tokenizer.spec.vocab, is_coloured=is_coloured)
    elif arguments.form == "text":
        yield encoding.text.encode()
        if not encoding.text.endswith("\n") and sys.stdout.isatty():
            yield b"\n"
    elif arguments.form == "count":
        yield b"%d\n" % len(encoding.ids)
    else:
        yield (" ".join(map(str, encoding.ids.tolist())) + "\n").encode()


def _read_conversations(path: Path) -> list[tuple[str, Conversation]]:
    """Each conversation in a JSON or JSONL file, and where it is."""
    name = "standard input" if path == STANDARD_INPUT else str(path)
    data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    refuse_packed(name, data, "plain JSON; unpack it first")
    try:
        return [(name, _conversation(read_json(data), name))]
    except StrictJsonError as error:
        if error.code != "malformed_json":  # otherwise it may be JSON lines
            raise CommandError(f"{name} {error}; mend it") from None
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    if not lines:
        raise CommandError(f"{name} is empty; {_FORM}")
    found = []
    for number, line in lines:
        where = f"{name}, line {number}"
        try:
            found.append((where, _conversation(read_json(line), f"{where},")))
        except StrictJsonError as error:
            raise CommandError(f"{where}, {error}; {_FORM}") from None
    return found


def _conversation(value: object, name: str) -> Conversation:
    """A list of messages, or a record, which is read as `corpus encode` reads it."""
    if isinstance(value, list):
        return Conversation(value)
    if not isinstance(value, dict) or not {"messages", "conversations"} & value.keys():
        raise CommandError(f"{name} has no list of messages; {_FORM}")
    try:
        return parse_conversation(json.dumps(value).encode())
    except ConversationError as error:
        raise CommandError(f"{name.removesuffix(',')}: {error}") from None


def _read_tools(path: Path | None) -> list[Any] | None:
    if path is None:
        return None
    try:
        tools = read_json(path.read_bytes())
    except StrictJsonError as error:
        raise CommandError(f"{path} {error}; give a list of tools") from None
    if not isinstance(tools, list):
        raise CommandError(f"{path} has no list; give a JSON list of tools")
    return tools


def _parse_kwargs(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = read_json(text.encode())
    except StrictJsonError as error:
        raise UsageError(f"--kwargs {error}") from None
    if not isinstance(value, dict):
        raise UsageError('--kwargs takes a JSON object, such as {"enable_thinking": false}')
    return value


def _template(word: str | None, tokenizer: Tokenizer) -> str | None:
    """The name of a template, or the source in a file."""
    if word is None and not tokenizer.chat_templates:
        raise CommandError(
            "the tokenizer has no chat template; name a file of one with --template, or publish a "
            "version with it: tokenizer import NAME --name NAME --chat-template FILE"
        )
    if word is None or word in tokenizer.chat_templates:
        return word
    if not Path(word).is_file():
        known = ", ".join(tokenizer.chat_templates) or "none"
        raise CommandError(
            f"the tokenizer has no chat template {word!r} and no file has this name; it has: "
            f"{known}"
        )
    try:
        return Path(word).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{word} is not UTF-8 at byte {error.start}; convert it first") from None
