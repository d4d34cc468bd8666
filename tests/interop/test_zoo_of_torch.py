"""Models of libraries, from their configurations, without a download: outputs and gradients are torch's."""

import warnings

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses
from gbackprop.interop import from_torch

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

TORCHVISION = {
    "alexnet": 64, "convnext_tiny": 32, "densenet121": 32, "efficientnet_b0": 32, "mnasnet0_5": 32, "mobilenet_v2": 32,
    "mobilenet_v3_small": 32, "regnet_x_400mf": 32, "resnet18": 32, "resnext50_32x4d": 32, "shufflenet_v2_x0_5": 32,
    "squeezenet1_1": 32, "swin_t": 32, "vgg11_bn": 32, "wide_resnet50_2": 32,
}  # fmt: skip
"""Sizes of images, by name."""

TIMM = {
    "resnet10t": (32, {}),
    "resnet18d": (32, {}),
    "convnext_atto": (32, {}),
    "dla34": (64, {}),
    "pvt_v2_b0": (32, {}),
    "vit_tiny_patch16_224": (32, {"img_size": 32}),
    "poolformer_s12": (64, {}),
    "efficientnet_lite0": (32, {}),
    "swin_tiny_patch4_window7_224": (32, {"img_size": 32, "window_size": 4}),
    "mobilenetv3_small_050": (32, {}),
    "mixer_s32_224": (64, {"img_size": 64}),
    "cait_xxs24_224": (32, {"img_size": 32}),
    "regnetx_002": (32, {}),
    "gmlp_s16_224": (32, {"img_size": 32}),
    "resmlp_12_224": (32, {"img_size": 32}),
    "densenet121": (32, {}),
    "beit_base_patch16_224": (32, {"img_size": 32, "depth": 2}),
    "ghostnet_050": (32, {}),
    "repvgg_a0": (32, {}),
}
"""Sizes of images and further arguments, by name."""

SMALL = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 16,
}  # fmt: skip
IMAGES = {**SMALL, "image_size": 16, "patch_size": 8}
SMALL_GPT = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16, "use_cache": False}
SMALL_BERT = {"vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
SMALL_T5 = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
TRANSFORMERS = {
    "BertModel": ("BertConfig", SMALL, "last_hidden_state"), "ElectraModel": ("ElectraConfig", SMALL, 0),
    "AlbertModel": ("AlbertConfig", SMALL, 0), "DistilBertModel": ("DistilBertConfig", SMALL_BERT, 0),
    "GPT2LMHeadModel": ("GPT2Config", SMALL_GPT, "logits"), "PhiForCausalLM": ("PhiConfig", SMALL, "logits"),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", SMALL, "logits"), "ViTModel": ("ViTConfig", IMAGES, 0),
    "DeiTModel": ("DeiTConfig", IMAGES, 0), "CLIPVisionModel": ("CLIPVisionConfig", IMAGES, 0),
    "RobertaModel": ("RobertaConfig", SMALL, 0), "MPNetModel": ("MPNetConfig", SMALL, 0),
    "LlamaForCausalLM": ("LlamaConfig", SMALL, "logits"), "T5EncoderModel": ("T5Config", SMALL_T5, 0),
}  # fmt: skip
"""Configuration, its arguments, and the output that is taken, by the model's name."""

ROUNDED = {"LlamaForCausalLM", "T5EncoderModel"}
"""Models that compute norms in float32, whatever their parameters are."""


def check(module, x, tolerance=1e-8, output=None):
    module = module.double().eval()
    torch.manual_seed(1)
    for value in module.parameters():
        value.data += 0.02 * torch.randn_like(value)
    network = from_torch(module, x, output)
    theirs = module(x) if output is None else module(x)[output]
    largest = float(theirs.detach().abs().max())
    np.testing.assert_allclose(network(x.numpy()), theirs.detach(), rtol=0, atol=tolerance * largest)
    y = torch.randn_like(theirs).detach()
    loss = torch.nn.functional.mse_loss(theirs, y)
    wanted = dict(module.named_parameters())
    gradient = torch.autograd.grad(loss, list(wanted.values()), materialize_grads=True)
    ours = gb.backward(network, losses.MSELoss(), x.numpy(), y.numpy()).gradient
    largest = max(float(value.abs().max()) for value in gradient)
    for name, value in zip(wanted, gradient, strict=True):
        if name in ours or value.any():
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=tolerance * largest, err_msg=name)


def images(size):
    torch.manual_seed(0)
    return torch.randn(2, 3, size, size, dtype=torch.float64)


@pytest.mark.parametrize("name", TORCHVISION)
def test_models_of_torchvision(name):
    for lacking in ("nms", "qnms"):  # its compiled operators may be missing
        try:
            torch.library.define(f"torchvision::{lacking}", "(Tensor a, Tensor b, float c) -> Tensor")
        except RuntimeError:
            break
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(0)
    check(getattr(models, name)(num_classes=5), images(TORCHVISION[name]))


@pytest.mark.parametrize("name", TIMM)
def test_models_of_timm(name):
    pytest.importorskip("torchvision")
    timm = pytest.importorskip("timm")
    size, given = TIMM[name]
    torch.manual_seed(0)
    check(timm.create_model(name, pretrained=False, num_classes=5, **given), images(size))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_models_of_transformers(name):
    transformers = pytest.importorskip("transformers")
    config, given, output = TRANSFORMERS[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = getattr(transformers, name)(getattr(transformers, config)(**given))
    x = images(16) if "image_size" in given else torch.randint(3, 50, (2, 6))
    check(module, x, 1e-5 if name in ROUNDED else 1e-8, output)
