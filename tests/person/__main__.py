"""A person's first minutes with Inkstand, on a virtual screen with a window manager:

    python tests/person SHOTS

Start it, type and send a message, flip the MTP switch in the middle of the answer, download a checkpoint from a hub,
load it, quit. What remains on disk is asserted, and the folder SHOTS receives a picture of every step. Exit code 0 also
where the tools are missing, with a message that names them.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from desktop import Desktop, missing, wait

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "hub"))
from fake_hub import FakeHub  # noqa: E402

TINY = ROOT / "tests" / "data" / "inkling-tiny"
REPO = "example/inkling-tiny"
QUESTION = "Write a haiku about tide pools, then explain its structure."
ANSWER = "select 1 from messages where role = 'assistant' and"
QUIT_S = 5.0


class Person:
    """What the person does and can see. `home` is the program's INKSTAND_HOME."""

    def __init__(self, desktop: Desktop, home: Path, endpoint: str) -> None:
        self.desktop, self.home = desktop, home
        environ = {**desktop.environ, "INKSTAND_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HOME": str(home / "hf")}
        self.app = subprocess.Popen([sys.executable, "-m", "app"], cwd=ROOT, env=environ)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Of the history, as another program may read it while the window writes."""
        path = self.home / "data" / "history.sqlite3"
        if not path.exists():
            return []
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return database.execute(query).fetchall()

    def settings(self) -> dict[str, object]:
        path = self.home / "config" / "settings.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    # -- the path ---------------------------------------------------------------------------------

    def start(self) -> None:
        self.desktop.activate("Inkstand")
        time.sleep(5)
        self.desktop.shoot("first-run")

    def ask(self) -> None:
        """Type, send, and flip the switch while the answer comes in."""
        desktop = self.desktop
        desktop.type(QUESTION)
        desktop.shoot("typed")
        desktop.press("Return")
        wait("the message in the history", lambda: self.rows("select 1 from messages where role = 'user'"))
        wait("the first words", lambda: self.rows(f"{ANSWER} content <> ''"))
        desktop.press("ctrl+t")
        desktop.shoot("switched-off")
        time.sleep(1)
        desktop.press("ctrl+t")
        wait("the end of the answer", lambda: self.rows(f"{ANSWER} state = 'done'"), 180)
        time.sleep(0.5)
        desktop.shoot("answered")
        desktop.press("ctrl+shift+r")
        time.sleep(0.5)
        desktop.shoot("rounds")
        ((content,),) = self.rows("select content from messages where role = 'user'")
        assert content == QUESTION, content
        ((rounds,),) = self.rows("select rounds from traces")
        drafted = {one["drafted"] if isinstance(one, dict) else one[1] for one in json.loads(str(rounds))[1:]}
        assert 0 in drafted, f"the switch did not turn the drafter off: {drafted}"
        assert max(drafted) > 0, f"the switch did not turn the drafter on again: {drafted}"

    def download(self) -> None:
        """Type a repository's name in the model manager, read the plan, accept it."""
        desktop, folder = self.desktop, self.home / "data" / "models" / REPO
        desktop.press("ctrl+shift+m")
        time.sleep(1.5)
        desktop.shoot("models")
        desktop.type(REPO)
        desktop.press("Return")
        desktop.activate("Download")
        time.sleep(1.5)
        desktop.shoot("plan")
        desktop.press("Return")
        wait("the download", lambda: (folder / "config.json").exists() and not list(folder.rglob("*.part*")))
        time.sleep(1.5)
        desktop.activate("Inkstand")
        desktop.shoot("downloaded")
        for file in TINY.iterdir():
            assert (folder / file.name).read_bytes() == file.read_bytes(), f"{file.name} differs"

    def load(self) -> None:
        """The button of the model's row, then the one of the memory ledger."""
        desktop = self.desktop
        desktop.press("Tab", "Tab", "space")
        desktop.activate("Load")
        time.sleep(1)
        desktop.shoot("ledger")
        desktop.press("Return")
        wait("the model to be remembered", lambda: str(self.settings().get("last_model")).endswith(REPO))
        desktop.activate("Inkstand")
        time.sleep(1)
        desktop.shoot("loaded")

    def quit(self) -> None:
        self.desktop.press("ctrl+q")
        began = time.monotonic()
        code = self.app.wait(timeout=30)
        took = time.monotonic() - began
        assert code == 0, f"inkstand ended with {code}"
        assert took < QUIT_S, f"quitting took {took:.1f} s"
        assert self.rows("select count(*) from messages where state = 'streaming'") == [(0,)]

    def leave(self) -> None:
        """End the program whatever happened."""
        if self.app.poll() is None:
            self.app.kill()
            self.app.wait()


def main(argv: list[str]) -> int:
    """Go the path. Returns 0 when everything held or the tools are missing."""
    if len(argv) != 1:
        sys.stderr.write("usage: python tests/person SHOTS\n")
        return 2
    lacking = missing()
    if lacking:
        print(f"skipped: this needs a virtual screen. On Debian: apt-get install {' '.join(lacking)}")
        return 0
    shots = Path(argv[0])
    shots.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, FakeHub() as hub, Desktop(shots) as desktop:
        hub.push(REPO, {file.name: file.read_bytes() for file in TINY.iterdir()})
        person = Person(desktop, Path(home), hub.endpoint)
        try:
            for step in (person.start, person.ask, person.download, person.load, person.quit):
                print(f"{step.__name__} …", flush=True)
                step()
        except BaseException:
            desktop.shoot("failed")
            raise
        finally:
            person.leave()
    print(f"all held; pictures in {shots}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
