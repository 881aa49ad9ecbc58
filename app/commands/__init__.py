"""The subcommands of `tokenizer`, one module a group: `serving`, `training`, `text`, `artifacts`,
`evaluation`.

Each has `add_parsers`, which adds its subcommands with help that teaches, and functions that run
them. `command_line` holds what they share.
"""
