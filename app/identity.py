"""What systems know the program by."""

from __future__ import annotations

APP_ID = "io.github.inkstand.Inkstand"
"""Reverse-DNS name after the project's page, as a project without a domain of its own has it.

The bundle identifier on macOS; on Linux the name of the desktop entry, of its icon and of the window. Signatures and
what a system remembers of the program hang on it, so it stays as it is once a release has gone out.
"""
