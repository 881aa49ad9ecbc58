"""Chat templates written for the tests; between them they use what public templates use."""

from pathlib import Path

FOLDER = Path(__file__).with_name("templates")
OWN_TEMPLATES = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.jinja"))
}
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>"}


def template_request(chat, variables=VARIABLES):
    """What `ChatTemplate.render` takes, from keyword arguments of `apply_chat_template`."""
    return {
        "tools": None,
        "documents": None,
        "kwargs": {},
        "add_generation_prompt": False,
        "continue_final_message": False,
        **chat,
        "variables": variables,
    }
