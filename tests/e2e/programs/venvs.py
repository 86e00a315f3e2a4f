"""The virtual environments of the programs in this folder: INGOT_PROGRAMS names a folder with one for
each file of tests/requirements-programs; ./check --long makes it."""
import json
import os
import pathlib
import re
import subprocess

import pytest

from daemon import clean_env

FOLDER = pathlib.Path(os.environ.get("INGOT_PROGRAMS", ""))


def program(venv, name="python"):
    return FOLDER / venv / "bin" / name


def needs(venv):
    """The marks of a file whose programs are in this environment."""
    return [pytest.mark.release, pytest.mark.skipif(
        not program(venv).exists(), reason="INGOT_PROGRAMS names no folder with the environment " + venv)]


def environment(folder, **more):
    """Of a program: a home of its own, no keys and settings of the user, nothing fetched from elsewhere."""
    users = ("OPENAI_", "ANTHROPIC_", "OLLAMA_", "LITELLM_", "AIDER_", "GPTME_", "HF_")
    env = {k: v for k, v in clean_env(folder).items() if not k.startswith(users)}
    return {**env, "HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", **more}


def run(words, folder, timeout=180, **env):
    """What a program prints; it ends with 0."""
    p = subprocess.run(words, cwd=folder, env=environment(folder, **env), stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, timeout=timeout)
    assert p.returncode == 0, (p.stdout[-4000:], p.stderr[-8000:])
    return p.stdout


def run_python(venv, source, folder, *args):
    """The JSON that a Python program prints last."""
    (folder / "program.py").write_text(source)
    return json.loads(run([program(venv), "program.py", *args], folder).splitlines()[-1])


def url(d):
    return "http://127.0.0.1:%d" % d.port


def left_out(d):
    """What Ingot did not know of the requests until now."""
    return set(re.findall(r": (\S+) is not known here and was left out", d.log))
