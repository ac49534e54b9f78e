"""The Inkstand application: the composition root of the `inkstand` command."""
