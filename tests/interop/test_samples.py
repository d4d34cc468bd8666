"""Numbers that follow from the number of samples are refused, and what is taken is right for batches of every size."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuse

from gbackprop import UnsupportedError
from gbackprop.interop import from_torch

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_sequences import Doing  # noqa: E402

from gbackprop.interop.capture import _refusal  # noqa: E402
from gbackprop.interop.sizes import sizes_beyond  # noqa: E402


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


NUMBERS = "expected numbers that do not follow from the number of samples (a size of view, reshape or expand may)"
PLACES = "expected that each sample is mapped by itself, with its numbers in one place"
FOR_ONE = "expected code for any number of samples, got code for one"
REFUSED = {
    "divisor": (lambda y, x: y / x.size(0), f"div: {NUMBERS}"),
    "factor": (lambda y, x: y * x.shape[0], f"mul: {NUMBERS}"),
    "power": (lambda y, x: y * x.size(0) ** -0.5, f"mul: {NUMBERS}"),
    "root": (lambda y, x: y / math.sqrt(x.size(0)), FOR_ONE),
    "all numbers": (lambda y, x: y / x.numel(), f"div: {NUMBERS}"),
    "all numbers of a shape": (lambda y, x: y / x.shape.numel(), FOR_ONE),
    "bytes": (lambda y, x: y + x.nbytes, "torch.export: Cannot call numel()"),
    "half": (lambda y, x: y * (x.shape[0] // 2), f"mul: {NUMBERS}"),
    "the same for all small batches": (lambda y, x: y + x.size(0) // 100, f"add: {NUMBERS}"),
    "negative index": (lambda y, x: y * x.shape[-2], f"mul: {NUMBERS}"),
    "part of a shape": (lambda y, x: y * x.shape[:1][0], f"mul: {NUMBERS}"),
    "of another tensor": (lambda y, x: y * torch.tanh(y).size(0), f"mul: {NUMBERS}"),
    "index": (lambda y, x: y[:, : x.size(0) // 3 + 3], f"slice: {NUMBERS}"),
    "argument": (lambda y, x: F.leaky_relu(y, 1 / x.size(0)), f"leaky_relu: {NUMBERS}"),
    "keyword": (lambda y, x: torch.add(y, x, alpha=x.size(0)), f"add: {NUMBERS}"),
    "constant": (lambda y, x: y * torch.full((), x.size(0)), f"mul: {NUMBERS}"),
    "sum of a constant": (lambda y, x: y * torch.ones((x.size(0),)).sum(), f"mul: {NUMBERS}"),
    "product with a constant": (lambda y, x: y * (torch.ones(()) * x.size(0)), f"mul: {NUMBERS}"),
    "range": (lambda y, x: y + torch.arange(x.size(0)).sum(), f"add: {NUMBERS}"),
    "feature of a view": (lambda y, x: y.view(x.size(0), x.size(0) // 9 + 2, -1), f"view: {PLACES}"),
    "all numbers as the batch": (lambda y, x: y.view(x.numel(), -1), "expected the samples alone as axis 0 of"),
    "batch as a feature": (lambda y, x: y.reshape(-1, x.size(0) // 3, 4), f"reshape: {PLACES}"),
    "few alone": (lambda y, x: y if x.size(0) <= 5 else 2 * y, "got code for N <= 5 alone"),
    "few numbers alone": (lambda y, x: y if x.numel() <= 192 else 2 * y, "got code for 4*N <= 192 alone"),
    "all but one number": (lambda y, x: y if x.size(0) != 9 else 2 * y, "got code for N != 9 alone"),
    "the first hundred": (lambda y, x: y[:100], "got code for N < 100 alone"),
    "pieces of a hundred": (lambda y, x: y.split(100)[0], "got code for ((99 + N) // 100) == 1 alone"),
    "fixed batch": (lambda y, x: y.view(3, 2, -1), FOR_ONE),
    "fixed batch that fits": (lambda y, x: y.view(2, -1)[:, :4].view(2, -1), f"view: {PLACES}"),
    "squeezed batch": (lambda y, x: y.unsqueeze(1).squeeze(), "for each sample alone, but none for 3"),
    "squeezed to numbers": (lambda y, x: y[:, :1].squeeze(), "got a single number for each sample alone"),
    "mean": (lambda y, x: y - y.mean(0), f"mean: {PLACES}"),
    "sum of products": (
        lambda y, x: torch.einsum("ni,mi->mi", y, x), f"einsum: {PLACES}, got a sum over the samples"),
    "diagonals": (
        lambda y, x: torch.einsum("nii->ni", y[:, :, None] * x[:, None]),
        "einsum: expected two tensors and 'a,b->c', or more than two, without repeated letters, got 'nii->ni'"),
    "attention": (
        lambda y, x: F.scaled_dot_product_attention(y, x, x),
        f"scaled_dot_product_attention: {PLACES}, got attention among samples"),
    "rows of products": (
        lambda y, x: (y.unsqueeze(0) @ torch.ones(2, 4, 4))[0],
        f"matmul: {PLACES}, got the samples as rows of one of several matrices"),
    "length": (lambda y, x: y / len(x), f"div: {NUMBERS}"),
    "tensor": (lambda y, x: y / torch.tensor(x.size(0)), f"div: {NUMBERS}"),
    "integer": (lambda y, x: y * int(x.size(0)), FOR_ONE),
    "condition": (lambda y, x: y if x.size(0) > 1 else -y, "for each sample alone, but none for 3"),
    "least": (lambda y, x: y * min(x.size(0), 2), f"mul: {NUMBERS}"),
    "loop": (lambda y, x: sum(y for _ in range(x.size(0))), FOR_ONE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_number_of_samples_is_refused_with_its_operation(name):
    function, words = REFUSED[name]
    in_time = not any(each in words for each in ("each sample alone", "got code for N", "4*N", "(99 + N)"))
    refuse(UnsupportedError, [words], lambda: from_torch(Inside(function), torch.randn(3, 4)), in_time)


TAKEN = {
    "view": lambda y, x: y.view(x.size(0), 2, -1).flatten(1),
    "reshape to a tuple": lambda y, x: torch.reshape(y, (x.shape[0], -1, 2)),
    "shape of another": lambda y, x: y.view(y.size(0), 1, 4).view(x.shape),
    "size of another": lambda y, x: y.unsqueeze(2).reshape(x.size()),
    "part of a shape and numbers": lambda y, x: y.view(x.shape[:-1] + (2, 2)),  # noqa: RUF005
    "other axes": lambda y, x: y * x.size(1) / x.shape[-1] ** 2 + x.shape[1:].numel() - x.dim(),
    "the same for every batch": lambda y, x: y * (x.numel() // x.size(0)),
    "tensor with axes": lambda y, x: y * torch.full((x.size(0), 1), 2.0),
    "new zeros": lambda y, x: y + x.new_zeros(x.size(0), 4),
    "all of them as a slice": lambda y, x: y[:] + y[0:, 1:3].sum(1, keepdim=True) + y[:, ::2].sum(1, keepdim=True),
    "another way of the same": lambda y, x: torch.cdist(y, torch.ones(5, 4)),
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


@settings(max_examples=settings().max_examples // 5)
@given(expressions)
def test_any_number_is_refused_or_right_for_batches_of_every_size(text):
    module = Inside(eval(f"lambda y, x: y * {text}"))
    try:
        network = from_torch(module, torch.ones(3, 4))
    except (UnsupportedError, ValueError):  # the latter in a division by zero
        return
    assert_right_for_every_size(network, module, (4,))


@pytest.mark.parametrize("hook", [lambda y: y * len(y), lambda y: y.flip(0), lambda y: y * y.size(0) / 3])
def test_hooks_that_mix_samples_or_use_their_number_are_refused(hook):
    module = nn.Sequential(nn.Linear(4, 4))
    module[0].register_forward_hook(lambda part, given, output: hook(output))
    refuse(UnsupportedError, ["expected"], lambda: from_torch(module, torch.randn(3, 4)))


def test_an_index_of_the_number_of_samples_is_refused():
    indexed = Doing(lambda m, x: m.rnn(x)[1][x.size(0) - 5], rnn=nn.GRU(4, 4, batch_first=True))
    refuse(UnsupportedError, ["expected"], lambda: from_torch(indexed, torch.randn(5, 5, 4)))


class Remembering(nn.Module):
    """A module that is another function in its later calls."""

    def __init__(self, last):
        super().__init__()
        self.fc, self.calls, self.last = nn.Linear(4, 4), 0, last

    def forward(self, x):
        self.calls += 1
        return self.fc(x) * (1.0 if self.calls <= self.last else 2.0)


@pytest.mark.parametrize(("last", "words"), [(2, "for 4 samples"), (3, "for each sample alone")])
def test_outputs_that_differ_in_other_batches_are_told(last, words):
    refuse(UnsupportedError, [words], lambda: from_torch(Remembering(last), torch.randn(3, 4)), in_time=False)


@pytest.mark.parametrize("text", ["Constraints violated (N)!", "your code specialized it to be a constant (3)"])
def test_what_torch_says_of_a_fixed_number_of_samples_is_told_in_our_words(text):
    """Which of both it says depends on its version."""
    words = str(_refusal(RuntimeError(text), nn.Linear(2, 2)))
    assert FOR_ONE in words
    assert text not in words


@pytest.mark.parametrize(("condition", "sizes"), [
    ("N <= 4", [5, 6, 11]), ("1000 % N == 0", [3, 7]), ("N != 9", [9]), ("N <= 1998", [1999, 2000, 3999]),
    ("N <= 2000", []), ("M == 1", []),
])  # fmt: skip
def test_sizes_beyond_a_condition_are_some_for_which_it_does_not_hold(condition, sizes):
    """None is beyond 2000, or where the condition is on something else."""
    assert sizes_beyond([condition, "N >= 0"]) == sizes
