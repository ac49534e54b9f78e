"""Settings are always valid, survive whatever is in their file, and never hold the access token."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from hypothesis import given
from hypothesis import strategies as st

from app import credentials, files
from app.settings import LIMITS, OVERRIDES, DraftDefault, Sampling, Settings, SettingsError, check_overrides
from app.settings_file import SettingsFile
from engine.decode.options import GenerationOptions

OTHER = Settings(
    sampling=Sampling(0.5, 0.9, 40, 0.05, 1.1, 0.2, -0.2, 512, 7),
    context_length=8192,
    effort="0.35",
    theme="dark",
    font_size=16,
    models_folder=Path("/volumes/models"),
    further_folders=(Path("/a"), Path("/b")),
    endpoint="https://mirror.example:8443/hub",
    use_token=False,
    bandwidth_limit=1_000_000,
    reduce_motion="on",
    draft=DraftDefault(enabled=False, depth=3),
    window_state=bytes(range(256)),
    last_model="/volumes/models/owner/name",
)


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path / "config" / "settings.json")


def put(file: SettingsFile, content: str | bytes | dict[str, Any]) -> None:
    file.path.parent.mkdir(exist_ok=True)
    data = json.dumps(content) if isinstance(content, dict) else content
    file.path.write_bytes(data.encode() if isinstance(data, str) else data)


class TestValues:
    def test_every_field_has_another_value_in_the_sample(self) -> None:
        for item in fields(Settings):
            assert getattr(OTHER, item.name) != getattr(Settings(), item.name)
        for item in fields(Sampling):
            assert getattr(OTHER.sampling, item.name) != getattr(Sampling(), item.name)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("context_length", 100),
            ("context_length", 4096.0),
            ("effort", "extreme"),
            ("effort", "1.5"),
            ("effort", 0.5),
            ("effort", "high" * 100),
            ("theme", "pink"),
            ("theme", None),
            ("font_size", 8),
            ("font_size", 13.5),
            ("font_size", True),
            ("font_size", None),
            ("models_folder", "/as/text"),
            ("models_folder", Path("relative")),
            ("models_folder", Path("/nul/\0")),
            ("further_folders", [Path("/a")]),
            ("further_folders", (Path("/a"), "b")),
            ("endpoint", "huggingface.co"),
            ("endpoint", "ftp://huggingface.co"),
            ("endpoint", "https://"),
            ("endpoint", "https://host/?key=1"),
            ("endpoint", "https://host/#part"),
            ("endpoint", "https://host:port"),
            ("endpoint", "https://[::1"),
            ("endpoint", "https://ho st"),
            ("endpoint", "https://host/\n"),
            ("endpoint", 5),
            ("use_token", 1),
            ("bandwidth_limit", 0),
            ("bandwidth_limit", -1),
            ("reduce_motion", True),
            ("draft", {"enabled": True}),
            ("sampling", None),
            ("last_model", ""),
            ("last_model", 3),
            ("window_state", "text"),
            ("window_state", bytes(2**20 + 1)),
        ],
    )
    def test_a_wrong_value_is_named(self, name: str, value: Any) -> None:
        with pytest.raises(SettingsError, match=f"^{name} is") as caught:
            replace(Settings(), **{name: value})
        assert caught.value.hint
        assert len(str(caught.value)) < 300

    @pytest.mark.parametrize("name", [item.name for item in fields(Sampling)])
    def test_sampling_is_limited(self, name: str) -> None:
        low, high = LIMITS[name]
        integer = isinstance(getattr(OTHER.sampling, name), int)
        for value in (low, high):
            replace(Sampling(), **{name: int(value) if integer else value})
        for value in (low - 1, high + 1, float("nan"), float("inf"), "1", True, []):
            with pytest.raises(SettingsError, match=f"^{name} is"):
                replace(Sampling(), **{name: value})

    def test_the_draft_default_is_checked(self) -> None:
        with pytest.raises(SettingsError, match=r"^depth is 0"):
            DraftDefault(depth=0)
        with pytest.raises(SettingsError, match=r"^enabled is 1"):
            DraftDefault(enabled=1)  # type: ignore[arg-type]

    def test_a_password_in_the_endpoint_is_refused_and_not_shown(self) -> None:
        with pytest.raises(SettingsError) as caught:
            Settings(endpoint="https://user:secret@host")
        assert "secret" not in str(caught.value)

    @given(st.builds(replace, st.just(Sampling()), temperature=st.floats(*LIMITS["temperature"])))
    def test_the_engine_takes_every_sampling(self, sampling: Sampling) -> None:
        assert GenerationOptions(**asdict(sampling)).temperature == sampling.temperature

    def test_the_engine_takes_the_limits(self) -> None:
        for index in (0, 1):
            values = {item.name: LIMITS[item.name][index] for item in fields(Sampling)}
            GenerationOptions(**values)  # type: ignore[arg-type]

    def test_a_chat_overrides_sampling_and_effort_and_nothing_else(self) -> None:
        overrides = {"temperature": 0, "seed": None, "effort": "low", "theme": "dark", "of_the_future": 1}
        used = OTHER.with_overrides(overrides)
        assert used == replace(OTHER, effort="low", sampling=replace(OTHER.sampling, temperature=0, seed=None))
        assert OTHER.with_overrides({}) == OTHER
        assert "theme" not in OVERRIDES

    @pytest.mark.parametrize("overrides", [{"temperature": "hot"}, {"effort": 3}, {"max_tokens": 0}, {"top_p": None}])
    def test_a_chat_cannot_override_with_nonsense(self, overrides: dict[str, Any]) -> None:
        with pytest.raises(SettingsError, match=f"^{next(iter(overrides))} is"):
            check_overrides(overrides)


class TestFile:
    def test_without_a_file_the_defaults_are_used(self, file: SettingsFile) -> None:
        assert file.load() == (loaded := file.load())
        assert (loaded.settings, loaded.notices) == (Settings(), ())
        assert not file.path.exists()

    @pytest.mark.parametrize("settings", [Settings(), OTHER], ids=["defaults", "other"])
    def test_round_trip(self, file: SettingsFile, settings: Settings) -> None:
        file.save(settings)
        loaded = file.load()
        assert (loaded.settings, loaded.notices) == (settings, ())
        assert [path.name for path in file.path.parent.iterdir()] == ["settings.json"]

    def test_unknown_names_are_kept_at_every_level(self, file: SettingsFile) -> None:
        put(file, {"of_the_future": {"a": [1]}, "sampling": {"mirostat": 2, "top_k": 5}, "font_size": 20})
        loaded = file.load().settings
        assert (loaded.font_size, loaded.sampling.top_k) == (20, 5)
        file.save(replace(loaded, font_size=21))
        raw = json.loads(file.path.read_text())
        assert (raw["of_the_future"], raw["sampling"]["mirostat"], raw["font_size"]) == ({"a": [1]}, 2, 21)

    def test_a_wrong_value_costs_only_itself_and_is_told(self, file: SettingsFile) -> None:
        put(
            file,
            {
                "font_size": "large",
                "theme": "dark",
                "sampling": {"temperature": -1, "top_k": 5},
                "draft": [],
                "further_folders": ["relative"],
                "models_folder": "",
                "window_state": "%%%",
                "endpoint": 3,
            },
        )
        loaded = file.load()
        assert loaded.settings == Settings(theme="dark", sampling=Sampling(top_k=5))
        told = " ".join(loaded.notices)
        for name in (
            "font_size",
            "temperature",
            "draft",
            "further_folders",
            "models_folder",
            "window_state",
            "endpoint",
        ):
            assert f"{name} is" in told
        assert len(loaded.notices) == 7

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "{",
            "[]",
            "null",
            "\0" * 100,
            b"\xff\xfe{}",
            '{"font_size": NaN}',
            "[" * 100_000,
            '{"a":' + "[" * 300 + "]" * 300 + "}",
            " " * (2**24 + 1),
        ],
        ids=["empty", "cut", "list", "null", "zeros", "utf16", "nan", "bottomless", "deep", "huge"],
    )
    def test_a_broken_file_is_kept_aside(self, file: SettingsFile, content: str | bytes) -> None:
        put(file, content)
        before = file.path.read_bytes()
        loaded = file.load()
        assert loaded.settings == Settings()
        (kept,) = file.path.parent.iterdir()
        assert kept.read_bytes() == before
        assert str(kept) in loaded.notices[0]
        file.save(OTHER)
        assert file.load().settings == OTHER
        assert kept.read_bytes() == before

    def test_a_file_that_breaks_while_running_is_kept_aside_at_saving(self, file: SettingsFile) -> None:
        put(file, "{")
        file.save(OTHER)
        assert file.load().settings == OTHER
        assert sorted(path.read_text() == "{" for path in file.path.parent.iterdir()) == [False, True]

    @given(
        st.dictionaries(
            st.sampled_from([item.name for item in fields(Settings)]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*LIMITS, "enabled"]), inner),
                max_leaves=5,
            ),
        )
    )
    def test_any_object_loads(self, tmp_path_factory: pytest.TempPathFactory, raw: dict[str, Any]) -> None:
        file = SettingsFile(tmp_path_factory.mktemp("fuzz") / "settings.json")
        put(file, raw)
        settings = file.load().settings
        file.save(settings)
        assert file.load() == (again := file.load())
        assert (again.settings, again.notices) == (settings, ())

    def test_a_folder_in_its_place(self, file: SettingsFile) -> None:
        file.path.mkdir(parents=True)
        loaded = file.load()
        assert loaded.settings == Settings()
        assert "it is no file" in loaded.notices[0]
        file.save(OTHER)
        assert file.load().settings == OTHER
        (kept,) = (path for path in file.path.parent.iterdir() if path.is_dir())
        assert str(kept) in loaded.notices[0]

    def test_a_crash_while_writing_leaves_the_old_file(
        self, file: SettingsFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.save(OTHER)

        def crash(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", crash)
        with pytest.raises(SettingsError, match="No space left on device"):
            file.save(Settings())
        monkeypatch.undo()
        assert file.load().settings == OTHER
        assert [path.name for path in file.path.parent.iterdir()] == ["settings.json"]

    def test_a_broken_file_that_cannot_be_renamed(self, file: SettingsFile, monkeypatch: pytest.MonkeyPatch) -> None:
        put(file, "{")

        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "replace", refuse)
        loaded = file.load()
        assert loaded.settings == Settings()
        assert "could not be renamed" in loaded.notices[0]
        with pytest.raises(SettingsError, match="Permission denied"):
            file.save(OTHER)
        assert file.path.read_text() == "{"

    def test_links_and_permissions_survive(self, file: SettingsFile, tmp_path: Path) -> None:
        target = tmp_path / "synced.json"
        target.write_text("{}")
        target.chmod(0o640)
        file.path.parent.mkdir()
        file.path.symlink_to(target)
        file.save(OTHER)
        assert file.path.is_symlink()
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        assert SettingsFile(target).load().settings == OTHER


class Hub(BaseHTTPRequestHandler):
    """Knows one token."""

    def do_GET(self) -> None:
        answers = {"Bearer hf_good": (200, b'{"name": "ada"}'), "Bearer hf_odd": (200, b"[]")}
        unavailable = (503, b"{}") if self.headers["Authorization"] == "Bearer hf_busy" else (401, b"{}")
        status, body = answers.get(self.headers["Authorization"], unavailable)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


class TestToken:
    @pytest.fixture(autouse=True)
    def token_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        path = tmp_path / "hf" / "token"
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(path))
        monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(path.with_name("stored")))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        return path

    @pytest.fixture
    def hub(self) -> Any:
        with HTTPServer(("127.0.0.1", 0), Hub) as server:
            thread = Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
            thread.join()

    def test_a_file_that_cannot_be_read_is_as_good_as_none_to_the_window(self, token_file: Path) -> None:
        token_file.mkdir(parents=True)
        assert (credentials.token(), credentials.token_origin(), credentials.is_stored()) == (None, None, False)

    def test_is_where_huggingface_hub_looks_for_it(self, token_file: Path) -> None:
        assert (credentials.token(), credentials.token_origin()) == (None, None)
        credentials.save_token("  hf_good\n")
        assert huggingface_hub.get_token() == credentials.token() == "hf_good"
        assert credentials.token_origin() == "file"
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
        credentials.forget_token()
        credentials.forget_token()
        assert credentials.token() is None

    def test_an_older_file_that_anybody_may_read_is_closed(self, token_file: Path) -> None:
        token_file.parent.mkdir()
        token_file.write_text("hf_old")
        token_file.chmod(0o644)
        credentials.save_token("hf_new")
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600

    def test_the_environment_goes_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "hf_environment")
        assert credentials.token_origin() == "environment"
        monkeypatch.delenv("HF_TOKEN")
        credentials.save_token("hf_stored")
        monkeypatch.setenv("HF_TOKEN", "hf_environment")
        assert (credentials.token(), credentials.token_origin()) == ("hf_environment", "environment")

    def test_is_in_no_settings_file(self, file: SettingsFile) -> None:
        credentials.save_token("hf_secret")
        file.save(OTHER)
        assert "hf_secret" not in file.path.read_text()

    @pytest.mark.parametrize("value", ["", "  ", "two words", "line\nbreak", "nul\0", "schlüssel"])
    def test_what_is_no_token_is_not_stored(self, token_file: Path, value: str) -> None:
        with pytest.raises(SettingsError, match="no access token"):
            credentials.save_token(value)
        assert not token_file.exists()

    @pytest.mark.parametrize("use", [lambda: credentials.save_token("hf_x"), credentials.forget_token])
    def test_a_token_file_that_cannot_be_changed(self, token_file: Path, use: Callable[[], None]) -> None:
        token_file.mkdir(parents=True)
        with pytest.raises(SettingsError, match="The token could not be"):
            use()

    def test_the_hub_says_whose_it_is(self, hub: str) -> None:
        assert credentials.check_token("hf_good", endpoint=hub) == "ada"

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("hf_bad", "does not accept the token"),
            ("hf_busy", "status 503"),
            ("hf_odd", "could not be asked"),
            ("hf bad", "no access token"),
        ],
    )
    def test_why_a_token_fails(self, hub: str, value: str, message: str) -> None:
        with pytest.raises(SettingsError, match=message) as caught:
            credentials.check_token(value, endpoint=hub)
        assert value not in str(caught.value)

    def test_offline_mode_asks_nobody(self, hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr("huggingface_hub.utils._http._GLOBAL_CLIENT", None)
        with pytest.raises(SettingsError, match="could not be asked"):
            credentials.check_token("hf_good", endpoint=hub)

    def test_a_hub_that_cannot_be_reached(self) -> None:
        with pytest.raises(SettingsError, match="could not be asked"):
            credentials.check_token("hf_good", endpoint="http://127.0.0.1:9")


def test_a_new_file_gets_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    files.write_atomically(tmp_path / "written", "")
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "usual").stat().st_mode
