"""The demo model as a folder that MLX could have written: the same answers as from its file."""
import os
import subprocess
import sys

import pytest

from conftest import Starter, configuration
from daemon import BUILD, clean_env, yaml_text

pytestmark = [pytest.mark.real, pytest.mark.release]
MODEL = os.environ.get("INGOT_TEST_MODEL", "")
MAKE = os.path.join(os.path.dirname(__file__), "..", "golden", "model", "folder.py")
PROMPTS = ("What is the capital of France?", "Count from 1 to 12, then say \u00fcber \U0001f600.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("folder") / "smollm2")
    subprocess.run([sys.executable, MAKE, MODEL, path, "--mlx"], check=True)
    return path


def test_a_folder_answers_like_the_file(tmp_path, folder):
    """In float32, where codes of 8 bits and a bias are the same numbers as Q8_0's."""
    s = Starter(tmp_path)
    config = s.config(extra={"runtime": {"activations": "f32"}})
    config["models"] = [{"name": "file", "path": MODEL}, {"name": "folder", "path": folder}]
    config["default_model"] = "file"
    d = s(config=config)
    for prompt in PROMPTS:
        texts = {name: d.chat_text(prompt, model=name, max_tokens=24, temperature=0)
                 for name in ("file", "folder")}
        assert texts["file"] == texts["folder"] and texts["file"]
    counts = [d.chat(PROMPTS[1], model=name, max_tokens=1).json["usage"]["prompt_tokens"]
              for name in ("file", "folder")]
    assert counts[0] == counts[1]
    d.until_idle()
    s.finish()


def test_doctor_shows_it(tmp_path, folder):
    config = configuration(tmp_path, folder)
    path = tmp_path / "ingot.yaml"
    path.write_text(yaml_text(config))
    r = subprocess.run([os.path.join(BUILD, "cli", "ingot"), "doctor", "--config", str(path)],
                       capture_output=True, text=True, env=clean_env(str(tmp_path)), timeout=60)
    assert "safetensors, MLX, architecture llama, 272 tensors" in r.stdout, r.stdout + r.stderr
    assert "tokenizer of 49152 tokens, chat template" in r.stdout
