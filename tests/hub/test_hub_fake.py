"""The fake hub against huggingface_hub itself: if these two disagree, the other tests prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_hub import TOKEN, FakeHub
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 5000, "sub/ünï.txt": b"text"}


def test_metadata_in_both_forms_and_pages(hub: FakeHub) -> None:
    commit = hub.push("owner/model", FILES)
    hub.page = 2
    api = HfApi(endpoint=hub.endpoint, token=False)
    info = api.model_info("owner/model", files_metadata=True)
    assert info.sha == commit
    assert {s.rfilename: s.size for s in info.siblings or []} == {n: len(d) for n, d in FILES.items()}
    tree = list(api.list_repo_tree("owner/model", recursive=True))
    assert {f.path: f.lfs is not None for f in tree} == {
        "config.json": False, "model.safetensors": True, "sub/ünï.txt": False,
    }  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_download_follows_the_redirect_and_checks(
    hub: FakeHub, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # its thread would outlive the test
    hub.push("owner/model", FILES)
    path = hf_hub_download("owner/model", name, endpoint=hub.endpoint, token=False, cache_dir=tmp_path)
    assert Path(path).read_bytes() == FILES[name]


def test_refusals_are_the_ones_that_the_library_tells_apart(hub: FakeHub) -> None:
    hub.push("owner/model", FILES)
    hub.push("owner/gated", FILES)
    hub.repos["owner/gated"].gated = True
    anonymous, known = HfApi(endpoint=hub.endpoint, token=False), HfApi(endpoint=hub.endpoint, token=TOKEN)
    with pytest.raises(RepositoryNotFoundError):
        anonymous.model_info("owner/none")
    with pytest.raises(RepositoryNotFoundError):
        known.model_info("owner/none")
    with pytest.raises(RevisionNotFoundError):
        known.model_info("owner/model", revision="v9")
    with pytest.raises(GatedRepoError):
        get_hf_file_metadata(f"{hub.endpoint}/owner/gated/resolve/main/config.json", token=TOKEN)
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        HfApi(endpoint=hub.endpoint, token="hf_wrong").model_info("owner/model")
