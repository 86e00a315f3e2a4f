#!/usr/bin/env python3
"""Write a tiny GGUF model for tests: plain Python, nothing but the standard library.

Kinds:
  random   every weight is random, from a seed; the text is nonsense, but each
           token depends on all before it, so two runs agree only if all sums do.
  script   attention and feed-forward are zero, so the model is a table from a
           token to the next one: at temperature 0 (and, very nearly surely, up to
           1) it answers with SCRIPT and then ends its turn.
  tools    as script, but it thinks, says something and calls get_weather.
  thinks   as script, but it thinks and then speaks; its markers are tokens of their own.
  loop     as script, but the last word leads back to the first: it never ends.
  book     it writes one of several texts, its pages, and ends its turn; the chat template chooses
           the page: book=[(a condition in Jinja, text) …], the first that holds; a text ending in
           "..." is written again and again.  A condition may use messages, tools, last (the last message) and ask (what the user said last).
  flood    as loop, with one token of 2 KiB: what a client that does not read is sent.

With arch "gemma3" it has that model's norms and, of every three layers, two that see a
window.  With arch "qwen35" every fourth layer has attention and the others are recurrent, with three heads of
values for each of keys; as in real ones a state is as large as K and V of more than a thousand tokens.  Arch
"pebble" is llama by another name, which no module of ours knows.

The vocabulary is byte-level BPE with ChatML's control tokens.  With template "tools"
(tools has it anyway) the chat template knows tools, as Hermes has them, and reasoning.  --damage makes a
file that is wrong in one named way, for tests of what the reader refuses.
"""
import argparse
import random
import struct

ARCH = "llama"
ARCHS = ARCH, "gemma3", "pebble", "qwen35"
WINDOW = 64 # of gemma3's local layers
# Of qwen35's recurrent layers: heads of keys and of values, values of a head, taps of the convolution.
DELTA_K_HEADS, DELTA_V_HEADS, DELTA_DIM, DELTA_TAPS = 2, 6, 64, 4
FULL_INTERVAL = 4
F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8
TYPES = {"F32": F32, "F16": F16, "Q4_0": Q4_0, "Q4_1": Q4_1, "Q8_0": Q8_0}
ALIGNMENT = 32

# The words of `script` and `loop`; the first follows the newline of the
# assistant's header.  An accented letter and an emoji are split over several
# tokens, so that streams show whole characters or fail.
SCRIPT_WORDS = ["Alpha", " bravo", " charlie", " delta", "\u00e9", " echo", " foxtrot", " golf",
                " hotel", " india", "\U0001f980", " juliett", " kilo", "."]
SCRIPT = "".join(SCRIPT_WORDS)
TOOLS_WORDS = ["<think>", "Hm.", "</think>", "I'll", " look.", "\n<tool_call>\n", '{"name": "',
               "get_weather", '", "argu', 'ments": {"ci', 'ty": "Pa', "ris\u00e9", '", "days": 3', "}}",
               "\n</tool_call>"]
THINKS_MARKS = ["<think>\n", "\n</think>\n\n"]
THINKS_WORDS = [THINKS_MARKS[0], "alpha", " bravo", THINKS_MARKS[1], "Charlie", " delta", " echo"]
FLOOD = "".join("%08x" % n for n in range(256)) # no merge makes it: prompts never have it

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
IM_START, IM_END = 1, 2

CHATML = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
          "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by "
          "Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
          "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|im_start|>assistant\n' }}{% endif %}")

TOOLS = ("{% if tools %}<|im_start|>system\nTools:\n{% for tool in tools %}{{ tool | tojson }}\n"
         "{% endfor %}Call one so: <tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>"
         "<|im_end|>\n{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
         "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
         "{{ m.content }}{% for c in m.tool_calls or [] %}\n<tool_call>\n"
         "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
         "\n</tool_call>{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
         "<|im_start|>assistant\n{% endif %}")
# One that takes a system message at the start only, and turns of user and assistant in turn.
STRICT = ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
          "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
          "{% if not loop.first and m.role == loop.previtem.role %}"
          "{{ raise_exception('Conversation roles must alternate.') }}{% endif %}"
          "{{'<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# One that moves all messages of the system to the front.
