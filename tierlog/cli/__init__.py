"""The command line. Modules here import only the standard library and typer at the top, so that `tierlog --help`
answers at once. A command loads what it needs when it runs.

- `app`: the root command and how errors end the process
- `serve`, `topics`, `groups`, `produce`, `consume`, `demo`: one module per command
- `options`: the options that commands share
- `output`: tables, JSON, progress and error texts
- `times`: times as people write them
"""
