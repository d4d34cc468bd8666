"""Numbers that follow from the number of samples are refused, and what is taken is right for batches of every size."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuse

from gbackprop import UnsupportedError
from gbackprop.interop import from_torch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_sequences import Doing  # noqa: E402


class Inside(nn.Module):
    """A linear layer, and a part that does what a function of its output and the input says."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.inner = nn.Linear(4, 4), Doing(lambda m, both: function(*both))

    def forward(self, x):
        return self.inner((self.fc(x), x))


def assert_right_for_every_size(network, module, shape):
    for n in range(1, 8):
        x = torch.randn(n, *shape)
        expected = module.eval()(x).detach().numpy()
        largest = np.abs(expected).max(initial=0)
        np.testing.assert_allclose(network(x.numpy()), expected, rtol=0, atol=1e-5 * largest)


NUMBERS = "expected numbers that do not follow from the number of samples (the first size of view or reshape"
TRACED = "cannot be traced: "
REFUSED = {
    "divisor": (lambda y, x: y / x.size(0), f"truediv: {NUMBERS}"),
    "factor": (lambda y, x: y * x.shape[0], f"mul: {NUMBERS}"),
    "power": (lambda y, x: y * x.size(0) ** -0.5, f"mul: {NUMBERS}"),
    "root": (lambda y, x: y / math.sqrt(x.size(0)), f"truediv: {NUMBERS}"),
    "all numbers": (lambda y, x: y / x.numel(), f"truediv: {NUMBERS}"),
    "all numbers of a shape": (lambda y, x: y / x.shape.numel(), f"truediv: {NUMBERS}"),
    "bytes": (lambda y, x: y + x.nbytes, f"add: {NUMBERS}"),
    "half": (lambda y, x: y * (x.shape[0] // 2), f"mul: {NUMBERS}"),
    "the same for all small batches": (lambda y, x: y + x.size(0) // 100, f"add: {NUMBERS}"),
    "the same for every batch": (lambda y, x: y * (x.numel() // x.size(0)), f"mul: {NUMBERS}"),
    "negative index": (lambda y, x: y * x.shape[-2], f"mul: {NUMBERS}"),
    "part of a shape": (lambda y, x: y * x.shape[:1][0], f"mul: {NUMBERS}"),
    "of another tensor": (lambda y, x: y * torch.tanh(y).size(0), f"mul: {NUMBERS}"),
    "index": (lambda y, x: y[:, : x.size(0) // 3 + 3], f"getitem: {NUMBERS}"),
    "argument": (lambda y, x: F.leaky_relu(y, 1 / x.size(0)), f"leaky_relu: {NUMBERS}"),
    "keyword": (lambda y, x: torch.add(y, x, alpha=x.size(0)), f"add: {NUMBERS}"),
    "constant": (lambda y, x: y * torch.full((), x.size(0)), f"mul: {NUMBERS}"),
    "sum of a constant": (lambda y, x: y * torch.ones((x.size(0),)).sum(), f"mul: {NUMBERS}"),
    "product with a constant": (lambda y, x: y * (torch.ones(()) * x.size(0)), f"mul: {NUMBERS}"),
    "tensor with axes": (lambda y, x: y * torch.full((x.size(0), 1), 2.0), f"mul: {NUMBERS}"),
    "range": (lambda y, x: y + torch.arange(x.size(0)).sum(), f"add: {NUMBERS}"),
    "new zeros": (lambda y, x: y + x.new_zeros(x.size(0), 4), f"new_zeros: {NUMBERS}"),
    "feature of a view": (lambda y, x: y.view(x.size(0), x.size(0) // 9 + 2, -1), f"view: {NUMBERS}"),
    "batch of a view by arithmetic": (lambda y, x: y.view(x.size(0) % 9, 2, 2), f"view: {NUMBERS}"),
    "all numbers as the batch": (lambda y, x: y.view(x.numel(), -1), f"view: {NUMBERS}"),
    "batch as a feature": (lambda y, x: y.reshape(-1, x.size(0) // 3, 4), f"reshape: {NUMBERS}"),
    "fixed batch": (lambda y, x: y.view(3, 2, -1), "view: expected that it takes 4 samples as it takes 3, got: shape"),
    "fixed batch that fits": (
        lambda y, x: y.view(2, -1)[:, :4].view(2, -1),
        "view: expected that the batch remains",
    ),
    "squeezed batch": (lambda y, x: y.unsqueeze(1).squeeze(), "squeeze: expected shape (1, 4) for 1 samples, got (4,)"),
    "mean": (lambda y, x: y - y.mean(0), "mean: there is no layer for it"),
    "length": (lambda y, x: y / len(x), TRACED),
    "tensor": (lambda y, x: y / torch.tensor(x.size(0)), TRACED),
    "ones": (lambda y, x: y * torch.ones(x.size(0), 1), TRACED),
    "integer": (lambda y, x: y * int(x.size(0)), TRACED),
    "condition": (lambda y, x: y if x.size(0) > 1 else -y, TRACED),
    "least": (lambda y, x: y * min(x.size(0), 2), TRACED),
    "loop": (lambda y, x: sum(y for _ in range(x.size(0))), TRACED),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_number_of_samples_is_refused_with_its_module_and_operation(name):
    function, words = REFUSED[name]
    refuse(UnsupportedError, [f"module inner, Doing: {words}"], lambda: from_torch(Inside(function), torch.randn(3, 4)))


TAKEN = {
    "view": lambda y, x: y.view(x.size(0), 2, -1).flatten(1),
    "reshape to a tuple": lambda y, x: torch.reshape(y, (x.shape[0], -1, 2)),
    "shape of another": lambda y, x: y.view(y.size(0), 1, 4).view(x.shape),
    "size of another": lambda y, x: y.unsqueeze(2).reshape(x.size()),
    "part of a shape and numbers": lambda y, x: y.view(x.shape[:-1] + (2, 2)),  # noqa: RUF005 - torch.fx cannot unpack it
    "other axes": lambda y, x: y * x.size(1) / x.shape[-1] ** 2 + x.shape[1:].numel() - x.dim(),
    "unpacked": lambda y, x: (lambda n, d: y.view(n, d // 2, 2) / d)(*[x.shape[i] for i in (0, 1)]),
}


@pytest.mark.parametrize("samples", [1, 3, 4])
@pytest.mark.parametrize("name", TAKEN)
def test_the_number_of_samples_may_be_the_first_size_of_a_shape(name, samples):
    module = Inside(TAKEN[name])
    assert_right_for_every_size(from_torch(module, torch.randn(samples, 4)), module, (4,))


def test_a_layer_that_changes_its_input_in_place_is_compared_on_the_example():
    module = nn.Sequential(nn.ELU(inplace=True), nn.Linear(4, 4))
    assert_right_for_every_size(from_torch(module, torch.randn(3, 4)), nn.Sequential(nn.ELU(), module[1]), (4,))


LEAVES = ["x.size(0)", "x.shape[0]", "x.numel()", "x.shape[:1][0]", "x.size(1)", "x.shape[-1]", "1", "2", "3", "0.5"]
OPERATIONS = ["({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} // {})", "({} % {})"]
expressions = st.recursive(
    st.sampled_from(LEAVES),
    lambda parts: (
        st.builds(lambda how, a, b: how.format(a, b), st.sampled_from(OPERATIONS), parts, parts)
        | st.builds(lambda a, power: f"({a} ** {power})", parts, st.sampled_from(["2", "0.5", "(-1)"]))
        | st.builds(lambda power: f"(2 ** {power})", st.sampled_from(LEAVES))
    ),
    max_leaves=5,
)


@given(expressions)
def test_any_number_is_refused_or_right_for_batches_of_every_size(text):
    module, message = Inside(eval(f"lambda y, x: y * {text}")), ""
    try:
        network = from_torch(module, torch.ones(3, 4))
    except (UnsupportedError, ValueError) as error:  # the latter in a division by zero
        message = str(error)
    if not message:
        assert_right_for_every_size(network, module, (4,))
    elif NUMBERS in message:
        assert message.startswith("module inner, Doing: mul: ")
        assert any(leaf in text for leaf in LEAVES[:4])
    else:
        starts = ("module inner, Doing: mul: ", "module inner, Doing: cannot be traced: ", "example: the module cannot")
        assert message.startswith(starts)


@pytest.mark.parametrize(
    ("samples", "hook"),
    [
        (1, lambda y: y * len(y)),
        (1, lambda y: y.flip(0)),
        (3, lambda y: y * len(y) / 3),
        (3, lambda y: y if len(y) <= 3 else y.flip(0)),
        (3, lambda y: y * (1 + (len(y) == 1))),
    ],
)
def test_what_the_tracer_does_not_see_differs_in_a_batch_of_another_size(samples, hook):
    module = nn.Sequential(nn.Linear(4, 4))
    module[0].register_forward_hook(lambda part, given, output: hook(output))
    words = ["layer 0, Linear(4, 4): expected torch's output", f"samples, but none for {samples}"]
    refuse(UnsupportedError, words, lambda: from_torch(module, torch.randn(samples, 4)), in_time=False)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda y: y[:3], "expected shape (4, 4) for 4 samples, got (3, 4)"),
        (lambda y: y.view(3, 4), "expected that it takes 4 samples as it takes 3, got: shape '[3, 4]' is invalid"),
    ],
)
def test_a_layer_of_a_chain_that_takes_one_number_of_samples_is_named(hook, words):
    module = nn.Sequential(nn.Tanh(), nn.Linear(4, 4))
    module[1].register_forward_hook(lambda part, given, output: hook(output))
    refuse(UnsupportedError, [f"module 1, Linear: {words}"], lambda: from_torch(module, torch.randn(3, 4)))


def test_a_part_that_the_output_does_not_need_takes_batches_of_other_sizes_too():
    module = Inside(lambda y, x: (y.tanh(), y.view(3, 4))[0])
    words = "the module cannot compute 4 samples: shape '[3, 4]' is invalid"
    refuse(UnsupportedError, [words], lambda: from_torch(module, torch.randn(3, 4)), in_time=False)


def test_a_mask_or_an_index_of_the_number_of_samples_is_refused():
    parts = {"attn": nn.MultiheadAttention(4, 2, batch_first=True), "rnn": nn.GRU(4, 4, batch_first=True)}
    masked = Doing(lambda m, x: m.attn(x, x, x, attn_mask=torch.ones((x.size(0), 5)).triu(1).bool())[0], **parts)
    indexed = Doing(lambda m, x: m.rnn(x)[1][x.size(0) - 5], **parts)
    for module, start in ((masked, "module attn, MultiheadAttention: "), (indexed, "module rnn, GRU: getitem: ")):
        refuse(UnsupportedError, [start + NUMBERS], lambda module=module: from_torch(module, torch.randn(5, 5, 4)))


def test_a_sample_whose_output_is_another_alone_is_told():
    x, module = torch.randn(3, 4), nn.Sequential(nn.Linear(4, 4))
    module[0].register_forward_hook(lambda part, given, y: y * (1 + torch.equal(given[0], x[2:])))
    words = ["module (the whole), Sequential: each sample alone: expected torch's output"]
    refuse(UnsupportedError, words, lambda: from_torch(module, x), in_time=False)
