"""Faster equivalents of the layers in `engine.model` for the few rows of a plain step or a verify block.

The plain layers stay the reference: they process prompts, and the tests hold both to the same values.
"""
