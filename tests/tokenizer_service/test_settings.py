from pathlib import Path

import pytest

from tests.tokenizer_service.routes.exchanges import OF_PYDANTIC
from tokenizer_service.settings import Settings, SettingsError, describe, missing_corpus_roots


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name, _, _ in describe():
        monkeypatch.delenv(name, raising=False)


def test_variables_are_read(monkeypatch):
    """One of each type, and those with a form of their own."""
    given = {
        "PORT": ("9000", 9000),
        "REQUIRE_ADMIN_KEY": ("1", True),
        "HEADER_SECONDS": ("2.5", 2.5),
        "ENGINE": ("python", "python"),
        "ARTIFACTS_DIR": ("/data", Path("/data")),
        "HOST": ("unix:/run/a.sock", "unix:/run/a.sock"),
        "ALLOWED_HOSTS": ("a.org, *.b.org,", ("a.org", "*.b.org")),
        "CORPUS_ROOTS": ("a:/b", (Path("a"), Path("/b"))),
        "DEFAULT": ("starter@20261121T044841Z-a9df1cc4",) * 2,
        "CORPUS_URL_HOSTS": ("a.org, b:80=10.0.0.0/8,", ("a.org", "b:80=10.0.0.0/8")),
        "CORPUS_S3_PREFIXES": ("s3://a1b, s3://c.d/e f/", ("s3://a1b", "s3://c.d/e f/")),
        "CORS_ORIGINS": ("https://a.org, http://b:8080", ("https://a.org", "http://b:8080")),
        "JOBS_DATABASE": ("postgresql://user:not-to-be-seen@host/jobs", None),
        "ADMIN_KEYS": ("first-key, second-key,", None),
        "READ_KEYS": ("é,x", None),
    }
    assert {f"TOKENIZER_{name}" for name in given} <= {row[0] for row in describe()}
    for name, (text, _) in given.items():
        monkeypatch.setenv(f"TOKENIZER_{name}", text)
    settings = Settings.from_environment()
    for name, (_, value) in given.items():
        if value is not None:
            assert getattr(settings, name.lower()) == value
    assert [key.get_secret_value() for key in settings.admin_keys] == ["first-key", "second-key"]
    assert [key.get_secret_value() for key in settings.read_keys] == ["é", "x"]
    assert settings.jobs_database.get_secret_value() == given["JOBS_DATABASE"][0]
    assert "first-key" not in repr(settings)
    assert "not-to-be-seen" not in repr(settings)


@pytest.mark.parametrize(("text", "n_bytes"), [("64M", 1 << 26), ("2KiB", 2048), ("1 TB", 1 << 40)])
def test_sizes_have_units(monkeypatch, text, n_bytes):
    monkeypatch.setenv("TOKENIZER_MAX_BODY_BYTES", text)
    assert Settings.from_environment().max_body_bytes == n_bytes


def test_defaults_are_those_described():
    settings = Settings.from_environment()
    for variable, default, meaning in describe():
        value = getattr(settings, variable.removeprefix("TOKENIZER_").lower())
        if isinstance(value, tuple):
            assert ":".join(map(str, value)) == default
        elif isinstance(value, float):
            assert float(default) == value
        else:
            assert str(value if value is not None else "").lower() == default.lower()
        assert meaning.endswith(".")


def test_a_wrong_database_is_refused_and_not_repeated(monkeypatch):
    for address in (
        "mysql://user:not-to-be-seen@host/d",
        "user:not-to-be-seen",
        "postgresql://user:p@not-to-be-seen@host/d",
        "postgresql://[not-to-be-seen/d",
    ):
        monkeypatch.setenv("TOKENIZER_JOBS_DATABASE", address)
        with pytest.raises(SettingsError, match="postgresql://user:password@host") as raised:
            Settings.from_environment()
        assert "not-to-be-seen" not in str(raised.value)
    monkeypatch.setenv("TOKENIZER_JOBS_DATABASE", "postgresql://user@host/d")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"tokenizer-service\[postgres\]"):
        Settings.from_environment()


WRONG = [
    ("PORT", "http", "70000"),
    ("WORKERS", "0", "two", "1.5"),
    ("HEADER_SECONDS", "soon", "nan", "0"),
    ("ARTIFACTS_DIR", ""),
    ("ENGINE", "rust"),
    ("LOG_LEVEL", "loud"),
    ("LOG_FORMAT", "xml"),
    ("MAX_BODY_BYTES", "1", "64X"),
    ("LEASE_SECONDS", "0"),
    ("CORPUS_URL_HOSTS", "a.org,http://b.org"),
    ("ALLOWED_HOSTS", "a.org,b.org:8000", ","),
    ("CORPUS_S3_PREFIXES", "bucket", "s3://", "s3://b1c/..", "s3://b1c/*", "S3://b1c", "s3://b//d"),
    ("CORS_ORIGINS", "*", "null", "a.org", "https://a.org/", "https://a.org:443", "https://A.org"),
    ("READ_KEYS", ","),  # without keys everybody may read
    ("ADMIN_KEYS", " , "),
    ("DEFAULT", "Foo", "active", "starter@newest"),
    ("REQUIRE_ADMIN_KEY", "perhaps"),
    ("SOCKET_MODE", "", "rw", "888", "66", "1777"),
    ("HOST", "unix:", "unix:a.sock", "unix:./a", "unix:/run/"),
]


def test_a_wrong_value_names_the_variable(monkeypatch):
    for name, *values in WRONG:
        for value in values:
            with monkeypatch.context() as patch:
                patch.setenv(f"TOKENIZER_{name}", value)
                with pytest.raises(SettingsError, match=f"TOKENIZER_{name}") as caught:
                    Settings.from_environment()
            assert "Unset" in str(caught.value)
            assert not OF_PYDANTIC.search(str(caught.value))


def test_missing_corpus_roots_are_found(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    wrong = [tmp_path / name for name in ("none", "file", "file/below")]
    assert missing_corpus_roots(Settings(corpus_roots=(tmp_path, *wrong))) == wrong
    assert missing_corpus_roots(Settings(corpus_roots=())) == []
    monkeypatch.chdir(tmp_path)
    assert missing_corpus_roots(Settings()) == []  # nobody named the default
