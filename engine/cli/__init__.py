"""The `inkstand` command: one module per subcommand, each with `add_parser` and `run`.

Modules here import nothing heavy at their top; MLX and the model code are imported when a command runs, so that help
and argument errors are immediate.
"""
