"""Responses: turn results into bodies, and errors into problem documents."""