HOISTS = ("{% for m in messages %}{% if m.role == 'system' %}{{ '<|im_start|>system\n' + m.content + '<|im_end|>\n' }}"
          "{% endif %}{% endfor %}{% for m in messages %}{% if m.role != 'system' %}"
          "{{'<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n'}}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
# What three families' templates do with the reasoning of earlier turns.  Qwen 3 and GLM 4.5 keep
# that of turns after the last user's: a loop of tool calls.
LAST_USER = ("{%- set ns = namespace(user=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}"
             "{%- set ns.user = loop.index0 %}{%- endif %}{%- endfor %}")
QWEN3 = (LAST_USER + "{%- for m in messages %}{%- if m.role == 'tool' %}"
         "{{- '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
         "{%- else %}{{- '<|im_start|>' + m.role + '\n' }}"
         "{%- if loop.index0 > ns.user and m.reasoning_content %}"
         "{{- '<think>\n' + m.reasoning_content.strip('\n') + '\n</think>\n\n' }}{%- endif %}"
         "{{- m.content.lstrip('\n') }}{%- for c in m.tool_calls or [] %}"
         "{{- '\n<tool_call>\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}"
         "{{- c.function.arguments | tojson }}{{- '}\n</tool_call>' }}{%- endfor %}{%- endif %}"
         "{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}"
         "{{- '<|im_start|>assistant\n' }}"
         "{%- if enable_thinking is defined and enable_thinking is false %}"
         "{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}")
GLM = ("[gMASK]<sop>" + LAST_USER + "{%- for m in messages %}{%- if m.role == 'user' %}"
       "{{- '<|user|>\n' + m.content }}"
       "{%- if enable_thinking is defined and not enable_thinking %}{{- '/nothink' }}{%- endif %}"
       "{%- elif m.role == 'assistant' %}{{- '<|assistant|>' }}"
       "{%- if loop.index0 > ns.user and m.reasoning_content %}"
       "{{- '\n<think>' + m.reasoning_content.strip() + '</think>' }}"
       "{%- else %}{{- '\n<think></think>' }}{%- endif %}"
       "{%- if m.content.strip() %}{{- '\n' + m.content.strip() }}{%- endif %}"
       "{%- for c in m.tool_calls or [] %}{{- '\n<tool_call>' + c.function.name + '\n' }}"
       "{%- for k, v in c.function.arguments.items() %}{{- '<arg_key>' + k + '</arg_key>\n' }}"
       "{{- '<arg_value>' ~ v ~ '</arg_value>\n' }}{%- endfor %}{{- '</tool_call>' }}{%- endfor %}"
       "{%- elif m.role == 'tool' %}"
       "{{- '<|observation|>\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
       "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}")
# gpt-oss: the reasoning before a call is a message of the channel analysis, until a final message.
GPT_OSS = ("{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' }}"
           "{%- set ns = namespace(name='', final=false) %}{%- for m in messages %}"
           "{%- if m.role == 'assistant' and m.tool_calls %}"
           "{%- if m.content and m.thinking %}{{- raise_exception('both content and thinking') }}"
           "{%- endif %}{%- set ns.final = false %}{%- for later in messages[loop.index:] %}"
           "{%- if later.role == 'assistant' and not later.tool_calls %}"
           "{%- set ns.final = true %}{%- endif %}{%- endfor %}"
           "{%- if (m.content or m.thinking) and not ns.final %}"
           "{{- '<|start|>assistant<|channel|>analysis<|message|>' + (m.content or m.thinking) }}"
           "{{- '<|end|>' }}{%- endif %}{%- set ns.name = m.tool_calls[0].function.name %}"
           "{{- '<|start|>assistant<|channel|>commentary to=functions.' + ns.name }}"
           "{{- ' <|constrain|>json<|message|>' }}"
           "{{- m.tool_calls[0].function.arguments | tojson }}{{- '<|call|>' }}"
           "{%- elif m.role == 'assistant' %}"
           "{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}"
           "{%- elif m.role == 'tool' %}{{- '<|start|>functions.' + ns.name }}"
           "{{- ' to=assistant<|channel|>commentary<|message|>' + m.content + '<|end|>' }}"
           "{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}"
           "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|start|>assistant' }}"
           "{%- endif %}")
TEMPLATES = {"chatml": CHATML, "tools": TOOLS, "strict": STRICT, "hoists": HOISTS,
             "qwen3": QWEN3, "glm": GLM, "gpt-oss": GPT_OSS}

# Of a long message only its end: agents send some 40 kB before the user's first word.
BOOK = ("{% set ns = namespace(ask='') %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.ask = m.content %}"
        "{% endif %}{{ '<|im_start|>' + m.role + '\n' + m.content[-300:] }}{% for c in m.tool_calls or [] %}"
        "\n<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>"
        "{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{% set last = messages[-1] %}{% set ask = ns.ask %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n")


def book_template(book):
    """The template of a book; its tools are never in the prompt."""
    pages = "".join("{%% %s %s %%}<|page_%d|>" % ("elif" if i else "if", condition, i)
                    for i, (condition, _) in enumerate(book))
    hermes = "{% if tools and false %}<tool_call>\n{\"name\": ..., \"arguments\": ...}\n</tool_call>{% endif %}"
    return hermes + BOOK + pages + "{% endif %}{% endif %}"


def pieces(text, used):
    """The text in pieces of some letters, each of which is in no other text."""
    out, at = [], 0
    while at < len(text):
        n = 12
        while text[at:at + n] in used and at + n < len(text):
            n += 1
        out.append(text[at:at + n])
        at += n
    if len(out) > 1 and out[-1] in used:
        out[-2:] = [out[-2] + out[-1]]
    if out[-1] in used:
        raise ValueError("two pages have the same text: %r" % text)
    used.update(out)
    return out

DAMAGES = {
    "truncated": "the file ends in the middle of the tensors' data",
    "truncated-header": "the file ends in the middle of the metadata",
    "magic": "the first four bytes are not GGUF",
    "version": "GGUF version 99",
    "beyond": "a tensor's offset lies beyond the end of the file",
    "offset-overflow": "a tensor's offset is 2^64 - 32",
    "huge-tensor": "a tensor's dimensions overflow 64 bits when multiplied",
    "arch": "general.architecture is 'zeppelin'",
    "no-arch": "general.architecture is missing",
    "type": "a tensor has element type 99",
    "missing": "blk.1.ffn_up.weight is missing",
    "shape": "blk.1.attn_k.weight has another shape",
    "huge-counts": "the header promises 2^60 tensors",
    "huge-keys": "the header promises 2^60 keys",
    "huge-string": "a key's length is 2^62",
    "huge-array": "an array promises 2^61 elements",
    "no-heads": "llama.attention.head_count is 0",
    "no-template": "there is no chat template",
    "template": "the chat template has an error",
    "tokenizer": "tokenizer.ggml.model is 'zeppelin'",
    "pre": "tokenizer.ggml.pre is 'zeppelin'",
    "merge": "a merge names tokens that do not exist",
}


# ---- values ------------------------------------------------------------------

def half(x):
    return struct.pack("<e", x)


def as_half(x):
    return struct.unpack("<e", half(x))[0]


def row_bytes(dtype, values):
    """One row in the format of GGUF; len(values) is a multiple of 32."""
    if dtype == F32:
        return struct.pack("<%df" % len(values), *values)
    if dtype == F16:
        return struct.pack("<%de" % len(values), *values)
    out = bytearray()
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        if dtype == Q8_0:
            d = max(abs(v) for v in block) / 127.0
            inverse = 1.0 / d if d else 0.0
            out += half(d)
            out += struct.pack("<32b", *[max(-127, min(127, round(v * inverse))) for v in block])
            continue
        if dtype == Q4_0:
            extreme = max(block, key=abs)
            d = as_half(extreme / -8.0)
            out += half(d)
            q = [max(0, min(15, round(v / d) + 8)) if d else 8 for v in block]
        else:
            low, high = min(block), max(block)
            d, m = as_half((high - low) / 15.0), as_half(low)
            out += half(d) + half(m)
            q = [max(0, min(15, round((v - m) / d))) if d else 0 for v in block]
        # value i is a low nibble for i < 16, else a high one
        out += bytes(q[i] | q[i + 16] << 4 for i in range(16))
    return bytes(out)


ROW_BYTES = {F32: lambda n: 4 * n, F16: lambda n: 2 * n, Q4_0: lambda n: n // 32 * 18,
             Q4_1: lambda n: n // 32 * 20, Q8_0: lambda n: n // 32 * 34}


# ---- vocabulary ----------------------------------------------------------------

def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary."""
    plain = (list(range(ord("!"), ord("~") + 1)) + list(range(0xa1, 0xad)) +
             list(range(0xae, 0x100)))
    letters, extra = {}, 0
    for b in range(256):
        if b in plain:
            letters[b] = chr(b)
        else:
            letters[b] = chr(256 + extra)
            extra += 1
    return [letters[b] for b in range(256)]


LETTERS = byte_letters()


def spelled(text):
    return "".join(LETTERS[b] for b in text.encode())


class Vocabulary:
    """Control tokens, 256 bytes, then a chain of merges for every common piece."""

    def __init__(self, kind, book=()):
        self.control = CONTROL + ["<|page_%d|>" % i for i in range(len(book))]
        self.tokens = self.control + LETTERS
        self.index = {t: i for i, t in enumerate(self.tokens)}
        self.merges = []
        for piece in [" the", " and", "ing", "er", " of", "user", "system", "assistant"]:
            self.add_piece(spelled(piece))
        # The crab and the accent stay in single bytes.
        self.script = [] # what is not ASCII stays in single bytes
        self.marks = []
        if kind == "thinks":
            self.marks = [len(self.tokens) + i for i in range(len(THINKS_MARKS))]
            self.index.update(zip(THINKS_MARKS, self.marks))
            self.tokens += THINKS_MARKS
        for word in {"tools": TOOLS_WORDS, "thinks": THINKS_WORDS}.get(kind, SCRIPT_WORDS):
            if word in THINKS_MARKS:
                self.script.append(self.index[word])
            elif word.isascii():
                self.script.append(self.add_piece(spelled(word)))
            else:
                self.script += [self.index[LETTERS[b]] for b in word.encode()]
        if kind == "flood":
            self.script = [len(self.tokens)]
            self.index[FLOOD] = len(self.tokens)
            self.tokens.append(FLOOD)
        used, self.pages = set(self.tokens), []
        for i, (_, text) in enumerate(book):
            page = [len(CONTROL) + i]
            for piece in pieces(spelled(text), used):
                page.append(len(self.tokens))
                self.index[piece] = len(self.tokens)
                self.tokens.append(piece)
            self.pages.append(page)

    def add_piece(self, piece):
        for n in range(2, len(piece) + 1):
            merged = piece[:n]
            if merged not in self.index:
                self.merges.append(piece[:n - 1] + " " + piece[n - 1])
                self.index[merged] = len(self.tokens)
                self.tokens.append(merged)
        return self.index[piece]

    def script_chain(self):
        """(token, next) pairs, from the newline of the assistant's header on.  No
        token may stand in the script twice."""
        if self.pages:
            return [pair for page in self.pages
                    for pair in zip(page, page[1:] + [page[1] if self.tokens[page[-1]].endswith("...") else IM_END])]
        return list(zip([self.index[LETTERS[10]]] + self.script, self.script))


# ---- weights --------------------------------------------------------------------

class Model:
    def __init__(self, kind="random", dtype="Q8_0", seed=1, n_blocks=2, width=128, n_heads=4,
                 n_kv_heads=2, n_ff=192, n_context=512, tied=False, template=None,
                 n_experts=0, n_used=2, arch=ARCH, book=()):
        if width % n_heads or width // n_heads % 32 or n_ff % 32 or n_heads % n_kv_heads:
            raise ValueError("width, heads and feed-forward must fit blocks of 32")
        if kind not in ("random", "script", "tools", "thinks", "book", "loop", "flood") or (kind == "book") != bool(book):
            raise ValueError("unknown kind " + kind)
        if kind != "random" and tied:
            raise ValueError("a script needs a head of its own")
        if n_used > n_experts > 0:
            raise ValueError("fewer experts than are used")
        if arch not in ARCHS or (arch in ("gemma3", "qwen35") and kind != "random"):
            raise ValueError("no such model of architecture " + arch)
        if arch == "qwen35":
            n_blocks = max(n_blocks, FULL_INTERVAL)
        self.kind, self.dtype, self.arch = kind, TYPES[dtype], arch
        self.n_experts, self.n_used = n_experts, n_used
        self.template = book_template(book) if book else TEMPLATES[
            template or ("tools" if kind == "tools" else "chatml")]
        self.n_blocks, self.width, self.n_heads, self.n_kv_heads = n_blocks, width, n_heads, n_kv_heads
        self.head_dim, self.n_ff, self.n_context, self.tied = width // n_heads, n_ff, n_context, tied
        self.vocabulary = Vocabulary(kind, book)
        self.random = random.Random(seed)
        self.n_vocab = len(self.vocabulary.tokens)

    def gauss_rows(self, dtype, n_rows, n_cols, scale, zero_rows=()):
        gauss = self.random.gauss
        return b"".join(
            row_bytes(dtype, [0.0] * n_cols if r in zero_rows else
                      [gauss(0.0, scale) for _ in range(n_cols)]) for r in range(n_rows))

    def script_rows(self):
        """Embedding and head: the head's row of each next token is the sum of the
        (nearly orthogonal) embeddings of the tokens that lead to it."""
        width, chain = self.width, self.vocabulary.script_chain()
        last = self.vocabulary.script[-1]
        if self.kind != "book":
            chain.append((last, IM_END if self.kind in ("script", "tools", "thinks")
                          else self.vocabulary.script[0]))
        step = {}
        for token, following in chain:
            if step.setdefault(token, following) != following:
                raise ValueError("token %d of the script has two successors" % token)
        table = [[self.random.choice((-1.0, 1.0)) for _ in range(width)]
                 for _ in range(self.n_vocab)]
        head = [[0.0] * width for _ in range(self.n_vocab)]
        gain = 48.0 / width
        for token, following in step.items():
            head[following] = [h + gain * e for h, e in zip(head[following], table[token])]
        return (b"".join(row_bytes(self.dtype, r) for r in table),
                b"".join(row_bytes(self.dtype, r) for r in head))

    def tensors(self):
        """[(name, dims, dtype, bytes)]; dims[0] is the inner length, as GGUF has it."""
        out, dt, w = [], self.dtype, self.width
        q, kv = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        ones = struct.pack("<%df" % w, *[1.0] * w)

        def matrix(name, n_rows, n_cols, scale=None, zero_rows=()):
            if self.kind == "random":
                data = self.gauss_rows(dt, n_rows, n_cols, scale or n_cols ** -0.5, zero_rows)
            else:
                data = bytes(n_rows * ROW_BYTES[dt](n_cols))
            out.append((name, [n_cols, n_rows], dt, data))

        def experts(name, n_rows, n_cols):
            matrix(name, self.n_experts * n_rows, n_cols)
            out[-1] = (name, [n_cols, n_rows, self.n_experts]) + out[-1][2:]

        if self.kind == "random":
            matrix("token_embd.weight", self.n_vocab, w, 1.0)
            if not self.tied:
                # Control tokens and bytes beyond ASCII have logit 0 among hundreds of
                # spread 3: they are never sampled at temperature 0 and hardly ever at
                # 1, so that the text shows which tokens were sampled.
                silent = set(range(len(CONTROL))) | {
                    self.vocabulary.index[LETTERS[b]] for b in range(128, 256)}
                if self.arch == "qwen35":  # what it says is sent back as JSON
                    silent |= {self.vocabulary.index[LETTERS[b]] for b in range(32) if b != 10}
                matrix("output.weight", self.n_vocab, w, 3.0 * w ** -0.5, silent)
        else:
            table, head = self.script_rows()
            out.append(("token_embd.weight", [w, self.n_vocab], dt, table))
            out.append(("output.weight", [w, self.n_vocab], dt, head))
        def vector(name, n, low, high):
            out.append((name, [n], F32, struct.pack("<%df" % n, *[self.random.uniform(low, high) for _ in range(n)])))

        def delta_net(p):
            """The rule forgets slowly, so the state depends on tokens long before."""
            values = DELTA_V_HEADS * DELTA_DIM
            qkv = 2 * DELTA_K_HEADS * DELTA_DIM + values
            matrix(p + "attn_qkv.weight", qkv, w)
            matrix(p + "attn_gate.weight", values, w)
            matrix(p + "ssm_beta.weight", DELTA_V_HEADS, w)
            matrix(p + "ssm_alpha.weight", DELTA_V_HEADS, w)
            out.append((p + "ssm_conv1d.weight", [DELTA_TAPS, qkv], F32, self.gauss_rows(F32, qkv, DELTA_TAPS, 0.5)))
            vector(p + "ssm_dt.bias", DELTA_V_HEADS, -1, 1)
            vector(p + "ssm_a", DELTA_V_HEADS, -0.1, -0.001)
            vector(p + "ssm_norm.weight", DELTA_DIM, 0.5, 1.5)
            matrix(p + "ssm_out.weight", w, values)

        for b in range(self.n_blocks):
            p = "blk.%d." % b
            if self.arch == "qwen35":
                vector(p + "attn_norm.weight", w, 0.5, 1.5)
                vector(p + "post_attention_norm.weight", w, 0.5, 1.5)
                matrix(p + "ffn_gate.weight", self.n_ff, w)
                matrix(p + "ffn_up.weight", self.n_ff, w)
                matrix(p + "ffn_down.weight", w, self.n_ff)
                if (b + 1) % FULL_INTERVAL:
                    delta_net(p)
                    continue
                vector(p + "attn_q_norm.weight", self.head_dim, 1, 2)
                vector(p + "attn_k_norm.weight", self.head_dim, 1, 2)
                matrix(p + "attn_q.weight", 2 * q, w) # of each head the query, then its gate
                matrix(p + "attn_k.weight", kv, w)
                matrix(p + "attn_v.weight", kv, w)
                matrix(p + "attn_output.weight", w, q)
                continue
            more = ("post_attention_norm", "post_ffw_norm") if self.arch == "gemma3" else ()
            for norm in ("attn_norm", "ffn_norm") + more:
                if self.kind == "random":
                    data = struct.pack("<%df" % w, *[self.random.uniform(0.5, 1.5)
                                                     for _ in range(w)])
                else:
                    data = ones
                out.append((p + norm + ".weight", [w], F32, data))
            for norm in ("attn_q_norm", "attn_k_norm") if self.arch == "gemma3" else ():
                out.append((p + norm + ".weight", [self.head_dim], F32, struct.pack(
                    "<%df" % self.head_dim, *[1.0] * self.head_dim)))
            matrix(p + "attn_q.weight", q, w, 2.0 * w ** -0.5)
            matrix(p + "attn_k.weight", kv, w, 2.0 * w ** -0.5)
            matrix(p + "attn_v.weight", kv, w)
            matrix(p + "attn_output.weight", w, q)
            if self.n_experts:
                out.append((p + "ffn_gate_inp.weight", [w, self.n_experts], F32,
                            self.gauss_rows(F32, self.n_experts, w, w ** -0.5)))
                experts(p + "ffn_gate_exps.weight", self.n_ff, w)
                experts(p + "ffn_up_exps.weight", self.n_ff, w)
                experts(p + "ffn_down_exps.weight", w, self.n_ff)
                continue
            matrix(p + "ffn_gate.weight", self.n_ff, w)
            matrix(p + "ffn_up.weight", self.n_ff, w)
            matrix(p + "ffn_down.weight", w, self.n_ff)
        out.append(("output_norm.weight", [w], F32, ones))
        return out

    def metadata(self):
        """[(key, type, value)]; types are those of GGUF."""
        v = self.vocabulary
        a = self.arch + "."
        return [
            ("general.architecture", "str", self.arch),
            ("general.name", "str", "Tiny " + self.kind),
            (a + "block_count", "u32", self.n_blocks),
            (a + "context_length", "u32", self.n_context),
            (a + "embedding_length", "u32", self.width),
            (a + "feed_forward_length", "u32", self.n_ff),
            (a + "attention.head_count", "u32", self.n_heads),
            (a + "attention.head_count_kv", "u32", self.n_kv_heads),
            (a + "attention.layer_norm_rms_epsilon", "f32", 1e-5),
            (a + "rope.freq_base", "f32", 10000.0),
            (a + "rope.dimension_count", "u32", self.head_dim),
            (a + "vocab_size", "u32", self.n_vocab),
            *([(a + "expert_count", "u32", self.n_experts),
               (a + "expert_used_count", "u32", self.n_used)] if self.n_experts else []),
            *([(a + "attention.sliding_window", "u32", WINDOW),
               (a + "attention.sliding_window_pattern", "bools",
                [b % 3 != 2 for b in range(self.n_blocks)])] if self.arch == "gemma3" else []),
            *([(a + "full_attention_interval", "u32", FULL_INTERVAL),
               (a + "attention.key_length", "u32", self.head_dim),
               (a + "attention.value_length", "u32", self.head_dim),
               (a + "ssm.conv_kernel", "u32", DELTA_TAPS), (a + "ssm.state_size", "u32", DELTA_DIM),
               (a + "ssm.group_count", "u32", DELTA_K_HEADS), (a + "ssm.time_step_rank", "u32", DELTA_V_HEADS),
               (a + "ssm.inner_size", "u32", DELTA_V_HEADS * DELTA_DIM)] if self.arch == "qwen35" else []),
            ("tokenizer.ggml.model", "str", "gpt2"),
            ("tokenizer.ggml.pre", "str", "smollm"),
            ("tokenizer.ggml.tokens", "strs", v.tokens),
            ("tokenizer.ggml.token_type", "i32s",
             [3 if i < len(v.control) else 4 if i in v.marks else 1 for i in range(len(v.tokens))]),
            ("tokenizer.ggml.merges", "strs", v.merges),
            ("tokenizer.ggml.bos_token_id", "u32", IM_START),
            ("tokenizer.ggml.eos_token_id", "u32", IM_END),
            ("tokenizer.ggml.add_bos_token", "bool", False),
            ("tokenizer.chat_template", "str", self.template),
        ]


# ---- the file --------------------------------------------------------------------

def string(s):
    data = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(data)) + data


def value_bytes(kind, value):
    if kind == "u32":
        return struct.pack("<II", 4, value)
    if kind == "f32":
        return struct.pack("<If", 6, value)
    if kind == "bool":
        return struct.pack("<IB", 7, value)
    if kind == "str":
        return struct.pack("<I", 8) + string(value)
    if kind == "strs":
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(string, value))
    if kind == "i32s":
        return struct.pack("<IIQ%di" % len(value), 9, 5, len(value), *value)
    if kind == "bools":
        return struct.pack("<IIQ%dB" % len(value), 9, 7, len(value), *value)
    if kind == "raw":
        return value
    raise ValueError(kind)


def padded(n):
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def damaged_metadata(meta, damage):
    def replace(key, kind, value):
        return [(k, kind, value) if k == key else (k, t, v) for k, t, v in meta]

    if damage == "arch":
        return replace("general.architecture", "str", "zeppelin")
    if damage == "no-arch":
        return [m for m in meta if m[0] != "general.architecture"]
    if damage == "no-heads":
        return replace(ARCH + ".attention.head_count", "u32", 0)
    if damage == "no-template":
        return [m for m in meta if m[0] != "tokenizer.chat_template"]
    if damage == "template":
        return replace("tokenizer.chat_template", "str",
                       "{% for m in messages %}{{ m['content'] }}")  # no endfor
    if damage == "tokenizer":
        return replace("tokenizer.ggml.model", "str", "zeppelin")
    if damage == "pre":
        return replace("tokenizer.ggml.pre", "str", "zeppelin")
    if damage == "merge":
        merges = [v for k, _, v in meta if k == "tokenizer.ggml.merges"][0]
        return replace("tokenizer.ggml.merges", "strs", merges + ["nosuch token"])
    if damage == "huge-array":
        return replace("tokenizer.ggml.merges", "raw", struct.pack("<IIQ", 9, 8, 1 << 61))
    return meta


def build(model, damage=None):
    """The whole file as bytes."""
    if damage is not None and damage not in DAMAGES:
        raise ValueError("unknown damage " + damage)
    meta = damaged_metadata(model.metadata(), damage)
    tensors = model.tensors()
    if damage == "missing":
        tensors = [t for t in tensors if t[0] != "blk.1.ffn_up.weight"]

    n_tensors, n_keys = len(tensors), len(meta)
    if damage == "huge-counts":
        n_tensors = 1 << 60
    if damage == "huge-keys":
        n_keys = 1 << 60
    head = bytearray(b"GGUF" if damage != "magic" else b"GGML")
    head += struct.pack("<IQQ", 99 if damage == "version" else 3, n_tensors, n_keys)
    for at, (key, kind, value) in enumerate(meta):
        name = string(key)
        if damage == "huge-string" and at == 3:
            name = struct.pack("<Q", 1 << 62) + key.encode()
        head += name + value_bytes(kind, value)
    if damage == "truncated-header":
        return bytes(head[:len(head) // 2])

    data_bytes = sum(padded(len(t[3])) for t in tensors)
    offset, body = 0, bytearray()
    for name, dims, dtype, data in tensors:
        at = offset
        if name == "blk.1.ffn_down.weight" and damage == "beyond":
            at = padded(data_bytes) + 4096
        if name == "blk.1.ffn_down.weight" and damage == "offset-overflow":
            at = (1 << 64) - 32
        if name == "blk.1.ffn_down.weight" and damage == "huge-tensor":
            dims = [1 << 33, 1 << 33]
        if name == "blk.1.attn_k.weight" and damage == "shape":
            # The same number of values, so only the shape is wrong.
            dims = [dims[0] * 2, dims[1] // 2]
        if name == "blk.1.ffn_up.weight" and damage == "type":
            dtype = 99
        head += string(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, dtype, at)
        body += data + bytes(padded(len(data)) - len(data))
        offset += padded(len(data))
    whole = bytes(head) + bytes(padded(len(head)) - len(head)) + bytes(body)
    if damage == "truncated":
        return whole[:len(whole) - len(body) // 2]
    return whole


def write(path, damage=None, **options):
    with open(path, "wb") as f:
        f.write(build(Model(**options), damage))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("path")
    p.add_argument("--kind", choices=("random", "script", "tools", "loop", "flood"), default="random")
    p.add_argument("--type", choices=sorted(TYPES), default="Q8_0", dest="dtype")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--blocks", type=int, default=2, dest="n_blocks")
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4, dest="n_heads")
    p.add_argument("--kv-heads", type=int, default=2, dest="n_kv_heads")
    p.add_argument("--ff", type=int, default=192, dest="n_ff")
    p.add_argument("--context", type=int, default=512, dest="n_context")
    p.add_argument("--template", choices=sorted(TEMPLATES))
    p.add_argument("--arch", choices=ARCHS, default=ARCH)
    p.add_argument("--tied", action="store_true", help="no head of its own")
    p.add_argument("--damage", choices=sorted(DAMAGES), help="; ".join(
        "%s: %s" % d for d in sorted(DAMAGES.items())))
    options = vars(p.parse_args())
    write(options.pop("path"), **options)


if __name__ == "__main__":
    main()
