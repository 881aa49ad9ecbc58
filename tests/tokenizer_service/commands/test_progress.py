"""Progress bars appear on a terminal and nowhere else."""

import pytest

from tokenizer_service.commands.progress import HiddenBar, is_shown


def test_a_hidden_bar_counts_and_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_shown(quiet=False)  # pytest's standard error is not a terminal
    with HiddenBar() as bar:
        bar.update(3)
        bar.set_description("x", refresh=False)
        bar.clear()
    assert bar.n == 3
    assert capsys.readouterr() == ("", "")
