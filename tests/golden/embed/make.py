#!/usr/bin/env python3
"""Tiny random models of embeddings, and the vectors that sentence-transformers makes of texts.

    pip install torch transformers sentence-transformers sentencepiece gguf numpy
    make.py [name ...]

writes for each model NAME/, as sentence-transformers writes it, NAME.gguf with the names and keys of
llama.cpp's converter and the same numbers, and NAME.golden.  Weights are random but of a size at which
every part matters; matrices are rounded to F16 first, so that the files are small and exact.  The
pipeline runs in float64.  NAME.golden, little-endian:

    "IGE1", u32 n_columns, n_texts
    for each text: u32 n_bytes, n_ids, i32 ids[n_ids], i32 types[n_ids], f64 result[n_columns],
                   the text's bytes (of a reranker: the query, a NUL, the text)

A result is a vector of length 1, or a reranker's logit, or its two of "yes" and "no".
"""

import io
import json
import pathlib
import shutil
import struct
import sys
import tempfile

import gguf
import numpy as np
import sentencepiece
import torch
import transformers as tf
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers import models as parts
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

HERE = pathlib.Path(__file__).parent
WORDS = ("the a of and to in is it that cat dog sat on mat house river bank money water runs quick brown fox "
         "jumps over lazy what where who how un ##able ##ing ##ed ##s ##er ##ly ##ness re read light").split()
TEXTS = ["The cat sat on the mat.", "", "a", "Who is reading in the house by the river?",
         "Ünlightnessly RUNNING, über-quick; 猫 on 东京 mats!  \t tabs\u00a0and \u200bzero\u0000s",
         "quick brown fox jumps over the lazy dog " * 33,
         "money in the bank of the river " * 9, "zzz unknownwordthatisveryverylong" + "x" * 90]
PAIRS = [("where is the cat?", "The cat sat on the mat."), ("where is the cat?", "money in the bank"),
         ("who", ""), ("what runs", "water runs in the river " * 20)]
ALPHABET = [c for c in "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'-"]


def fill(model, seed, norms_are_offsets=False):
    """Random weights, matrices rounded to F16."""
    g = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        r = torch.randn(p.shape, generator=g, dtype=torch.float64)
        if p.ndim == 1:
            is_norm = name.endswith("weight")
            p.data = (0.25 * r + (1 if is_norm and not norms_are_offsets else 0)).float().double()
        else:
            size = 1.0 if "embed" in name else 1.3
            p.data = (size * r / p.shape[1] ** 0.5).half().double()


def wordpiece():
    vocab = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ALPHABET
    vocab += ["##" + c for c in ALPHABET if c.isalnum()] + ["猫", "东"] + WORDS
    vocab = list(dict.fromkeys(vocab))
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocab)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 3), ("[SEP]", 4)])
    return tf.PreTrainedTokenizerFast(tokenizer_object=t, unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]",
                                      cls_token="[CLS]", mask_token="[MASK]",
                                      model_input_names=["input_ids", "token_type_ids", "attention_mask"]), vocab


MARK = "\u2581"
# Replacements of a text, as SentencePiece's rules in hexadecimal: spaces of other kinds, wide letters, a ligature.
RULES = "9\t20\na\t20\nd\t20\na0\t20\n3000\t20\n200b\t20\nff41\t61\nff42\t62\nfb01\t66 69\n" + \
    "".join(f"{0xff41 + i:x}\t{0x61 + i:x}\n" for i in range(2, 26))


def unigram(spaces):
    """XLM-RoBERTa's, of a few words: SentencePiece's unigram, whose special tokens come first, as tokenizer.json.
    spaces: "split" are cut out, as in the oldest files; "merged" are made one, as in later ones, and "stripped" from the
    right besides."""
    with tempfile.TemporaryDirectory() as d:
        rules = pathlib.Path(d) / "rules.tsv"
        rules.write_text(RULES)
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([t.replace("\0", " ") for t in TEXTS if t] + [" ".join(WORDS)] * 3), model_writer=out,
            model_type="unigram", vocab_size=140, character_coverage=0.99, normalization_rule_tsv=str(rules),
            hard_vocab_limit=False, num_threads=1, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(out.getvalue())
    charsmap = proto.normalizer_spec.precompiled_charsmap
    pieces = [(p, 0.0) for p in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces += [(p.piece, p.score) for p in proto.pieces[3:]] + [("<mask>", 0.0)]
    t = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    precompiled = normalizers.Precompiled(charsmap)
    marks = pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme="always")
    if spaces == "split":
        t.normalizer = precompiled
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks])
    else:
        strip = [normalizers.Strip(left=False, right=True)] if spaces == "stripped" else []
        t.normalizer = normalizers.Sequence([precompiled, *strip, normalizers.Replace(Regex(" {2,}"), MARK)])
        t.pre_tokenizer = marks
    t.decoder = decoders.Metaspace(replacement=MARK, prepend_scheme="always")
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    f = tf.PreTrainedTokenizerFast(
        tokenizer_object=t, bos_token="<s>", eos_token="</s>", unk_token="<unk>", sep_token="</s>", pad_token="<pad>",
        cls_token="<s>", mask_token=AddedToken("<mask>", lstrip=True, special=True),
        model_input_names=["input_ids", "attention_mask"])
    return f, pieces, charsmap


