"""Serve a checkout: `uvicorn app.main:create_app --factory`. Not packaged."""

from tokenizer_service.main import create_app as create_app
