"""Templates in the shapes of public families, with the added tokens of each, written for the suite
against typed control tokens. A name is that of the family whose tokens and joins it has.

`special` and `written` are control tokens: special ones, and those that the template's literals
write. `fim` are tokens of code models for filling in the middle; where nothing writes them and they
are not special, they are control tokens only if the import names them.
"""

from dataclasses import dataclass

from tokenizer_core import Tokenizer, TokenizerSpec
from tokenizer_core.normalizers import Normalizer, normalizer_of
from tokenizer_core.normalizers.step import NormalizerStep
from tokenizer_core.spec import AddedToken

MESSAGES = "{% for m in messages %}"
CONTENT = """\
{%- set ns = namespace(c='') %}
{%- if m.content is string %}{% set ns.c = m.content %}
{%- elif m.content is mapping %}{% set ns.c = m.content|tojson %}
{%- else %}{% for part in m.content or [] %}
{%- if part.type == 'text' %}{% set ns.c = ns.c + part.text %}
{%- else %}{% set ns.c = ns.c + 'MEDIA' + (part.image or part.image_url.url or '') %}{% endif %}
{%- endfor %}{% endif %}{% set c = ns.c %}"""
"""Sets `c`, the text of a message: parts joined, and for media what the family writes for them."""


@dataclass(frozen=True)
class Family:
    """A template and the added tokens around it."""

    template: str
    special: tuple[str, ...]
    written: tuple[str, ...] = ()
    fim: tuple[str, ...] = ()
    media: str = ""
    """What the template writes for an image."""
    others: tuple[str, ...] = ()
    """Added tokens that are neither special nor written: tokens in all text."""
    fim_template: str = ""
    flags: tuple[str, ...] = ()
    normalizer: str | Normalizer = "none"
    pattern: str = "gpt2"
    shared: str = ""
    """The real vocabulary in the shared data that has these tokens."""

    @property
    def control(self):
        """Each token that no user may write; `fim` by its name if by nothing else."""
        return self.special + self.written + self.fim

    @property
    def soft(self):
        """Control tokens that are not special: the assistant's messages may hold them."""
        return frozenset(self.written + self.fim)

    def tokenizer(self, spec, engine):
        """A tokenizer with the templates of the family."""
        source = CONTENT.replace("MEDIA", self.media).join(self.template.split("CONTENT"))
        templates = {"default": source}
        if self.fim_template:
            templates["fim"] = self.fim_template
        return Tokenizer.from_spec(spec, engine=engine).with_chat_templates(
            templates,
            variables={"bos_token": self.special[0], "eos_token": self.special[-1]},
            control_tokens=() if self.fim_template else self.fim,
        )

    def spec(self):
        """Single bytes and the added tokens."""
        flags = dict.fromkeys(self.flags, True)
        contents = [*self.control, *self.others]
        tokens = [
            AddedToken(content, 256 + index, special=content in self.special, **flags)
            for index, content in enumerate(contents)
        ]
        return TokenizerSpec.from_merges(
            {byte: bytes([byte]) for byte in range(256)},
            [],
            tokens,
            pattern=self.pattern,
            normalizer=self.normalizer,
        )


def tokens(text):
    return tuple(text.split())


# What several families write alike.
TOOLS_AS_JSON = "{% for t in tools or [] %}{{ t|tojson }}\n{% endfor %}"
DOCUMENTS = "{% for d in documents or [] %}{{ d.title }}{{ d.text }}{{ d|tojson }}{% endfor %}"
HINT = "{{ hint }}"
REASON = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
CALLS_AS_JSON = "{% for call in m.tool_calls or [] %}{{ call|tojson }}{% endfor %}"

