"""The integration tier: servers, databases, object storage, a cluster, a browser."""

import pytest

from tests.integration.s3_server import s3_bucket, s3_server
from tests.integration.server_process import serve
from tests.tokenizer_service.chats import with_templates
from tests.tokenizer_service.conftest import other_spec, small_spec, small_tokenizer
from tokenizer_core.registry import ArtifactStore

__all__ = ["other_spec", "s3_bucket", "s3_server", "small_spec", "small_tokenizer"]


@pytest.fixture(scope="session")
def server(tmp_path_factory, small_spec, other_spec):
    """One server with `starter` and `other`; a test that changes it restores it."""
    root = tmp_path_factory.mktemp("server") / "artifacts"
    ArtifactStore(root).publish(with_templates(small_spec), name="starter")
    ArtifactStore(root).publish(other_spec, name="other")
    with serve(root) as running:
        yield running
        assert "Traceback" not in running.output
