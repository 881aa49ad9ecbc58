"""What commands take for granted is what the service does."""

from app.commands.command_line import DEFAULT_ARTIFACTS_DIR, DEFAULT_TOKENIZER
from app.settings import Settings


def test_the_defaults_are_those_of_the_settings() -> None:
    fields = Settings.model_fields
    assert str(fields["artifacts_dir"].default) == DEFAULT_ARTIFACTS_DIR
    assert fields["default"].default == DEFAULT_TOKENIZER
