"""Handlers: take a request from its body to its response. They plan it, run it and send it."""
