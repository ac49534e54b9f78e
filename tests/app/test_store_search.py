"""Search: what is found, how it is shown, and that every text is a query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import Clock, exchange

from app.store.history import History
from app.store.records import Answer, SearchHit


@pytest.fixture
def history() -> Iterator[History]:
    with closing(History.in_memory(clock=Clock(step=1.0))) as history:
        yield history


@pytest.fixture(scope="module")
def library() -> Iterator[History]:
    """One chat per text below."""
    with closing(History.in_memory(clock=Clock(step=1.0))) as history:
        for text in TEXTS:
            history.messages.send(history.chats.create(title="untitled").id, text)
        yield history


TEXTS = (
    "Tide pools hold starfish",
    "A café in Zürich serves crème brûlée",
    "Use std::vector in C++ with -O2, not C",
    "潮だまりの生き物について教えて",
    "สวัสดีชาวโลก",
    "if (a != b) { return a->next; } // 100% sure_thing",
    "don't panic, it's a naïve question",
    "Привет, мир",
    'She said "hello there" and left. There was no hello.',
)


def marked(hit: SearchHit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.ranges]


@pytest.mark.parametrize(
    ("query", "text", "marks"),
    [
        ("starfish", 0, ["starfish"]),
        ("STAR", 0, ["star"]),
        ("pools tid", 0, ["Tid", "pools"]),
        ("(tide, pools!)", 0, ["Tide", "pools"]),
        ("cafe zurich", 1, ["café", "Zürich"]),
        ("BRÛLÉE", 1, ["brûlée"]),
        ("bru\u0302le\u0301e", 1, ["brûlée"]),
        ("c++", 2, ["C++"]),
        ("-O2", 2, ["-O2"]),
        ("std::vector", 2, ["std::vector"]),
        ("生き物", 3, ["生き物"]),
        ("潮 教", 3, ["潮", "教"]),
        ("ชาวโลก", 4, ["ชาวโลก"]),
        ("->", 5, ["->"]),
        ("100%", 5, ["100%"]),
        ("sure_thing", 5, ["sure_thing"]),
        ("{ }", 5, ["{", "}"]),
        ("don't", 6, ["don't"]),
        ("naive", 6, ["naïve"]),
        ("МИР", 7, ["мир"]),
        ('"hello there"', 8, ["hello there"]),
        ('"hello the', 8, ["hello", "the", "The", "hello"]),
    ],
)
def test_finds(library: History, query: str, text: int, marks: list[str]) -> None:
    (hit,) = library.search(query)
    assert hit.snippet == TEXTS[text]
    assert marked(hit) == marks
    assert hit.title_ranges == ()


@pytest.mark.parametrize(
    "query", ["", " ", '""', "\0", "ools", "tide pancakes", '"there hello"', "海", "AND NOT", "tide AND", "c+++", "*"]
)
def test_does_not_find(library: History, query: str) -> None:
    assert library.search(query) == []


@given(query=st.text(max_size=80) | st.text(alphabet="\"*^:()-+{}AND NORT\\%_'ab\0", max_size=30))
def test_any_text_is_a_query(library: History, query: str) -> None:
    for hit in library.search(query):
        assert all(0 <= start < end <= len(hit.snippet) for start, end in hit.ranges)


@given(text=st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=40))
def test_every_word_of_a_message_finds_it(text: str) -> None:
    with closing(History.in_memory()) as history:
        history.messages.send(history.chats.create(title="untitled").id, text)
        for word in text.split():
            if all(ord(character) < 0x3000 and character.isalnum() for character in word):
                assert len(history.search(word)) == 1, word


def test_a_very_long_query_is_cut(history: History) -> None:
    history.messages.send(history.chats.create().id, "word")
    assert len(history.search("word " * 100_000)) == 1


def test_titles_are_found_and_marked_with_or_without_a_message(history: History) -> None:
    chat = history.chats.create(title="Tide pools and tides")
    (hit,) = history.search("tide")
    assert (hit.chat, hit.message_id, hit.snippet, hit.ranges) == (chat, None, "", ())
    assert hit.title_ranges == ((0, 4), (15, 19))
    sent = history.messages.send(chat.id, "about the tide")
    (hit,) = history.search("tide")
    assert (hit.message_id, marked(hit)) == (sent.id, ["tide"])
    history.chats.rename(chat.id, "Moon ->")
    assert history.search("pools") == []
    assert [hit.title_ranges for hit in history.search("->")] == [((5, 7),)]


def test_one_hit_per_chat_with_its_newest_match_ordered_by_update(history: History) -> None:
    one, two = history.chats.create(title="x"), history.chats.create(title="y")
    exchange(history, one, "tide one", "no")
    exchange(history, two, "tide two", "no")
    third = history.messages.send(one.id, "tide three")
    history.messages.send(one.id, "other")
    hits = history.search("tide")
    assert [hit.chat.id for hit in hits] == [one.id, two.id]
    assert hits[0].message_id == third.id
    assert [hit.chat.id for hit in history.search("tide", limit=1)] == [one.id]


def test_other_branches_are_found_and_can_be_opened(history: History) -> None:
    chat = history.chats.create(title="x")
    first, answer = exchange(history, chat, "question", "the zanzibarite answer")
    history.messages.edit(first.id, "another question")
    (hit,) = history.search("zanzibarite")
    assert hit.message_id == answer.id
    assert [message.id for message in history.messages.activate(answer.id)] == [first.id, answer.id]


def test_an_answer_is_found_once_it_is_finished(history: History) -> None:
    begun = history.messages.begin_answer(history.messages.send(history.chats.create(title="x").id, "q").id)
    history.messages.save_answer(begun.id, Answer(content="starfish"))
    assert (history.search("starfish"), history.search("*fish")) == ([], [])
    history.messages.finish_answer(begun.id, Answer(content="starfish 海"))
    assert [hit.message_id for hit in history.search("starfish")] == [begun.id]
    assert [hit.message_id for hit in history.search("海")] == [begun.id]


def test_snippets_show_the_surroundings_on_one_line(history: History) -> None:
    history.messages.send(history.chats.create(title="x").id, "start " + "filler\n\n" * 100 + "needle " + "tail " * 100)
    (hit,) = history.search("needle")
    assert hit.snippet.startswith("…filler")
    assert hit.snippet.endswith("tail…")
    assert "\n" not in hit.snippet
    assert len(hit.snippet) <= 142
    assert marked(hit) == ["needle"]


def test_a_match_without_its_accents_deep_in_a_huge_message(history: History) -> None:
    history.messages.send(history.chats.create(title="x").id, "ô " * 40_000 + "crème")
    (hit,) = history.search("creme")
    assert hit.snippet.startswith("ô ô")
    assert hit.ranges == ()