def short(state):
    return {k: (p.float() if p.ndim == 1 else p.half()).contiguous() for k, p in state.items()}


def tidy(folder, model):
    """The same numbers in short types, and nothing that changes with the version."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    save_file(short(model.state_dict()), folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    c = json.loads((folder / "config.json").read_text())
    for key in ("transformers_version", "_name_or_path", "dtype", "torch_dtype"):
        c.pop(key, None)
    (folder / "config.json").write_text(json.dumps(c, indent=1) + "\n")
    for name in ("README.md", "config_sentence_transformers.json", "special_tokens_map.json", "vocab.txt",
                 "generation_config.json"):
        (folder / name).unlink(missing_ok=True)


def pipeline(name, model, tokenizer, pooling, more=(), max_length=256):
    """Saved to NAME/; the same in float64."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as d:
        model.float().save_pretrained(d)
        tokenizer.save_pretrained(d)
        word = parts.Transformer(d, max_seq_length=max_length)
    pool = parts.Pooling(model.config.hidden_size, pooling_mode=pooling)
    st = SentenceTransformer(modules=[word, pool, *more, parts.Normalize()], device="cpu")
    st.save(str(folder))
    tidy(folder, model)
    return st.double().eval()


def write_golden(name, rows):
    out = struct.pack("<4sII", b"IGE1", len(rows[0][3]), len(rows))
    for text, ids, types, result in rows:
        b = text.encode()
        out += struct.pack(f"<II{len(ids)}i{len(ids)}i", len(b), len(ids), *ids, *types)
        out += np.asarray(result, dtype="<f8").tobytes() + b
    (HERE / f"{name}.golden").write_bytes(out)


def golden(name, st, texts=TEXTS):
    rows = []
    for text in texts:
        with torch.no_grad():
            features = st.tokenize([text])
            ids = features["input_ids"][0].tolist()
            v = st.forward(dict(features))["sentence_embedding"][0]
        rows.append((text, ids, [0] * len(ids), v.double().numpy()))
    write_golden(name, rows)


class Gguf:
    def __init__(self, name, arch, keys):
        self.w = gguf.GGUFWriter(HERE / f"{name}.gguf", arch)
        for key, value in keys.items():
            add = (self.w.add_bool if isinstance(value, bool) else self.w.add_float32 if isinstance(value, float) else
                   self.w.add_uint32)
            add(f"{arch}.{key}", value)

    def words(self, vocab):
        """The tokenizer, as the converter writes BERT's."""
        w = self.w
        special = [t.startswith("[") and t.endswith("]") for t in vocab]
        w.add_tokenizer_model("bert")
        w.add_token_list([t if s else t[2:] if t.startswith("##") else "\u2581" + t for t, s in zip(vocab, special)])
        w.add_token_types([3 if s and "unused" not in t else 1 for t, s in zip(vocab, special)])
        w.add_token_type_count(2)
        w.add_uint32("tokenizer.ggml.cls_token_id", 3)
        w.add_unk_token_id(2)
        w.add_sep_token_id(4)
        w.add_pad_token_id(0)

    def pieces(self, pieces, charsmap):
        """XLM-RoBERTa's."""
        w = self.w
        w.add_tokenizer_model("t5")
        w.add_tokenizer_pre("default")
        w.add_token_list([p for p, _ in pieces])
        w.add_token_scores([s for _, s in pieces])
        w.add_token_types([2 if p == "<unk>" else 3 if p in ("<s>", "<pad>", "</s>", "<mask>") else 1 for p, _ in pieces])
        w.add_add_space_prefix(True)
        w.add_token_type_count(1)
        w.add_remove_extra_whitespaces(True)
        w.add_precompiled_charsmap(charsmap)
        w.add_bos_token_id(0)
        w.add_eos_token_id(2)
        w.add_unk_token_id(3)
        w.add_sep_token_id(2)
        w.add_pad_token_id(1)
        w.add_mask_token_id(len(pieces) - 1)
        w.add_add_bos_token(True)
        w.add_add_eos_token(True)
        w.add_add_sep_token(True)

    def tensors(self, table):
        for to, p in table.items():
            a = p.detach().numpy()
            keep = a.ndim == 1 or to in ("position_embd.weight", "token_types.weight") or "ffn_gate_inp" in to
            self.w.add_tensor(to, np.ascontiguousarray(a.astype(np.float32 if keep else np.float16)))
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def bert_tensors(state):
    names = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
             "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
             "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
             "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
             "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
             "pooler.dense": "cls", "classifier": "cls.output", "classifier.dense": "cls",
             "classifier.out_proj": "cls.output"}
    out = {}
    for hf, p in state.items():
        module, kind = hf.removeprefix("bert.").removeprefix("roberta.").rsplit(".", 1)
        layer = ""
        if module.startswith("encoder.layer."):
            n, module = module.removeprefix("encoder.layer.").split(".", 1)
            layer = f"blk.{n}."
        if module in names:
            out[f"{layer}{names[module]}.{kind}"] = p
    return out


