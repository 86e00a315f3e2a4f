"""fake_hub.py is worth as much as it resembles the Hub: the real package huggingface_hub downloads
from it, and knows its errors."""
import json
import os
import pathlib
import subprocess

import pytest

import daemon as ingot
from fake_hub import Hub, Repo, sha256

PYTHON = pathlib.Path(os.environ.get("INGOT_AGENTS", "")) / "bin" / "python"
pytestmark = [pytest.mark.release,
              pytest.mark.skipif(not PYTHON.exists(), reason="INGOT_AGENTS names no virtual environment")]

FILES = {"config.json": b"{}", "README.md": b"# a model", "Q4_K_M/a-Q4_K_M.gguf": b"GGUF" + bytes(range(256)) * 200,
         "tokenizer.json": b"[%s]" % (b"1," * 9000 + b"1")}

PROGRAM = r'''
import hashlib, json, os, pathlib, sys
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

folder = pathlib.Path(snapshot_download("them/model"))
files = {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
         for p in folder.rglob("*") if p.is_file()}
info = HfApi().model_info("them/model", files_metadata=False)
errors = []
for name in ("them/gated", "them/nowhere"):
    try:
        hf_hub_download(name, "config.json", token=False)
    except (GatedRepoError, RepositoryNotFoundError) as e:
        errors.append(type(e).__name__)
one = hf_hub_download("them/gated", "config.json", token="hf_good")
print(json.dumps({"files": files, "one": open(one).read(), "errors": errors, "sha": info.sha,
                  "license": info.card_data.license}))
'''


@pytest.fixture
def hub():
    h = Hub()
    h.repos = {"them/model": Repo(FILES), "them/gated": Repo(FILES, gated="auto")}
    h.users = {"hf_good": {"them/gated"}}
    yield h
    h.stop()


def test_it_downloads(hub, tmp_path):
    env = dict(ingot.clean_env(tmp_path), HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path / "hf"), HF_TOKEN="hf_good",
               HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
    p = subprocess.run([str(PYTHON), "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, p.stderr
    got = json.loads(p.stdout.splitlines()[-1])
    assert got["files"] == {path: sha256(data) for path, data in FILES.items()}
    assert got["one"] == "{}" and got["errors"] == ["GatedRepoError", "RepositoryNotFoundError"]
    assert (got["sha"], got["license"]) == (hub.repos["them/model"].sha, "apache-2.0")
    assert hub.seen("files") and not any("authorization" in h for _, h in hub.seen("files"))
