"""The subcommands of `tokenizer`, one module per group.

In each group, `add_parsers` adds the subcommands with their help, and the `run_*` functions run
them. `command_line` holds the code that all groups share.
"""
