import asyncio
from types import SimpleNamespace

import pytest
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr
from starlette.requests import Request
from starlette.testclient import TestClient

from tests.tokenizer_service.conftest import ADMIN_KEY, serve
from tests.tokenizer_service.routes.exchanges import problem
from tokenizer_service.access.auth import AccessKeys, access_keys, require_admin, require_read
from tokenizer_service.access.errors import KeyRequiredError
from tokenizer_service.main import create_app
from tokenizer_service.settings import SettingsError

READ_KEY = "a-read-key"


def routes(**paths):
    """The (method, path) of these paths, by method."""
    return {(method, path) for method, listed in paths.items() for path in listed.split()}


PUBLIC = routes(
    GET="/livez /readyz /health / /playground/{file}",
)
READ = routes(
    POST="""
        /encode /decode /encode_stream /decode_stream /count /truncate /chunk /verify /align
        /merges /tokenize /detokenize /chat/encode /extend /chat/completions/input_tokens
        /apply-template /models/{model:path}:countTokens /completions/render
        /chat/completions/derender /completions/derender /chat/completions/render
        /messages/render /responses/render /messages/count_tokens /responses/input_tokens
    """,
    GET="""
        /vocab/{token_id} /tokenizer_info /props /info /tokenizers /tokenizers/active
        /tokenizers/{name} /tokenizers/{name}/{version:path}/{file} /models /models/{model:path}
        /metrics /openapi.json /docs /docs/{file}
    """,
)
ADMIN = routes(
    POST="/tokenizers/{name} /rollback /train /corpora/{corpus_id}/encode",
    PUT="/tokenizers/active /models/{model:path} /corpora/{corpus_id}",
    DELETE="""
        /models/{model:path} /tokenizers/{name}/{version} /corpora/{corpus_id} /train/{job_id}
        /token-files/{token_files_id} /jobs/{job_id}
    """,
    GET="""
        /corpora /corpora/{corpus_id} /train /train/{job_id} /train/{job_id}/events /token-files
        /token-files/{token_files_id} /token-files/{token_files_id}/{file} /jobs /jobs/{job_id}
        /jobs/{job_id}/events
    """,
)


def all_routes(settings):
    """(method, path) -> the guards that the route uses."""
    guards = {}
    for context in iter_route_contexts(create_app(settings).routes):
        dependant = context.dependant
        asked = {inner.call for inner in dependant.dependencies}
        for method in context.methods or ():
            guards[method, context.path] = asked & {require_read, require_admin}
    return guards


@pytest.mark.row(23)
def test_every_route_is_guarded_as_listed(settings):
    guards = all_routes(settings)
    bare = {key: asked for key, asked in guards.items() if not key[1].startswith("/v1/")}
    listed = PUBLIC | READ | ADMIN
    assert set(bare) == listed, "a route nobody listed, or one that is gone"
    for key, asked in bare.items():
        wanted = {require_admin} if key in ADMIN else {require_read} if key in READ else set()
        assert asked == wanted, key
        assert guards[key[0], "/v1" + key[1]] == wanted, key
    assert len(guards) == 2 * len(bare)


@pytest.fixture(scope="module")
def locked(shared_store):
    keys = (SecretStr(READ_KEY), SecretStr("schlüssel-é"))
    with serve(shared_store, read_keys=keys) as client:

        def ask(method, path, **headers):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.request(method, path, headers=named, json={})

        yield ask


def concrete(path):
    named = path.replace("{name}", "starter").replace("{job_id}", "x")
    return named.replace("{token_id}", "97").replace("{file}", "page.css")


WRONG_KEYS = [
    {}, {"X_API_Key": ""}, {"X_API_Key": READ_KEY[:-1]}, {"X_API_Key": READ_KEY + "x"},
    {"X_API_Key": ADMIN_KEY[:-1]}, {"Authorization": f"Basic {ADMIN_KEY}"},
    {"Authorization": ADMIN_KEY}, {"X_API_Key": "ключ".encode()}, {"X_API_Key": b"\xff\xfe"},
]  # fmt: skip


@pytest.mark.row(23)
@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("wrong", WRONG_KEYS, ids=range(len(WRONG_KEYS)))
def test_every_guarded_route_refuses_a_wrong_key(locked, wrong, prefix):
    for method, path in READ | ADMIN:
        response = locked(method, prefix + concrete(path) + "?colour=red", **wrong)
        assert response.status_code == 401, path  # the key comes before the query
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        problem(response, 401, "key_required")


