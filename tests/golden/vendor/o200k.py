"""The vocabulary of gpt-oss, o200k_harmony, as the GGUF file that converters write: OpenAI's o200k_base, which
PyPI's litellm has with it, and the control tokens of openai-harmony."""
import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from gguf import GGUFWriter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tokenizer"))
from compare import CONTROL, NORMAL, close, letters  # noqa: E402

PACKAGE = "litellm==1.74.0"  # 8.6 MB; later ones are four times as large
INSIDE = "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
NAME = "o200k_base.tiktoken"
N_VOCAB = 201088  # of gpt-oss' embedding
BOS, END_OF_TEXT, RETURN = 199998, 199999, 200002


def fetch(folder):
    """The folder, with the file in it."""
    folder = Path(folder)
    path = folder / NAME
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
                        "-d", str(folder), PACKAGE], check=True)
        wheel, = folder.glob("litellm-*.whl")
        with zipfile.ZipFile(wheel) as z:
            path.write_bytes(z.read(INSIDE))
        wheel.unlink()
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        path.unlink()
        sys.exit(f"o200k.py: {PACKAGE} has another {NAME}")
    return folder


def all_merges(ranks):
    """The pairs that transformers and llama.cpp's converter take from ranks: each token's, with the lowest left
    part first."""
    for token in ranks:
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        yield from sorted(pairs, key=lambda p: (ranks[p[0]], ranks[p[1]]))


def write(folder, path, specials):
    """specials: the id of each control token's text."""
    ranks = {}
    for line in (Path(folder) / NAME).read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    letter = letters()
    spelled = {t: "".join(letter[b] for b in t) for t in ranks}
    tokens = [f"<|reserved_{i}|>" for i in range(N_VOCAB)]
    types = [CONTROL] * N_VOCAB
    for t, rank in ranks.items():
        tokens[rank], types[rank] = spelled[t], NORMAL
    for text, i in specials.items():
        tokens[i] = text
    w = GGUFWriter(path, "gpt-oss")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([f"{spelled[a]} {spelled[b]}" for a, b in all_merges(ranks)])
    w.add_bos_token_id(BOS)
    w.add_eos_token_id(RETURN)
    w.add_pad_token_id(END_OF_TEXT)
    close(w)
