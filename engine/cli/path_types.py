"""Argparse types for files and folders: what is wrong with one is said before any work begins."""

from __future__ import annotations

import os
import shutil
from argparse import ArgumentTypeError
from pathlib import Path


def non_empty(text: str) -> str:
    """Any text but the empty one."""
    if not text:
        raise ArgumentTypeError("must not be empty")
    return text


def path(text: str) -> Path:
    """Any path that the system can look up; not the empty one, which pathlib takes for the current directory."""
    try:
        os.lstat(non_empty(text))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise ArgumentTypeError(f"{text} cannot be used: {error.strerror}") from error
    return Path(text)


def input_file(text: str) -> Path:
    """A file, pipe or device that is there."""
    file = path(text)
    if not file.exists():
        raise ArgumentTypeError(f"there is no file {file}")
    if file.is_dir():
        raise ArgumentTypeError(f"{file} is a folder; name a file")
    return file


def output_file(text: str) -> Path:
    """A file that can be written, in a folder that is there."""
    file = path(text)
    if file.is_dir():
        raise ArgumentTypeError(f"{file} is a folder; name a file")
    if not file.parent.is_dir():
        raise ArgumentTypeError(f"{file} cannot be written: there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ArgumentTypeError(f"{file} cannot be written: permission denied")
    return file


def home_path(text: str) -> Path:
    """Any path; "~" is the user's home, also where a shell does not see it."""
    try:
        return path(text).expanduser()
    except RuntimeError as error:
        raise ArgumentTypeError(f"there is no home folder of {text.partition('/')[0][1:]}") from error


def folder(text: str) -> Path:
    """A folder, or a path where one can be made."""
    place = home_path(text)
    there = next(p for p in (place, *place.absolute().parents) if p.exists() or p.is_symlink())
    if not there.is_dir():
        wrong = f"{place} is a file" if there == place else f"{place} cannot be written: {there} is a file"
        raise ArgumentTypeError(f"{wrong}; name a folder")
    return place


def output_folder(text: str) -> Path:
    """A folder that can be written, or a path where one can be made."""
    place = folder(text)
    there = next(p for p in (place, *place.absolute().parents) if p.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise ArgumentTypeError(f"{place} cannot be written: {there} may not be changed; name another folder")
    return place


def program(text: str) -> str:
    """Something that can be run, by path or by name."""
    if shutil.which(non_empty(text)) is None:
        raise ArgumentTypeError(f"{text} is no program that can be run")
    return text