def bert_config(vocab):
    return tf.BertConfig(vocab_size=len(vocab), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                         intermediate_size=96, max_position_embeddings=320, type_vocab_size=2, initializer_range=0.5,
                         attn_implementation="eager", num_labels=1)


def bert_keys(c, pooling):
    return {"block_count": c.num_hidden_layers, "context_length": c.max_position_embeddings,
            "embedding_length": c.hidden_size, "feed_forward_length": c.intermediate_size,
            "attention.head_count": c.num_attention_heads, "attention.layer_norm_epsilon": 1e-12,
            "attention.causal": False, "pooling_type": pooling}


def bert(name, pooling="mean", number=1, seed=1):
    tokenizer, vocab = wordpiece()
    c = bert_config(vocab)
    m = tf.BertModel(c, add_pooling_layer=False).double().eval()
    fill(m, seed)
    st = pipeline(name, m, tokenizer, pooling, max_length=320)
    m = m.double()
    golden(name, st)
    g = Gguf(name, "bert", bert_keys(c, number))
    g.words(vocab)
    g.tensors(bert_tensors(m.state_dict()))


def bertcls(name):
    bert(name, "cls", 2, 2)


def save_folder(name, m, tokenizer):
    """The folder of m in float32, and its tokenizer; m has float64 afterwards."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    m.float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tidy(folder, m)
    m.double()
    return folder


def bertrank(name):
    tokenizer, vocab = wordpiece()
    c = bert_config(vocab)
    m = tf.BertForSequenceClassification(c).double().eval()
    fill(m, 3)
    save_folder(name, m, tokenizer)
    rows = []
    for query, text in PAIRS:
        x = tokenizer(query, text, return_tensors="pt")
        with torch.no_grad():
            logit = m(**x).logits[0]
        rows.append((query + "\0" + text, x["input_ids"][0].tolist(), x["token_type_ids"][0].tolist(), logit.numpy()))
    write_golden(name, rows)
    g = Gguf(name, "bert", bert_keys(c, 4))
    g.words(vocab)
    g.tensors(bert_tensors(m.state_dict()))


def xlm_config(pieces):
    return tf.XLMRobertaConfig(vocab_size=len(pieces), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                               intermediate_size=96, max_position_embeddings=322, type_vocab_size=1, pad_token_id=1,
                               bos_token_id=0, eos_token_id=2, attn_implementation="eager", num_labels=1)


def xlm_gguf(name, c, pieces, charsmap, state, pooling):
    keys = {**bert_keys(c, pooling), "context_length": c.max_position_embeddings - 2,
            "attention.layer_norm_epsilon": c.layer_norm_eps}
    g = Gguf(name, "bert", keys)
    g.pieces(pieces, charsmap)
    table = bert_tensors(state)
    table["position_embd.weight"] = table["position_embd.weight"][2:]
    g.tensors(table)


def xlm(name, pooling, number, seed, spaces):
    tokenizer, pieces, charsmap = unigram(spaces)
    c = xlm_config(pieces)
    m = tf.XLMRobertaModel(c, add_pooling_layer=spaces == "split").double().eval()
    fill(m, seed)
    st = pipeline(name, m, tokenizer, pooling, max_length=320)
    m = m.double()
    golden(name, st, [t for t in TEXTS if len(t) < 400])
    xlm_gguf(name, c, pieces, charsmap, m.state_dict(), number)


def xlmr(name):
    """As bge-m3: the first token's row."""
    xlm(name, "cls", 2, 11, "stripped")


