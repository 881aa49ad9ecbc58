"""The subcommands of `tokenizer`, one module a group: `serving`, `training`, `text`, `artifacts`,
`conversion`, `evaluation`, `corpus`.

Each has `add_parsers`, which adds its subcommands with help that teaches, and functions that run
them. `command_line` holds what they share, `vocabulary_files` what two of them do.
"""
