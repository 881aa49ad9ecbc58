"""The metrics files of several processes on a disk with space, filling up, and full."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from tokenizer_service.commands import serving
from tokenizer_service.observability import metrics_files
from tokenizer_service.observability.metrics_files import FIRST_BYTES, ReservedFile
from tokenizer_service.settings import Settings

KEYS = [f"{index}-é{'x' * 1000}" for index in range(FIRST_BYTES // 500)]


def written(file: ReservedFile) -> dict[str, tuple[float, float]]:
    for index, key in enumerate(KEYS):
        file.read_value(key)
        file.write_value(key, float(index), 1.0)
    return {key: file.read_value(key) for key in KEYS}


EXPECTED = {key: (float(index), 1.0) for index, key in enumerate(KEYS)}


def test_every_block_of_a_file_is_reserved(tmp_path: Path) -> None:
    path = tmp_path / "counter_1.db"
    file = ReservedFile(str(path))
    assert path.stat().st_blocks * 512 >= path.stat().st_size == FIRST_BYTES
    assert written(file) == EXPECTED
    assert path.stat().st_blocks * 512 >= path.stat().st_size > FIRST_BYTES
    rows = MmapedDict.read_all_values_from_file(str(path))
    assert {key.strip(): (value, stamp) for key, value, stamp, _ in rows} == EXPECTED
    file.close()
    again = ReservedFile(str(path))
    assert {key.strip() for key, _, _ in again.read_all_values()} == set(EXPECTED)
    again.close()


def test_a_file_gets_its_name_after_it_is_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may read every file of the folder at any moment to serve /metrics."""
    seen: list[list[Path]] = []
    reserve = metrics_files._reserve

    def look_and_reserve(descriptor: int, n_bytes: int) -> None:
        seen.append(list(tmp_path.glob("*.db")))
        reserve(descriptor, n_bytes)

    monkeypatch.setattr(metrics_files, "_reserve", look_and_reserve)
    ReservedFile(str(tmp_path / "counter_1.db")).close()
    assert seen == [[]]
    assert [path.name for path in tmp_path.iterdir()] == ["counter_1.db"]


@pytest.mark.row(36)
@pytest.mark.parametrize("n_bytes_free", [0, 3 * FIRST_BYTES])
def test_on_a_full_disk_the_numbers_stay_in_the_process(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    n_bytes_free: int,
) -> None:
    def reserve(descriptor: int, n_bytes: int) -> None:
        if n_bytes > n_bytes_free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(descriptor, 0, n_bytes)

    monkeypatch.setattr(metrics_files, "_reserve", reserve)
    path = tmp_path / "counter_1.db"
    file = ReservedFile(str(path))
    assert written(file) == EXPECTED
    file.close()
    assert not path.exists()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left" in caplog.text


def test_a_missing_folder_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ReservedFile(str(tmp_path / "missing" / "counter_1.db"))


def test_without_a_folder_each_process_counts_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**options: str) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    assert serving._make_metrics_dir(settings.model_copy(update={"workers": 2})) is None
    assert "No space left" in capsys.readouterr().err