def xlmrmean(name):
    """As multilingual-e5: a pooler that nothing uses, and an older tokenizer.json."""
    xlm(name, "mean", 1, 12, "split")


def xlmrrank(name):
    """As bge-reranker-v2-m3; no text ends in a space, which a GGUF file's readers strip and this tokenizer does not."""
    tokenizer, pieces, charsmap = unigram("merged")
    c = xlm_config(pieces)
    m = tf.XLMRobertaForSequenceClassification(c).double().eval()
    fill(m, 13)
    save_folder(name, m, tokenizer)
    rows = []
    for query, text in PAIRS:
        if not text:
            continue
        text = text.rstrip()
        x = tokenizer(query, text, return_tensors="pt")
        with torch.no_grad():
            logit = m(**x).logits[0]
        ids = x["input_ids"][0].tolist()
        rows.append((query + "\0" + text, ids, [0] * len(ids), logit.numpy()))
    write_golden(name, rows)
    xlm_gguf(name, c, pieces, charsmap, m.state_dict(), 4)


def bpe(special, before, after, more=()):
    """Byte-level, of a few merges, and more; special: the last ids."""
    byte = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(byte)}
    merges = [("t", "h"), ("th", "e"), ("a", "t"), ("\u0120", "the"[0]), *more]
    for a, b in merges:
        vocab[a + b] = len(vocab)
    for s in special:
        vocab[s] = len(vocab)
    t = Tokenizer(models.BPE(vocab, merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(list(special))
    t.post_processor = processors.TemplateProcessing(
        single=" ".join([*before, "$A", *after]), special_tokens=[(s, vocab[s]) for s in special])
    return tf.PreTrainedTokenizerFast(tokenizer_object=t, eos_token=special[-1], pad_token=special[0]), vocab, merges


def put_bpe(g, vocab, merges, special):
    w = g.w
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(list(vocab))
    w.add_token_types([3 if t in special else 1 for t in vocab])
    w.add_token_merges([" ".join(m) for m in merges])


def decoder_tensors(state, gemma=False):
    after = "post_attention_norm" if gemma else "ffn_norm"
    names = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
             "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": after,
             "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    out = {}
    for hf, p in state.items():
        module, kind = hf.removeprefix("model.").rsplit(".", 1)
        if gemma and "norm" in module:
            p = p + 1
        if module.startswith("layers."):
            _, n, module = module.split(".", 2)
            out[f"blk.{n}.{names[module]}.{kind}"] = p
        else:
            out[{"embed_tokens": "token_embd", "norm": "output_norm"}[module] + "." + kind] = p
    return out


# As Qwen3-Reranker's model card has it, and llama.cpp's converter writes it.
RERANK = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
          'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
          "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
RERANK_TASK = "Given a web search query, retrieve relevant passages that answer the query"


def qwen3rank(name):
    """As Qwen3-Reranker: the logits of "yes" and "no" behind a prompt; the folder is known by its README."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer, vocab, merges = bpe(special, [], [], [("y", "e"), ("ye", "s"), ("n", "o"), ("\u0120", "n"), ("\u0120n", "o")])
    c = tf.Qwen3Config(vocab_size=len(vocab), hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, head_dim=16, intermediate_size=80, max_position_embeddings=1024,
                       tie_word_embeddings=True, attn_implementation="eager")
    m = tf.Qwen3ForCausalLM(c).double().eval()
    fill(m, 21)
    folder = save_folder(name, m, tokenizer)
    (folder / "README.md").write_text("# Qwen3-Reranker-Tiny\n")
    yes, no = tokenizer.convert_tokens_to_ids("yes"), tokenizer.convert_tokens_to_ids("no")
    prefix, suffix = (tokenizer.encode(s, add_special_tokens=False) for s in (RERANK[0], RERANK[1]))
    rows = []
    for query, text in PAIRS:
        pair = f"<Instruct>: {RERANK_TASK}\n<Query>: {query}\n<Document>: {text}"
        ids = prefix + tokenizer(pair)["input_ids"] + suffix
        with torch.no_grad():
            logits = m(torch.tensor([ids])).logits[0, -1]
        rows.append((query + "\0" + text, ids, [0] * len(ids), logits[[yes, no]].numpy()))
    write_golden(name, rows)
    rerank_gguf(name, vocab, merges, special, m, ["yes", "no"], m.lm_head.weight[[yes, no]])


def rerank_gguf(name, vocab, merges, special, m, labels, scores):
    g = Gguf(name, "qwen3", {
        "block_count": 2, "context_length": 1024, "embedding_length": 48, "feed_forward_length": 80,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 16,
        "attention.value_length": 16, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10000.0,
        "pooling_type": 4})
    put_bpe(g, vocab, merges, special)
    g.w.add_eos_token_id(vocab["<|im_end|>"])
    g.w.add_add_bos_token(False)
    g.w.add_array("qwen3.classifier.output_labels", labels)
    rest = f"<Instruct>: {RERANK_TASK}\n<Query>: {{query}}\n<Document>: {{document}}"
    g.w.add_chat_template([{"name": "rerank", "template": RERANK[0] + rest + RERANK[1]}])
    state = {k: p for k, p in m.state_dict().items() if k not in ("lm_head.weight", "score.weight")}
    g.tensors({**decoder_tensors(state), "cls.output.weight": scores})


def qwen3rankcls(name):
    """A conversion of Qwen3-Reranker to a classifier with one label: its row is that of "yes" less that of "no"."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer, vocab, merges = bpe(special, [], [])
    c = tf.Qwen3Config(vocab_size=len(vocab), hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, head_dim=16, intermediate_size=80, max_position_embeddings=1024,
                       num_labels=1, pad_token_id=vocab[special[0]], tie_word_embeddings=False,
                       attn_implementation="eager")
    m = tf.Qwen3ForSequenceClassification(c).double().eval()
    fill(m, 22)
    m.score.weight.data /= 4  # the hidden row has length 7: a logit of about 1, for which the limits are meant
    folder = save_folder(name, m, tokenizer)
    (folder / "README.md").write_text("# Qwen3-Reranker-Tiny-seq-cls\n")
    rows = []
    for query, text in PAIRS:
        prompt = f"{RERANK[0]}<Instruct>: {RERANK_TASK}\n<Query>: {query}\n<Document>: {text}{RERANK[1]}"
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        with torch.no_grad():
            logit = m(torch.tensor([ids])).logits[0]
        rows.append((query + "\0" + text, ids, [0] * len(ids), logit.numpy()))
    write_golden(name, rows)
    rerank_gguf(name, vocab, merges, special, m, ["LABEL_0"], m.score.weight)


def qwen3embed(name):
    """Causal, the last token's row; a token is put behind a text."""
    special = ["<|pad|>", "<|endoftext|>"]
    tokenizer, vocab, merges = bpe(special, [], special[1:])
    c = tf.Qwen3Config(vocab_size=len(vocab), hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, head_dim=16, intermediate_size=80, max_position_embeddings=512,
                       tie_word_embeddings=True, attn_implementation="eager")
    m = tf.Qwen3Model(c).double().eval()
    fill(m, 5)
    st = pipeline(name, m, tokenizer, "lasttoken", max_length=512)
    golden(name, st, [t for t in TEXTS if t and len(t) < 400])
    g = Gguf(name, "qwen3", {
        "block_count": 2, "context_length": 512, "embedding_length": 48, "feed_forward_length": 80,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 16,
        "attention.value_length": 16, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 10000.0,
        "pooling_type": 3})
    put_bpe(g, vocab, merges, special)
    g.w.add_eos_token_id(vocab[special[1]])
    g.w.add_add_eos_token(True)
    g.tensors(decoder_tensors(m.double().state_dict()))


def nomic(name):
    tokenizer, vocab = wordpiece()
    c = tf.NomicBertConfig(vocab_size=len(vocab), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                           intermediate_size=96, max_position_embeddings=320, type_vocab_size=2, head_dim=16,
                           attn_implementation="eager")
    m = tf.NomicBertModel(c, add_pooling_layer=False).double().eval()
    fill(m, 6)
    st = pipeline(name, m, tokenizer, "mean", max_length=320)
    m = m.double()
    golden(name, st)
    names = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
             "embeddings.LayerNorm": "token_embd_norm", "self_attn.o_proj": "attn_output",
             "post_attention_layernorm": "attn_output_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "post_mlp_layernorm": "layer_output_norm"}
    state, out = m.state_dict(), {}
    for hf, p in state.items():
        module, kind = hf.rsplit(".", 1)
        layer = ""
        if module.startswith("layers."):
            _, n, module = module.split(".", 2)
            layer = f"blk.{n}."
        if module in names:
            out[f"{layer}{names[module]}.{kind}"] = p
    for n in range(2):
        out[f"blk.{n}.attn_qkv.weight"] = torch.cat([state[f"layers.{n}.self_attn.{x}_proj.weight"] for x in "qkv"])
    g = Gguf(name, "nomic-bert", {**bert_keys(c, 1), "rope.freq_base": 1000.0})
    g.words(vocab)
    g.tensors(out)
    authors_folder(name, c, state)


def authors_folder(name, c, state):
    """The same model as the authors' folders on the Hub have it: NAMEhub, by the keys of their config.json and the
    names that transformers' conversion_mapping.py turns into its own."""
    folder = HERE / (name + "hub")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / name, folder)
    names = {"embeddings.LayerNorm": "emb_ln", "self_attn.o_proj": "attn.out_proj", "post_attention_layernorm": "norm1",
             "post_mlp_layernorm": "norm2", "up_proj": "fc11", "gate_proj": "fc12", "down_proj": "fc2"}
    out = {}
    for hf, p in short(state).items():
        for a, b in names.items():
            hf = hf.replace(a, b)
        if "self_attn" not in hf:
            out["encoder." + hf if hf.startswith("layers.") else hf] = p
    for n in range(c.num_hidden_layers):
        out[f"encoder.layers.{n}.attn.Wqkv.weight"] = torch.cat(
            [state[f"layers.{n}.self_attn.{x}_proj.weight"] for x in "qkv"]).half()
    save_file(out, folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    keys = {"activation_function": "swiglu", "architectures": ["NomicBertModel"], "causal": False, "dense_seq_output": True,
            "layer_norm_epsilon": c.layer_norm_eps, "max_trained_positions": c.max_position_embeddings, "mlp_fc1_bias": False,
            "mlp_fc2_bias": False, "model_type": "nomic_bert", "n_embd": c.hidden_size, "n_head": c.num_attention_heads,
            "n_inner": c.intermediate_size, "n_layer": c.num_hidden_layers, "n_positions": 4 * c.max_position_embeddings,
            "parallel_block": False, "prenorm": False, "qkv_proj_bias": False, "rotary_emb_base": 1000,
            "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
            "rotary_scaling_factor": None, "type_vocab_size": c.type_vocab_size, "use_rms_norm": False,
            "vocab_size": c.vocab_size}
    (folder / "config.json").write_text(json.dumps(keys, indent=1) + "\n")


def nomicmoe(name):
    """Nomic Embed v2, whose class with experts is not transformers': the reference is here, in float64, from the
    authors' formulas.  Two of four layers have experts; weights of the two best do not add up to 1.  NAME.gguf is without
    the bias of the experts' sum, as llama.cpp's converter writes it; NAMEhub is the authors' folder, which has it."""
    tokenizer, pieces, charsmap = unigram("stripped")
    n_layers, n, heads, ff, n_experts, used, theta, eps = 4, 64, 4, 96, 5, 2, 10000.0, 1e-5
    g = torch.Generator().manual_seed(21)

    def matrix(*shape, size=1.3):
        return (size * torch.randn(shape, generator=g, dtype=torch.float64) / shape[-1] ** 0.5).half().double()

    def vector(m, one=0):
        return (one + 0.25 * torch.randn(m, generator=g, dtype=torch.float64)).float().double()

    w = {"token_embd.weight": matrix(len(pieces), n, size=1), "token_types.weight": matrix(1, n, size=1)}
    norms = ["token_embd_norm"]
    for i in range(n_layers):
        b = f"blk.{i}."
        norms += [b + "attn_output_norm", b + "layer_output_norm"]
        for to, rows, cols in (("attn_qkv", 3 * n, n), ("attn_output", n, n)):
            w |= {f"{b}{to}.weight": matrix(rows, cols), f"{b}{to}.bias": vector(rows)}
        if i % 2:
            w |= {b + "ffn_gate_inp.weight": matrix(n_experts, n, size=2), b + "ffn_up_exps.weight": matrix(n_experts, ff, n),
                  b + "ffn_down_exps.weight": matrix(n_experts, n, ff)}
            continue
        for to, rows, cols in (("ffn_up", ff, n), ("ffn_down", n, ff)):
            w |= {f"{b}{to}.weight": matrix(rows, cols), f"{b}{to}.bias": vector(rows)}
    for x in norms:
        w |= {x + ".weight": vector(n, 1), x + ".bias": vector(n)}
    f = torch.nn.functional

    def norm(x, at):
        return f.layer_norm(x, (n,), w[at + ".weight"], w[at + ".bias"], eps)

    def linear(x, at):
        return f.linear(x, w[at + ".weight"], w[at + ".bias"])

    def rotate(x):
        """Halves are pairs; x [heads, rows, dim]."""
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * theta ** (
            -torch.arange(half, dtype=torch.float64) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def experts(x, b):
        score = f.linear(x, w[b + "ffn_gate_inp.weight"]).softmax(-1)
        best, chosen = score.topk(used, -1)
        out = torch.zeros_like(x)
        for e in range(n_experts):
            y = f.linear(f.gelu(f.linear(x, w[b + "ffn_up_exps.weight"][e])), w[b + "ffn_down_exps.weight"][e])
            out += (best * (chosen == e)).sum(-1, keepdim=True) * y
        return out + w.get(b + "ffn_exps.bias", 0)

    def forward(ids):
        x = norm(w["token_embd.weight"][ids] + w["token_types.weight"][0], "token_embd_norm")
        for i in range(n_layers):
            b = f"blk.{i}."
            q, k, v = linear(x, b + "attn_qkv").reshape(len(ids), 3, heads, -1).permute(1, 2, 0, 3)
            q, k = rotate(q), rotate(k)
            p = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
            x = norm(x + linear((p @ v).transpose(0, 1).reshape(len(ids), n), b + "attn_output"), b + "attn_output_norm")
            y = experts(x, b) if i % 2 else linear(f.gelu(linear(x, b + "ffn_up")), b + "ffn_down")
            x = norm(x + y, b + "layer_output_norm")
        v = x.mean(0)
        return v / v.norm()

    def write(name):
        rows = []
        for text in [t for t in TEXTS if len(t) < 400]:
            ids = tokenizer(text)["input_ids"]
            rows.append((text, ids, [0] * len(ids), forward(ids).numpy()))
        write_golden(name, rows)
        out = Gguf(name, "nomic-bert-moe", {
            "block_count": n_layers, "context_length": 320, "embedding_length": n, "feed_forward_length": ff,
            "attention.head_count": heads, "attention.layer_norm_epsilon": eps, "attention.causal": False,
            "pooling_type": 1, "rope.freq_base": theta, "moe_every_n_layers": 2, "expert_count": n_experts,
            "expert_used_count": used})
        out.pieces(pieces, charsmap)
        out.tensors(w)

    write(name)
    w |= {f"blk.{i}.ffn_exps.bias": vector(n) for i in range(1, n_layers, 2)}
    write(name + "hub")
    authors_experts(name + "hub", w, tokenizer, {
        "activation_function": "gelu", "add_pooling_layer": False, "architectures": ["NomicBertModel"], "causal": False,
        "expert_choice_router": False, "ffn_div": 1, "layer_norm_epsilon": eps, "max_trained_positions": 320,
        "mlp_fc1_bias": True, "mlp_fc2_bias": True, "model_type": "nomic_bert", "moe_every_n_layers": 2,
        "moe_impl": "megablocks", "moe_normalize_expert_weights": False, "moe_top_k": used, "n_embd": n, "n_head": heads,
        "n_inner": ff, "n_layer": n_layers, "n_positions": 640, "num_experts": n_experts, "num_shared_experts": 0,
        "pad_token_id": 1, "parallel_block": False, "prenorm": False, "qkv_proj_bias": True, "rotary_emb_base": theta,
        "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None, "type_vocab_size": 1, "use_rms_norm": False, "vocab_size": len(pieces)})


def authors_experts(name, w, tokenizer, keys):
    """Weights by GGUF's names as Nomic Embed v2's folder on the Hub has them: the experts' matrices below each other in
    one, those of w2 [in, out] each."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    names = {"token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings",
             "token_embd_norm": "emb_ln", "attn_qkv": "attn.Wqkv", "attn_output": "attn.out_proj",
             "attn_output_norm": "norm1", "layer_output_norm": "norm2", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2",
             "ffn_gate_inp": "mlp.router.layer", "ffn_exps": "mlp.experts"}
    out = {}
    for at, p in w.items():
        module, kind = at.rsplit(".", 1)
        layer = ""
        if module.startswith("blk."):
            _, i, module = module.split(".")
            layer = f"encoder.layers.{i}."
        if module == "ffn_up_exps":
            out[layer + "mlp.experts.mlp.w1"] = p.flatten(0, 1)
        elif module == "ffn_down_exps":
            out[layer + "mlp.experts.mlp.w2"] = p.transpose(1, 2).flatten(0, 1)
        else:
            out[f"{layer}{names[module]}.{kind}"] = p
    tokenizer.model_max_length = keys["max_trained_positions"]
    tokenizer.save_pretrained(folder)
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    save_file(short(out), folder / "model.safetensors", {"format": "pt"})
    kinds = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    pooling = {f"pooling_mode_{kind}": kind == "mean_tokens" for kind in kinds}
    parts_of = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (folder / "1_Pooling").mkdir()
    for path, value in (("config.json", keys), ("1_Pooling/config.json", {"word_embedding_dimension": keys["n_embd"], **pooling}),
                        ("modules.json", [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
                                          for i, (path, kind) in enumerate(parts_of)])):
        (folder / path).write_text(json.dumps(value, indent=1) + "\n")
    for path in folder.rglob("*.*"):
        path.chmod(0o644)


def gemmaembed(name):
    """In both directions, a window to both sides in every second layer; dense layers in gemmadense.gguf."""
    special = ["<pad>", "<bos>", "<eos>"]
    tokenizer, vocab, merges = bpe(special, ["<bos>"], ["<eos>"])
    c = tf.Gemma3TextConfig(vocab_size=len(vocab), hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
                            num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16, intermediate_size=80,
                            max_position_embeddings=512, sliding_window=40, use_bidirectional_attention=True,
                            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                            tie_word_embeddings=True, attn_implementation="eager")
    m = tf.Gemma3TextModel(c).double().eval()
    fill(m, 7, True)
    st = pipeline(name, m, tokenizer, "mean", max_length=512)
    m = m.double()
    texts = [t for t in TEXTS if len(t) < 400]
    golden(name, st, texts)

    def write(name, extra, keys):
        g = Gguf(name, "gemma-embedding", {
            "block_count": 3, "context_length": 512, "embedding_length": 48, "feed_forward_length": 80,
            "attention.head_count": 4, "attention.head_count_kv": 1, "attention.key_length": 16,
            "attention.value_length": 16, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
            "rope.freq_base_swa": 1e4, "attention.sliding_window": 40, "pooling_type": 1, **keys})
        g.w.add_array("gemma-embedding.attention.sliding_window_pattern", [True, True, False])
        put_bpe(g, vocab, merges, special)
        g.w.add_bos_token_id(vocab["<bos>"])
        g.w.add_eos_token_id(vocab["<eos>"])
        g.w.add_add_bos_token(True)
        g.w.add_add_eos_token(True)
        g.tensors({**decoder_tensors(m.state_dict(), True), **extra})

    write(name, {}, {})
    r = torch.Generator().manual_seed(8)
    d2 = (torch.randn((96, 48), generator=r, dtype=torch.float64) / 7).half().double()
    d3 = (torch.randn((48, 96), generator=r, dtype=torch.float64) / 10).half().double()
    write("gemmadense", {"dense_2.weight": d2, "dense_3.weight": d3},
          {"dense_2_feat_in": 48, "dense_2_feat_out": 96, "dense_3_feat_in": 96, "dense_3_feat_out": 48})
    rows = []
    for text in texts:
        with torch.no_grad():
            x = st.tokenize([text])
            h = m(**{k: v for k, v in x.items() if k in ("input_ids", "attention_mask")}).last_hidden_state[0].mean(0)
            v = d3 @ (d2 @ h)
        ids = x["input_ids"][0].tolist()
        rows.append((text, ids, [0] * len(ids), (v / v.norm()).numpy()))
    write_golden("gemmadense", rows)


MODELS = [bert, bertcls, bertrank, qwen3embed, nomic, nomicmoe, gemmaembed, xlmr, xlmrmean, xlmrrank, qwen3rank, qwen3rankcls]

if __name__ == "__main__":
    for make in MODELS:
        if len(sys.argv) < 2 or make.__name__ in sys.argv[1:]:
            make(make.__name__)
            print(make.__name__)