def test_a_wrong_key_and_a_missing_key_have_two_texts(locked):
    keys = ({}, {"X_API_Key": ADMIN_KEY[:-1]})
    missing, wrong = (locked("GET", "/info", **key).json()["detail"] for key in keys)
    assert wrong == f"The service does not know the key of this request. {missing}"


@pytest.mark.row(23)
@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_each_key_opens_its_routes(locked, prefix):
    for method, path in ADMIN:
        answer = locked(method, prefix + concrete(path), X_API_Key=READ_KEY)
        assert answer.status_code == 403, path
    for headers in ({"X_API_Key": ADMIN_KEY}, {"Authorization": f"bearer {ADMIN_KEY}"}):
        for method, path in READ | ADMIN:
            answer = locked(method, prefix + concrete(path), **headers)
            assert answer.status_code not in (401, 403), path
    for method, path in PUBLIC:
        assert locked(method, prefix + concrete(path)).status_code == 200, path


@pytest.mark.row(23)
def test_keys_are_replaced_without_a_gap(make_client):
    old, new = "the-old-admin-key", "the-new-admin-key"
    with make_client(admin_keys=(SecretStr(old), SecretStr(new))) as client:
        for key, status in ((old, 200), (new, 200), (old + new, 401)):
            assert client.get("/train", headers={"X-API-Key": key}).status_code == status
        assert client.get("/train").status_code == 401
        assert client.get("/info").status_code == 200  # without read keys, reading is open


@pytest.mark.row(23)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_key_beyond_ascii_in_both_encodings(encoding):
    keys = AccessKeys.of(["secret-admin"], ["schlüssel-é"])
    app = SimpleNamespace(access_keys=keys)

    def ask(name, value):
        scope = {"type": "http", "app": app, "headers": [(name, value)]}
        asyncio.run(require_read(Request(scope)))

    key = "schlüssel-é".encode(encoding)
    ask(b"x-api-key", key)
    ask(b"authorization", b"Bearer " + key)
    with pytest.raises(KeyRequiredError):
        ask(b"x-api-key", key[:-1])
    assert "secret" not in repr(keys)
    assert "schl" not in repr(keys)


def test_without_an_admin_key_one_is_made_and_printed_once(settings, capsys):
    bare = settings.model_copy(update={"admin_keys": ()})
    with TestClient(create_app(bare)) as client:
        printed = capsys.readouterr().err
        [line] = [line for line in printed.splitlines() if line.startswith("admin key")]
        key = line.split(": ")[1]
        assert len(key) >= 32
        assert client.get("/train", headers={"X-API-Key": key}).status_code == 200
        assert client.get("/train", headers={"X-API-Key": key + "x"}).status_code == 401
    with pytest.raises(SettingsError, match="TOKENIZER_ADMIN_KEYS"):
        create_app(bare.model_copy(update={"require_admin_key": True}))
    assert access_keys(settings.model_copy(update={"require_admin_key": True})).admin


@pytest.mark.parametrize("field", ["admin_keys", "read_keys"])
def test_a_short_key_is_refused_where_other_machines_reach_the_service(settings, caplog, field):
    def warnings_of(host, key):
        caplog.clear()
        keys = {"admin_keys": (SecretStr("x" * 16),), field: (SecretStr(key),)}
        create_app(settings.model_copy(update={"host": host, **keys}))
        return "".join(line for line in caplog.messages if "can be guessed" in line)

    with pytest.raises(SettingsError, match=rf"TOKENIZER_{field.upper()}.*rand -hex 32") as raised:
        warnings_of("0.0.0.0", "s3cret!")
    assert "s3cret" not in str(raised.value)
    for host, key in (("127.0.0.1", "k"), ("unix:/run/a.sock", "k"), ("0.0.0.0", "s3cret!!")):
        warned = warnings_of(host, key)
        assert f"TOKENIZER_{field.upper()}" in warned
        assert "openssl rand -hex 32" in warned
        assert "s3cret" not in warned
    assert warnings_of("0.0.0.0", "s3cret!!" * 2) == ""


def test_a_read_key_is_no_admin_key(settings):
    with pytest.raises(SettingsError, match="TOKENIZER_READ_KEYS, so whoever may read may train"):
        create_app(settings.model_copy(update={"read_keys": settings.admin_keys}))
