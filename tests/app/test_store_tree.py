"""Random sequences of everything a user can do to chats, compared with a model in plain Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.store.export import export_json
from app.store.history import History
from app.store.importing import import_json
from app.store.records import Answer

_TEXT = st.text(alphabet="abc é潮\n\"'*", max_size=12)


@dataclass
class Node:
    parent: int | None
    content: str
    state: str = "done"
    children: list[int] = field(default_factory=list[int])
    active: int | None = None


@dataclass
class Tree:
    nodes: dict[int, Node] = field(default_factory=dict[int, Node])
    roots: list[int] = field(default_factory=list[int])
    active: int | None = None
    deleted: bool = False

    def path(self) -> list[int]:
        path: list[int] = []
        at = self.active
        while at is not None:
            path.append(at)
            at = self.nodes[at].active
        return path

    def add(self, number: int, parent: int | None, content: str, state: str) -> None:
        self.nodes[number] = Node(parent, content, state)
        (self.roots if parent is None else self.nodes[parent].children).append(number)
        self.choose(number)

    def choose(self, number: int) -> None:
        parent = self.nodes[number].parent
        if parent is None:
            self.active = number
        else:
            self.nodes[parent].active = number

    def activate(self, number: int) -> None:
        at: int | None = number
        while at is not None:
            self.choose(at)
            at = self.nodes[at].parent

    def siblings(self, number: int) -> tuple[int, ...]:
        parent = self.nodes[number].parent
        return tuple(self.roots if parent is None else self.nodes[parent].children)


class HistoryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "chats.db"
        self.history = History.open(self.path)
        self.trees: dict[int, Tree] = {}

    def teardown(self) -> None:
        self.history.close()
        self.folder.cleanup()

    def pick_tree(self, data: st.DataObject, fits: Callable[[Tree], bool] = lambda _: True) -> tuple[int, Tree] | None:
        candidates = [(chat_id, tree) for chat_id, tree in self.trees.items() if fits(tree)]
        return data.draw(st.sampled_from(candidates)) if candidates else None

    def pick_node(self, data: st.DataObject, fits: Callable[[Node], bool] = lambda _: True) -> tuple[Tree, int] | None:
        candidates = [
            (tree, number) for tree in self.trees.values() for number, node in tree.nodes.items() if fits(node)
        ]
        return data.draw(st.sampled_from(candidates)) if candidates else None

    @initialize()
    def first_chat(self) -> None:
        self.create()

    @precondition(lambda self: len(self.trees) < 4)
    @rule()
    def create(self) -> None:
        self.trees[self.history.chats.create().id] = Tree()

    @rule(data=st.data(), content=_TEXT)
    def send(self, data: st.DataObject, content: str) -> None:
        if picked := self.pick_tree(data):
            chat_id, tree = picked
            sent = self.history.messages.send(chat_id, content)
            tree.add(sent.id, (tree.path() or [None])[-1], content, "done")
            assert sent.parent_id == tree.nodes[sent.id].parent

    @rule(data=st.data(), content=_TEXT)
    def edit(self, data: st.DataObject, content: str) -> None:
        if picked := self.pick_node(data):
            tree, number = picked
            tree.add(self.history.messages.edit(number, content).id, tree.nodes[number].parent, content, "done")

    @rule(data=st.data())
    def begin_answer(self, data: st.DataObject) -> None:
        if picked := self.pick_node(data):
            tree, number = picked
            tree.add(self.history.messages.begin_answer(number).id, number, "", "streaming")

    @rule(data=st.data(), content=_TEXT)
    def save_answer(self, data: st.DataObject, content: str) -> None:
        if picked := self.pick_node(data, lambda node: node.state == "streaming"):
            tree, number = picked
            self.history.messages.save_answer(number, Answer(content=content))
            tree.nodes[number].content = content

    @rule(data=st.data(), content=_TEXT, state=st.sampled_from(["done", "stopped", "failed"]))
    def finish_answer(self, data: st.DataObject, content: str, state: str) -> None:
        if picked := self.pick_node(data, lambda node: node.state == "streaming"):
            tree, number = picked
            self.history.messages.finish_answer(number, Answer(content=content), state=state)
            tree.nodes[number].content, tree.nodes[number].state = content, state

    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        if picked := self.pick_node(data):
            tree, number = picked
            path = [message.id for message in self.history.messages.activate(number)]
            tree.activate(number)
            assert path == tree.path()
            assert number in path

    @precondition(lambda self: len(self.trees) < 4)
    @rule(data=st.data())
    def duplicate(self, data: st.DataObject) -> None:
        if picked := self.pick_tree(data, lambda tree: not tree.deleted):
            self.adopt(self.history.chats.duplicate(picked[0]).id, picked[1])

    @precondition(lambda self: len(self.trees) < 4)
    @rule(data=st.data())
    def export_and_import(self, data: st.DataObject) -> None:
        if picked := self.pick_tree(data, lambda tree: not tree.deleted):
            exported = export_json(self.history, [picked[0]])
            (copy,) = import_json(self.history, exported).chat_ids
            assert export_json(self.history, [copy]) == exported
            self.adopt(copy, picked[1])

    def adopt(self, copy_id: int, original: Tree) -> None:
        """Takes a copy's numbers over into a model that must be like the original's, in the same order."""
        with self.history.database.read() as connection:
            rows = connection.execute("SELECT id FROM messages WHERE chat_id = ? ORDER BY id", (copy_id,)).fetchall()
        new = dict(zip(sorted(original.nodes), (number for (number,) in rows), strict=True))
        self.trees[copy_id] = Tree(
            nodes={
                new[number]: Node(
                    parent=None if node.parent is None else new[node.parent],
                    content=node.content,
                    state="stopped" if node.state == "streaming" else node.state,
                    children=[new[child] for child in node.children],
                    active=None if node.active is None else new[node.active],
                )
                for number, node in original.nodes.items()
            },
            roots=[new[root] for root in original.roots],
            active=None if original.active is None else new[original.active],
        )

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if picked := self.pick_tree(data, lambda tree: not tree.deleted):
            self.history.chats.delete(picked[0])
            picked[1].deleted = True

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        if picked := self.pick_tree(data, lambda tree: tree.deleted):
            self.history.chats.undo_delete(picked[0])
            picked[1].deleted = False

    @rule()
    def purge(self) -> None:
        gone = [chat_id for chat_id, tree in self.trees.items() if tree.deleted]
        assert self.history.chats.purge_deleted(0) == len(gone)
        for chat_id in gone:
            del self.trees[chat_id]

    @rule()
    def reopen(self) -> None:
        self.history.close()
        self.history = History.open(self.path)
        for tree in self.trees.values():
            for node in tree.nodes.values():
                node.state = "stopped" if node.state == "streaming" else node.state

    @invariant()
    def nothing_is_lost_and_paths_are_right(self) -> None:
        assert {chat.id for chat in self.history.chats.list()} == {
            i for i, tree in self.trees.items() if not tree.deleted
        }
        for chat_id, tree in self.trees.items():
            path = self.history.messages.path(chat_id)
            assert [message.id for message in path] == tree.path()
            assert all(message.siblings == tree.siblings(message.id) for message in path)
        with self.history.database.read() as connection:
            stored = {
                row[0]: row[1:] for row in connection.execute("SELECT id, parent_id, content, state FROM messages")
            }
        assert stored == {
            number: (node.parent, node.content, node.state)
            for tree in self.trees.values()
            for number, node in tree.nodes.items()
        }

    @invariant()
    def the_search_index_is_that_of_the_tables(self) -> None:
        with self.history.database.write() as connection:
            for index in ("message_index", "title_index"):
                connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")


HistoryMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestHistoryMachine = HistoryMachine.TestCase
