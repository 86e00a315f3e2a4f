"""Vocabularies of `tokenizers` in every form that tokenizer.json has for them: BPE between
characters, Unigram, normalizers, pre-tokenizers and added tokens of all kinds."""
import base64
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers

MARK = "\u2581"
BYTES = [f"<0x{b:02X}>" for b in range(256)]
CONTROL = ["<unk>", "<s>", "</s>"]
PIECES = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
PIECES_STRIP = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(),
                                  decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def with_bytes(t):
    """Every byte gets a token."""
    file = json.loads(t.to_str())
    vocab = file["model"]["vocab"]
    if isinstance(vocab, dict):
        for b in BYTES:
            vocab[b] = len(vocab)
    else:
        vocab += [[b, 0.0] for b in BYTES]
    file["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(file))


def train_pairs(lines, words):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", MARK)
    if words:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=3000, show_progress=False, special_tokens=CONTROL, limit_alphabet=400))
    return t


def train_unigram(lines):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    t.train_from_iterator(lines, trainers.UnigramTrainer(
        vocab_size=12000, show_progress=False, special_tokens=CONTROL, unk_token="<unk>",
        max_piece_length=12))
    return t


def copy(t, normalizer=None, pre=None, decoder=None, added=()):
    t = Tokenizer.from_str(t.to_str())
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
    for token in added:
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    return t


def token(text, **options):
    return AddedToken(text, **{"normalized": False, "special": False, **options})


def without_names(lines):
    """Or names of control tokens and of bytes would be merged from plain text, which ours
    never does."""
    return [x for x in lines if not any(name in x for name in ("<0x", "s>", "<unk"))]


def json_kinds(lines):
    lines = without_names(lines)
    space = normalizers.Replace(" ", MARK)
    llama = normalizers.Sequence([normalizers.Prepend(MARK), space])
    words = train_pairs(lines, True)
    whole = with_bytes(train_pairs(lines[:600], False))
    pairs = with_bytes(words)
    unigram = train_unigram(lines)
    user = [token("<tool>"), token("\n\n"), token(MARK * 2), token("x y", normalized=True),
            token("des", normalized=True), token("\t")]
    metaspace = pre_tokenizers.Metaspace
    return {
        "llama": copy(pairs, llama, None, PIECES_STRIP),
        "mistral": copy(pairs, None, metaspace(prepend_scheme="first", split=False),
                        PIECES_STRIP),
        "gemma": copy(pairs, space, pre_tokenizers.Split(" ", "merged_with_previous"), PIECES,
                      user),
        "across-words": copy(whole, llama, None, PIECES_STRIP, user),
        "no-bytes": copy(words, llama, None, PIECES_STRIP),
        "always": copy(pairs, None, metaspace(prepend_scheme="always", split=True),
                        PIECES_STRIP),
        "never": copy(pairs, None, metaspace(prepend_scheme="never", split=True),
                      PIECES),
        "forms": copy(pairs, normalizers.Sequence([
            normalizers.NFD(), normalizers.Strip(left=True, right=True), normalizers.NFKC(),
            normalizers.Replace(Regex(" {2,}"), " "), normalizers.NFKD(), normalizers.NFC(),
            llama]), None, PIECES_STRIP),
        "splits": copy(pairs, space, pre_tokenizers.Sequence([
            pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(False),
            pre_tokenizers.Split(Regex(r"[\p{Lu}]+"), "merged_with_next"),
            pre_tokenizers.Split(Regex(r"\p{M}|[aeiou]{2,3}"), "merged_with_previous"),
            pre_tokenizers.Split(Regex(r"\p{Han}+|\p{Cyrillic}|s(?=t)"), "contiguous"),
            pre_tokenizers.Split("z", "removed"),
            pre_tokenizers.Split(Regex(r"[^q]+"), "removed", invert=True)]), PIECES),
        "unigram": copy(unigram, None, metaspace(prepend_scheme="always", split=True),
                        decoders.Metaspace()),
        "unigram-bytes": copy(with_bytes(unigram), None, pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), metaspace(prepend_scheme="always", split=True)]),
            PIECES_STRIP, user),
        "unigram-whole": copy(with_bytes(unigram), llama, None, PIECES_STRIP),
    }


def special_kinds(lines):
    """Texts of special tokens are found in these."""
    t = with_bytes(train_pairs(without_names(lines[:1500]), True))
    added = [token("<s>", special=True), token("<|im_end|>", special=True, rstrip=True),
             token("[INST]", special=True, lstrip=True), token("the", lstrip=True, rstrip=True),
             token("of", normalized=True, lstrip=True)]
    b = Tokenizer(models.BPE())
    b.train_from_iterator([], trainers.BpeTrainer(
        show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    byte_level = pre_tokenizers.ByteLevel
    return {
        "special-pieces": copy(t, normalizers.Replace(" ", MARK), None, PIECES, added),
        "special-first": copy(t, None, pre_tokenizers.Metaspace(prepend_scheme="first",
                                                                split=False), None, added),
        "special-bytes": copy(b, normalizers.NFC(), byte_level(add_prefix_space=False),
                              decoders.ByteLevel(), added),
        "special-prefix": copy(b, None, byte_level(add_prefix_space=True),
                               decoders.ByteLevel(), added),
    }


def t5(model):
    """What the converter of T5's SentencePiece model makes of it."""
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    file = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [
            {"id": i, "content": p.piece, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for i, p in enumerate(model.pieces) if p.type in (2, 3)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap},
            {"type": "Strip", "strip_left": False, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always",
                          "split": True},
        "post_processor": None,
        "decoder": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always",
                    "split": True},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                  "vocab": [[p.piece, p.score] for p in model.pieces]}}
    return json.dumps(file, ensure_ascii=False)
