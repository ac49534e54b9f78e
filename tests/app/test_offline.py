"""Starting, chatting and reading the help use no network."""

from __future__ import annotations

import socket

import pytest
from test_window import done, type_and_send

from app.scripted import Script, scripted_loader
from app.views.help_window import HelpWindow


def test_the_window_asks_no_other_machine(opened, script: Script, wait, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(*arguments: object, **_named: object) -> None:
        asked.append(arguments)
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    gui = opened(scripted_loader(script))
    type_and_send(gui, "![a](https://example.com/a.png) <img src='https://example.com/b.png'>")
    wait(lambda: done(gui))
    gui.window.show_help()
    gui.window.findChild(HelpWindow).open_page("models")
    assert asked == []
