"""Old name of `app.http.protocol`, documented for `uvicorn --http`; removed in the next release."""

from app.http.protocol import GuardedHttpProtocol

__all__ = ["GuardedHttpProtocol"]