_CHATML = (
    "{% if tools %}<|im_start|>system\n"
    + HINT
    + "<tools>"
    + TOOLS_AS_JSON
    + "</tools><|im_end|>\n{% endif %}"
    + MESSAGES
    + "CONTENT{{- '<|im_start|>' + (m.role if m.role != 'tool' else 'user') + '\n' }}"
    "{% if m.role == 'tool' %}<tool_response>\n{{ c|trim }}\n</tool_response>"
    "{% else %}" + REASON + "{{ c|trim }}"
    "{% for call in m.tool_calls or [] %}{% set f = call.function or call %}"
    '<tool_call>\n{"name": "{{ f.name }}", "arguments": '
    "{{ f.arguments if f.arguments is string else f.arguments|tojson }}}\n</tool_call>{% endfor %}"
    "{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
_QWEN_TOOLS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_QWEN_FIM = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>")

FAMILIES = {
    "ChatML": Family(
        MESSAGES + "CONTENT<|im_start|>{{ m.role }} {{ m.name }}\n{{ c }}<|im_end|>\n{% endfor %}",
        ("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    ),
    "Qwen 3": Family(
        _CHATML,
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>"),
        ("<think>", "</think>", *_QWEN_TOOLS),
        _QWEN_FIM,
        normalizer=normalizer_of("nfc"),
        pattern="qwen2",
        shared="vocab/qwen3.tokenizer.json",
    ),
    "Qwen 2.5 Coder": Family(
        _CHATML.replace("<think>\n", ""),
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        (*_QWEN_TOOLS, "<think>", "</think>"),
        _QWEN_FIM,
        fim_template="{% for m in messages %}<|repo_name|>{{ m.name }}<|file_sep|><|fim_prefix|>"
        "{{ m.content }}<|fim_suffix|>{{ m.suffix }}<|fim_middle|>{% endfor %}",
        normalizer=normalizer_of("nfc"),
        pattern="qwen2",
    ),
    "Qwen 2.5 VL": Family(
        MESSAGES + "CONTENT{{ '<|im_start|>' ~ m.role ~ '\n' ~ c }}<|im_end|>\n{% endfor %}",
        tokens(
            "<|endoftext|> <|im_start|> <|im_end|> <|vision_start|> <|vision_end|> <|image_pad|> "
            "<|video_pad|>"
        ),
        media="<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "DeepSeek V3": Family(
        "{{ bos_token }}" + HINT + MESSAGES + "CONTENT{% if m.role == 'system' %}{{ c }}"
        "{% elif m.role == 'user' %}{{ '<｜User｜>' + c }}"
        "{% elif m.role == 'tool' %}{{ '<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + c "
        "+ '<｜tool▁output▁end｜><｜tool▁outputs▁end｜>' }}"
        "{% else %}<｜Assistant｜>" + REASON + "{{ c.split('</think>')[-1] }}"
        "{% for call in m.tool_calls or [] %}{% set f = call.function or call %}"
        "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + (call.type or '') + '<｜tool▁sep｜>' "
        "+ f.name + '\n```json\n' + (f.arguments if f.arguments is string else f.arguments|tojson) "
        "+ '<｜tool▁call▁end｜><｜tool▁calls▁end｜>' }}{% endfor %}<｜end▁of▁sentence｜>"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜><think>{% endif %}",
        ("<｜begin▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜end▁of▁sentence｜>"),
        tokens(
            "<｜User｜> <｜Assistant｜> <think> </think> <｜tool▁calls▁begin｜> "
            "<｜tool▁calls▁end｜> <｜tool▁call▁begin｜> <｜tool▁call▁end｜> <｜tool▁sep｜> "
            "<｜tool▁outputs▁begin｜> <｜tool▁outputs▁end｜> <｜tool▁output▁begin｜> "
            "<｜tool▁output▁end｜>"
        ),
        ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"),
        shared="vocab_open/deepseek_v3.tokenizer.json",
    ),
    "DeepSeek Coder": Family(
        "{{ bos_token }}" + MESSAGES + "CONTENT{% if m.role == 'user' %}### Instruction:\n{{ c }}\n"
        "{% else %}### Response:\n{{ c }}\n<|EOT|>\n{% endif %}{% endfor %}",
        ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        ("<|EOT|>",),
        ("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"),
        others=("õ", "  "),
        fim_template="<｜fim▁begin｜>{{ messages[0].content }}<｜fim▁hole｜>"
        "{{ messages[0].suffix }}<｜fim▁end｜>",
    ),
    "StarCoder 2": Family(
        "{{ bos_token }}" + MESSAGES + "CONTENT{{ m.role|upper }}\n{{ c }}\n\n{% endfor %}",
        tokens(
            "<|endoftext|> <fim_prefix> <fim_middle> <fim_suffix> <fim_pad> <repo_name> "
            "<file_sep> <issue_start>"
        ),
    ),
    "Code Llama": Family(
        "{{ bos_token }}" + MESSAGES + "CONTENT{% if m.role == 'user' %}[INST] {{ c|trim }} [/INST]"
        "{% else %} {{ c|trim }} {{ eos_token }}{{ bos_token }}{% endif %}{% endfor %}",
        ("<s>", "<unk>", "▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>", "</s>"),
    ),
    "Llama 2": Family(
        "{{ bos_token }}" + MESSAGES + "CONTENT{% if m.role == 'system' %}<<SYS>>\n{{ c }}\n"
        "<</SYS>>\n\n{% elif m.role == 'user' %}[INST] {{ c|trim }} [/INST]"
        "{% else %} {{ c|trim }} {{ eos_token }}{% endif %}{% endfor %}",
        ("<s>", "<unk>", "</s>"),
        flags=("normalized",),
        shared="vocab_open/llama2.tokenizer.json",
    ),
    "Llama 3.1": Family(
        "{{ bos_token }}"
        + MESSAGES
        + "CONTENT{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + HINT }}".replace(
            "HINT", "(hint or '')"
        )
        + "{% if loop.first %}{% for t in tools or [] %}{{ t|tojson(indent=4) }}{% endfor %}"
        "{% endif %}{% if m.tool_calls %}{% set f = m.tool_calls[0].function %}"
        "{{ '<|python_tag|>' + f.name + '.call(' }}{% for k, v in f.arguments.items() %}"
        "{{ k + '=\"' + v|string + '\"' }}{% endfor %}){{ '<|eom_id|>' }}"
        "{% else %}{{ c|trim if m.role != 'tool' else c|tojson }}{{ '<|eot_id|>' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|"
        ">\n\n' }}{% endif %}",
        tokens(
            "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|python_tag|> <|eom_id|> "
            "<|eot_id|>"
        ),
        shared="vocab/llama3_1.tokenizer.json",
    ),
    "Mistral": Family(
        "{{ bos_token }}" + MESSAGES + "CONTENT{% if m.role == 'user' %}"
        "{% if tools and loop.last %}[AVAILABLE_TOOLS] [" + TOOLS_AS_JSON + "][/AVAILABLE_TOOLS]"
        "{% endif %}[INST] {{ c }}[/INST]{% elif m.role == 'tool' %}"
        '[TOOL_RESULTS] {"content": {{ c|string }}, "call_id": "{{ m.tool_call_id }}"}'
        "[/TOOL_RESULTS]{% elif m.tool_calls %}[TOOL_CALLS] [{% for call in m.tool_calls %}"
        '{% set out = call.function|tojson %}{{ out[:-1] }}, "id": "{{ call.id }}"}{% endfor %}]'
        "{{ eos_token }}{% elif m.role == 'system' %}[SYSTEM_PROMPT]{{ c }}[/SYSTEM_PROMPT]"
        "{% else %} {{ c }}{{ eos_token }}{% endif %}{% endfor %}",
        tokens(
            "<s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS] "
            "[/TOOL_RESULTS] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [PREFIX] [MIDDLE] [SUFFIX] [IMG] "
            "</s>"
        ),
        media="[IMG]",
    ),
    "Gemma 3": Family(
        "{{ bos_token }}" + MESSAGES + "CONTENT{{ '<start_of_turn>' + ('model' if m.role == "
        "'assistant' else m.role) + '\n' + (c|trim) + '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        ("<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<eos>"),
        fim=("<fim_prefix>", "<fim_middle>", "<fim_suffix>"),
        media="<start_of_image>",
        others=("\n\n", "  "),
    ),
    "Phi 3": Family(
        MESSAGES + "CONTENT{% if m.role == 'system' %}{{ '<|system|>\n' + c + '<|end|>\n' }}"
        "{% elif m.role == 'user' %}{{ '<|user|>\n' + c + '<|end|>\n' }}"
        "{% elif m.role == 'assistant' %}{{ '<|assistant|>\n' + c + '<|end|>\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
        ("<s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"),
        flags=("rstrip",),
    ),
    "Phi 4 mini": Family(
        MESSAGES + "CONTENT{% if m.role == 'system' and tools %}{{ '<|' + m.role + '|>' + c + "
        "'<|tool|>' + tools|string + '<|/tool|>' + '<|end|>' }}"
        "{% else %}{{ '<|' + m.role + '|>' + c + '<|end|>' }}{% endif %}{% endfor %}",
        ("<|endoftext|>", "<|end|>"),
        ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|/tool|>"),
    ),
    "gpt-oss": Family(
        "<|start|>system<|message|>{{ model_identity }}{{ hint }}<|end|>"
        "{% for t in tools or [] %}// {{ t.function.description }}\ntype {{ t.function.name }} = "
        "{% for k, v in t.function.parameters.properties.items() %}{{ k }}: {{ v.type }} "
        "// {{ v.description }}{{ v.enum|join(' | ') }}{% endfor %}{% endfor %}"
        "{% set last = namespace(name='') %}" + MESSAGES + "CONTENT{% if m.tool_calls %}"
        "{% set f = m.tool_calls[0].function %}{% set last.name = f.name %}"
        "{% if m.reasoning_content %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + "
        "m.reasoning_content + '<|end|>' }}{% endif %}"
        "{{ '<|start|>assistant to=functions.' + f.name + '<|channel|>commentary json<|message|>' "
        "}}{{ f.arguments|tojson }}{{ '<|call|>' }}{% elif m.role == 'tool' %}"
        "{{ '<|start|>functions.' + last.name + ' to=assistant<|channel|>commentary<|message|>' + "
        "c|tojson + '<|end|>' }}{% else %}{{ '<|start|>' + m.role + '<|message|>' + c }}"
        "{{ '<|return|>' if loop.last else '<|end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        tokens(
            "<|startoftext|> <|start|> <|message|> <|channel|> <|call|> <|end|> <|constrain|> "
            "<|endofprompt|> <|return|>"
        ),
    ),
    "GLM 4.5": Family(
        "[gMASK]<sop>{% if tools %}<|system|>\n<tools>"
        + TOOLS_AS_JSON
        + "</tools>{% endif %}"
        + MESSAGES
        + "CONTENT{% if m.role == 'tool' %}<|observation|>\n<tool_response>\n{{ c }}\n"
        "</tool_response>{% else %}<|{{ m.role }}|>\n"
        "{% if m.role == 'assistant' %}{{ '<think>' + (m.reasoning_content or '') + '</think>' }}"
        "{% endif %}{{ c }}{% for call in m.tool_calls or [] %}{% set f = call.function or call %}"
        "{{ '<tool_call>' + f.name }}{% for k, v in f.arguments.items() %}<arg_key>{{ k }}"
        "</arg_key><arg_value>{{ v|tojson if v is not string else v }}</arg_value>{% endfor %}"
        "</tool_call>{% endfor %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        tokens("<|endoftext|> [gMASK] <sop> <|system|> <|user|> <|assistant|> <|observation|>"),
        tokens(
            "<think> </think> <tool_call> </tool_call> <tool_response> </tool_response> "
            "<arg_key> </arg_key> <arg_value> </arg_value>"
        ),
        ("<|code_prefix|>", "<|code_middle|>", "<|code_suffix|>"),
    ),
    "Kimi K2": Family(
        "{% if tools %}<|im_system|>tool_declare<|im_middle|>{{ tools|tojson }}<|im_end|>"
        "{% endif %}" + MESSAGES + "CONTENT{% set n = m.name or m.role %}{% if m.role == 'user' %}"
        "<|im_user|>{{ n }}<|im_middle|>{% elif m.role == 'assistant' %}<|im_assistant|>{{ n }}"
        "<|im_middle|>{% else %}<|im_system|>{{ n }}<|im_middle|>{% endif %}"
        "{% if m.tool_calls %}{{ c }}<|tool_calls_section_begin|>{% for call in m.tool_calls %}"
        "<|tool_call_begin|>{{ call.id }}<|tool_call_argument_begin|>{{ call.function.arguments if "
        "call.function.arguments is string else call.function.arguments|tojson }}<|tool_call_end|>"
        "{% endfor %}<|tool_calls_section_end|>{% elif m.role == 'tool' %}"
        "## Return of {{ m.tool_call_id }}\n{{ c }}{% else %}{{ c }}{% endif %}<|im_end|>"
        "{% endfor %}{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>"
        "{% endif %}",
        tokens(
            "[BOS] <|im_end|> <|im_user|> <|im_assistant|> <|im_system|> <|im_middle|> [EOT] "
            "<|media_start|> <|media_pad|> [EOS]"
        ),
        tokens(
            "<|tool_calls_section_begin|> <|tool_calls_section_end|> <|tool_call_begin|> "
            "<|tool_call_argument_begin|> <|tool_call_end|>"
        ),
    ),
    "Command R7B": Family(
        "{{ bos_token }}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{{ hint }}"
        + DOCUMENTS
        + '{% for t in tools or [] %}{"name": "{{ t.function.name }}", "description": '
        '"{{ t.function.description }}", "parameters": {{ t.function.parameters|tojson }}}'
        "{% endfor %}<|END_OF_TURN_TOKEN|>" + MESSAGES + "CONTENT<|START_OF_TURN_TOKEN|>"
        "{% if m.role == 'user' %}<|USER_TOKEN|>{{ c }}{% elif m.role == 'assistant' %}"
        "<|CHATBOT_TOKEN|>{% if m.tool_calls %}<|START_THINKING|>{{ m.reasoning_content }}"
        "<|END_THINKING|><|START_ACTION|>" + CALLS_AS_JSON + "<|END_ACTION|>{% else %}"
        "<|START_RESPONSE|>{{ c }}<|END_RESPONSE|>{% endif %}{% elif m.role == 'tool' %}"
        '<|SYSTEM_TOKEN|><|START_TOOL_RESULT|>{"tool_call_id": "{{ m.tool_call_id }}", '
        '"content": {{ c|tojson }}}<|END_TOOL_RESULT|>{% else %}<|SYSTEM_TOKEN|>{{ c }}'
        "{% endif %}<|END_OF_TURN_TOKEN|>{% endfor %}",
        tokens(
            "<BOS_TOKEN> <|START_OF_TURN_TOKEN|> <|END_OF_TURN_TOKEN|> <|USER_TOKEN|> "
            "<|CHATBOT_TOKEN|> <|SYSTEM_TOKEN|> <EOS_TOKEN>"
        ),
        tokens(
            "<|START_THINKING|> <|END_THINKING|> <|START_ACTION|> <|END_ACTION|> "
            "<|START_RESPONSE|> <|END_RESPONSE|> <|START_TOOL_RESULT|> <|END_TOOL_RESULT|>"
        ),
    ),
    "Granite 3": Family(
        "{% if documents %}<|start_of_role|>documents<|end_of_role|>{% for d in documents %}"
        "Document {{ loop.index0 }}\n{{ d.text|indent(2) }}{{ d.title }}{% endfor %}"
        "<|end_of_text|>{% endif %}{% if tools %}<|start_of_role|>tools<|end_of_role|>"
        "{{ tools|tojson(indent=4) }}<|end_of_text|>{% endif %}" + MESSAGES + "CONTENT"
        "{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + c + '<|end_of_text|>\n' }}"
        "{% if m.tool_calls %}<|tool_call|>" + CALLS_AS_JSON + "{% endif %}{% endfor %}"
        "{% if controls %}{{ '<|start_of_role|>assistant ' + controls|tojson + '<|end_of_role|>' }}"
        "{% endif %}",
        tokens(
            "<|end_of_text|> <fim_prefix> <fim_middle> <fim_suffix> <fim_pad> <|start_of_role|> "
            "<|end_of_role|> <|tool_call|>"
        ),
        others=("    ",),
    ),
    "MiniMax M2": Family(
        "{{ ']~!b[' ~ ']~b]system' ~ '\n' }}{{ hint }}<tools>{% for t in tools or [] %}<tool>"
        "{{ t.function|tojson }}</tool>{% endfor %}</tools>{{ '[e~[\n' }}"
        + MESSAGES
        + "CONTENT{{ ']~b]' ~ ('ai' if m.role == 'assistant' else m.role) ~ '\n' }}"
        + REASON
        + '{{ c }}{% for call in m.tool_calls or [] %}<minimax:tool_call>\n<invoke name="'
        '{{ call.function.name }}">{% for k, v in call.function.arguments|items %}<parameter name='
        '"{{ k }}">{{ v|tojson if v is not string else v }}</parameter>{% endfor %}</invoke>'
        "</minimax:tool_call>{% endfor %}{{ '[e~[\n' }}{% endfor %}",
        ("]~!b[", "]~b]", "[e~["),
        ("<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"),
        ("<fim_prefix>", "<fim_middle>", "<fim_suffix>"),
    ),
    "Hunyuan": Family(
        "{{ '<｜hy_begin{}｜>'.format(suffix) }}" + MESSAGES + "CONTENT"
        "{{ '<｜hy_%s｜>' % m.role|capitalize }}{{ c }}{{ '<｜hy_end{}｜>'.format('') }}"
        "{% endfor %}",
        ("<｜hy_begin｜>", "<｜hy_pad｜>"),
        ("<｜hy_User｜>", "<｜hy_Assistant｜>", "<｜hy_System｜>", "<｜hy_end｜>"),
    ),
    "EXAONE": Family(
        MESSAGES + "CONTENT{{ '[|' + m.role + '|]' + c.strip() }}"
        "{{ '[|endofturn|]\n' }}{% endfor %}"
        "{% if add_generation_prompt %}[|assistant|]{% endif %}",
        ("[BOS]", "[|endofturn|]", "[|system|]", "[|user|]", "[|assistant|]", "[EOS]"),
    ),
    "Seed-OSS": Family(
        "{% for t in tools or [] %}{{ bos_token }}system\n{{ t.function.name }}: "
        "{{ t.function.description }}{{ t.function.parameters|tojson }}{{ eos_token }}{% endfor %}"
        + MESSAGES
        + "CONTENT{{ bos_token ~ m.role ~ '\n' }}{% if m.reasoning_content %}"
        "<seed:think>{{ m.reasoning_content }}</seed:think>{% endif %}{{ c }}"
        "{% for call in m.tool_calls or [] %}<seed:tool_call>\n<function={{ call.function.name }}>"
        "{% for k, v in call.function.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>"
        "{% endfor %}</function></seed:tool_call>{% endfor %}{{ eos_token }}{% endfor %}",
        ("<seed:bos>", "<seed:pad>", "<seed:eos>"),
        ("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    ),
    "With NFKC": Family(
        MESSAGES + "CONTENT<|a|>{{ m.role }}{{ c }}<|b|>{% endfor %}",
        ("<|a|>", "<|b|>", "<|A|>"),
        flags=("normalized",),
        normalizer=normalizer_of(
            "steps", (NormalizerStep("NFKC"), NormalizerStep("Replace", pattern="_", content="|"))
        ),
    ),
}
