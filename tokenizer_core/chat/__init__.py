"""Chat templates: from messages to text whose every character has an origin.

`renderer.render_chat` is the way in. Modules that run in child processes import neither numpy nor
the engines, so this package imports nothing.
"""
