"""Modules of several inputs, from torch and from ONNX files: outputs, and gradients in parameters and in each input."""

import io
import warnings

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import losses
from gbackprop.interop import from_onnx, from_torch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402


class Doing(nn.Module):
    """A module of parts that does what a function of itself and its inputs says."""

    def __init__(self, doing, **parts):
        super().__init__()
        self.doing = doing
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, u, v, scale=None):
        return self.doing(self, u, v, *([] if scale is None else [scale]))


def transformer():
    body = nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True)
    return Doing(lambda m, src, tgt: m.head(m.body(src, tgt)[:, -1]), body=body, head=nn.Linear(4, 3))


def cross_attention():
    body = nn.MultiheadAttention(4, 2, batch_first=True)
    head = nn.Linear(4, 3)
    return Doing(lambda m, a, b: m.head(m.body(a, b, b, need_weights=False)[0].mean(1)), body=body, head=head)


def siamese():
    body = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    return Doing(lambda m, left, right: (m.body(left) - m.body(right)) ** 2, body=body)


def bilinear():
    return Doing(lambda m, u, v: torch.tanh(m.body(u, v)), body=nn.Bilinear(4, 5, 3))


def masked():
    def forward(m, ids, mask, scale):
        wide = mask[..., None].to(scale.dtype)
        return m.head((m.body(ids) * wide).sum(1) / wide.sum(1) * scale)

    return Doing(forward, body=nn.Embedding(7, 4), head=nn.Linear(4, 3))


def example(*shapes):
    return tuple(torch.randn(2, *shape, dtype=torch.float64) for shape in shapes)


IDS, MASK = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[1, 1, 0], [1, 1, 1]])
TWO = [(3, 4), (2, 4)]
CASES = {transformer: TWO, cross_attention: TWO, siamese: [(4,), (4,)], bilinear: [(4,), (5,)]}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [*CASES, masked])
def test_outputs_and_gradients_are_torchs(make):
    torch.manual_seed(0)
    module, y = make().double().eval(), np.array([0, 2])
    x = (IDS, MASK, *example((4,))) if make is masked else example(*CASES[make])
    network, arrays = from_torch(module, x), tuple(each.numpy() for each in x)
    floats = [each.requires_grad_() for each in x if each.is_floating_point()]
    output, wanted = module(*x), dict(module.named_parameters())
    np.testing.assert_allclose(network(arrays), output.detach(), rtol=0, atol=1e-13)
    theirs = torch.autograd.grad(nn.functional.cross_entropy(output, torch.tensor(y)), [*wanted.values(), *floats])
    result = gb.backward(network, losses.CrossEntropyLoss(), arrays, y, wrt=["x", *network.trainable]).gradient
    assert set(network.trainable) == set(wanted)
    ours = [*[result[name] for name in wanted], *[each for each in result["x"] if each is not None]]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13)


def test_a_sample_that_is_masked_entirely_has_the_attention_of_torch():
    parts = {
        "body": nn.MultiheadAttention(4, 2, batch_first=True),
        "encoder": nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1),
    }

    def forward(m, x, masked):
        y = m.body(x, x, x, key_padding_mask=masked, need_weights=False)[0]
        return y + m.encoder(x, src_key_padding_mask=masked)

    torch.manual_seed(0)
    module, (x,) = Doing(forward, **parts).double().eval(), example((3, 4))
    masked = torch.tensor([[False, False, True], [True, True, True]])
    network, expected = from_torch(module, (x, masked & masked[:1])), module(x, masked)
    np.testing.assert_allclose(network((x.numpy(), masked.numpy())), expected.detach(), rtol=0, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("least", [torch.finfo(torch.float32).min, -1e28])
def test_a_mask_of_both_infinity_and_the_least_number_is_refused(least, dtype):
    """A row of the latter alone is an average in torch, one of −inf alone is 0: here they would be the same."""

    def forward(m, x, masked):
        causal = torch.full((3, 3), -torch.inf, dtype=x.dtype).triu(1)
        mask = torch.where(masked[:, None], least, causal)
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    module, x = Doing(forward).to(dtype), example((3, 4))[0].to(dtype)
    masked = torch.tensor([[False, False, True], [False, False, False]])
    words = "attn_mask: expected −inf, or finite numbers, at what is hidden, got both"
    with pytest.raises(gb.UnsupportedError, match=words):
        from_torch(module, (x, masked))


class Sum(nn.Linear):
    """A linear layer of the sum of all its inputs."""

    def forward(self, *args):
        return super().forward(sum(args))


@pytest.mark.parametrize("count", [1, 2])
def test_the_example_says_how_many_inputs_there_are_if_the_module_takes_any_number(count):
    module, x = Sum(4, 3).double(), example(*[(4,)] * count)
    network = from_torch(module, x if count > 1 else x[0])
    ours = network(tuple(each.numpy() for each in x) if count > 1 else x[0].numpy())
    np.testing.assert_allclose(ours, module(*x).detach(), rtol=0, atol=1e-14)


def test_a_dictionary_is_of_keywords_and_what_does_not_fit_is_refused():
    module, (u, v) = bilinear().double(), example((4,), (5,))
    network = from_torch(module, {"v": v, "u": u})
    with torch.no_grad():
        np.testing.assert_allclose(network({"u": u.numpy(), "v": v.numpy()}), module(u, v), atol=1e-14)
    with pytest.raises(ValueError, match=r"x\['u'\]: expected 1 samples as in x\['v'\], got 2"):
        network({"u": u.numpy(), "v": v.numpy()[:1]})
    with pytest.raises(ValueError, match=r"x\[1\]: expected 2 samples as in x\[0\], got 1"):
        from_torch(module, (u, v[:1]))
    with pytest.raises(NotImplementedError, match="give several as a tuple or a dictionary"):
        from_torch(module, u)
    with pytest.raises(NotImplementedError, match=r"depends on all inputs, got \['input.1'\], too"):
        from_torch(Doing(lambda m, a, b: torch.tanh(a)), (u, v))


def test_an_onnx_file_of_two_inputs():
    pytest.importorskip("onnx")
    module, (u, v), file = siamese().double(), example((4,), (4,)), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (u, v), file, dynamo=False, input_names=["u", "v"],
                          dynamic_axes={"u": {0: "n"}, "v": {0: "n"}})  # fmt: skip
    x = {"u": u.numpy(), "v": v.numpy()}
    for network in (from_onnx(file.getvalue()), from_onnx(file.getvalue(), x), from_onnx(file.getvalue(), (u, v))):
        with torch.no_grad():
            np.testing.assert_allclose(network(x), module(u, v), atol=1e-14)
    for wrong in (x["u"], {"u": u}, (u, v, v)):
        with pytest.raises(ValueError, match=r"example: expected the inputs \['u', 'v'\], in a tuple or a dictionary"):
            from_onnx(file.getvalue(), wrong)
