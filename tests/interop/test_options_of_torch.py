"""Options of torch's functions, each other than its default: outputs and gradients, or a refusal."""

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.interop import from_torch
from gbackprop.interop.outputs import unlike

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_models import Own  # noqa: E402


def heads(y):
    """Two heads of four positions, of (N, 4, 6)."""
    return y.reshape(-1, 4, 2, 3).transpose(1, 2)


def attention(change=lambda y: y, **options):
    return lambda m, y: F.scaled_dot_product_attention(heads(y), heads(change(y)), heads(2 * y), **options)


def infinite(y):
    """A mask of the positions that are 0."""
    return torch.zeros(4, 4, dtype=y.dtype).masked_fill((y[:, :, 0] == 0)[:, None, None], -torch.inf)


def shifted(y, mask):
    """Attention with values that are not 0 where the numbers are."""
    return F.scaled_dot_product_attention(heads(y), heads(y), heads(y + 1), attn_mask=mask)


MASKED = torch.ones(4, 4).tril(-1).bool()  # of which the first row is masked entirely
INFINITE = torch.zeros(4, 4, dtype=torch.float64).masked_fill(~MASKED, -torch.inf)
RUNNING = torch.arange(4, dtype=torch.float64)
IMAGE, ODD = (2, 6, 6), (2, 5, 7)

OPTIONS = {
    "softplus": (lambda m, y: F.softplus(y, beta=3.0, threshold=0.5), (6,)),
    "threshold": (lambda m, y: F.threshold(y, 0.1, -2.0), (6,)),
    "gelu": (lambda m, y: F.gelu(y, approximate="tanh"), (6,)),
    "elu": (lambda m, y: F.elu(y, alpha=0.3), (6,)),
    "celu": (lambda m, y: F.celu(y, alpha=0.3), (6,)),
    "hardtanh": (lambda m, y: F.hardtanh(y, -0.2, 0.3), (6,)),
    "leaky relu": (lambda m, y: F.leaky_relu(y, 0.3), (6,)),
    "hardshrink": (lambda m, y: F.hardshrink(y, 0.2) + F.softshrink(y, 0.1), (6,)),
    "rrelu": (lambda m, y: F.rrelu(y, 0.1, 0.5), (6,)),
    "prelu": (lambda m, y: F.prelu(y, m.w), (4, 2)),
    "prelu, one number": (lambda m, y: F.prelu(y, m.v[2:3]) + F.prelu(y[:, :, None], m.v[:1])[:, :, 0], (6,)),
    "prelu, numbers": (lambda m, y: F.prelu(y[:, 0], m.v[:1])[:, None] * y, (6,)),
    "prelu, images": (lambda m, y: F.prelu(y, m.v[:2]) + torch.prelu(y, m.square[0, :2]), IMAGE),
    "glu": (lambda m, y: F.glu(y, dim=1), (4, 3)),
    "softmin": (lambda m, y: F.softmin(y, dim=1), (4, 3)),
    "softmax, dtype": (lambda m, y: torch.softmax(y, 1, dtype=torch.float64), (4, 3)),
    "gumbel": (lambda m, y: F.tanhshrink(y) + F.softsign(y), (6,)),
    "add": (lambda m, y: torch.add(y, y.tanh(), alpha=3), (6,)),
    "add, number": (lambda m, y: torch.add(y, 2, alpha=3) + torch.add(m.v, y, alpha=-0.5), (6,)),
    "sub": (lambda m, y: torch.sub(y, y.tanh(), alpha=3) + torch.sub(m.v, y, alpha=2), (6,)),
    "rsub": (lambda m, y: torch.rsub(y, y.tanh(), alpha=3) + torch.rsub(y, 2, alpha=3) + (1 - y), (6,)),
    "addcmul": (lambda m, y: torch.addcmul(y, y, m.v, value=0.3), (6,)),
    "addcdiv": (lambda m, y: torch.addcdiv(y, y, m.v, value=0.3), (6,)),
    "einsum, dots": (lambda m, y: torch.einsum("...i,ji->...j", y, m.square), (2, 3, 6)),
    "addmm": (lambda m, y: torch.addmm(m.v, y, m.square, beta=0.5, alpha=2), (6,)),
    "attention of parameters": (
        lambda m, y: y + F.scaled_dot_product_attention(m.square, m.square, m.square).sum(0), (6,)),
    "evaluation mode, of numbers": (lambda m, y: y + F.rrelu(F.dropout(-torch.ones(6), training=False)), (6,)),
    "products of parameters": (
        lambda m, y: y[:, :3] @ (m.square.view(2, 3, 6) @ m.square.view(2, 6, 3)).sum(0), (6,)),
    "addmv": (lambda m, y: torch.addmv(y[:, 0], y, m.v, beta=0.5, alpha=2), (6,)),
    "addmm, beta=0": (lambda m, y: torch.addmm(m.v, y, m.square, beta=0, alpha=2), (6,)),
    "baddbmm": (lambda m, y: torch.baddbmm(y, y, y.mT @ y, beta=0.5, alpha=2), (4, 3)),
    "lerp": (lambda m, y: torch.lerp(y, y.tanh(), 0.3) + torch.lerp(y, y.tanh(), m.v), (6,)),
    "clamp": (lambda m, y: torch.clamp(y, -0.1, 0.2) + torch.clamp(y, min=0.1) + torch.clamp(y, max=m.v), (6,)),
    "clamp, tensors": (lambda m, y: torch.clamp(y, min=m.v - 1, max=m.v), (6,)),
    "clamp, at bounds": (lambda m, y: torch.clamp(y.relu(), min=0.0, max=0.2) + y.relu().clamp(min=y.relu()), (6,)),
    "nan to num": (lambda m, y: torch.nan_to_num(y, 1.0), (6,)),
    "sum": (lambda m, y: y.sum(dim=(1, -1), keepdim=True) * y + y.sum(2, keepdim=True), (4, 3)),
    "mean": (lambda m, y: y.mean(dim=1, keepdim=True) * y + y.mean((1, 2))[:, None, None], (4, 3)),
    "var": (lambda m, y: y.var(1, unbiased=False, keepdim=True) + y.var(2, correction=2, keepdim=True), (4, 5)),
    "std": (lambda m, y: y.std(1, unbiased=False, keepdim=True) * y + y.std((1, 2), correction=0)[:, None, None],
            (4, 5)),
    "variance and mean": (lambda m, y: torch.stack(torch.var_mean(y, 1, correction=0), 1), (4, 5)),
    "deviation and mean": (lambda m, y: torch.stack(torch.std_mean(y, 1, correction=0), 1), (4, 5)),
    "norm": (lambda m, y: y.norm(p=1, dim=1, keepdim=True) * y + y.norm(dim=(1, 2), keepdim=True), (4, 3)),
    "norm, infinite": (lambda m, y: torch.linalg.vector_norm(y, ord=torch.inf, dim=1), (4, 3)),
    "norm, p": (lambda m, y: y.norm(p=3, dim=1), (4, 3)),
    "norm of matrices": (lambda m, y: torch.linalg.matrix_norm(y), (4, 3)),
    "normalize": (lambda m, y: F.normalize(y, p=2, dim=-1, eps=2.0), (4, 3)),
    "normalize, p": (lambda m, y: F.normalize(y, p=1, dim=1, eps=1e-3), (4, 3)),
    "cosine": (lambda m, y: F.cosine_similarity(y, y.tanh() + 2, dim=2, eps=1e-3), (4, 3)),
    "cosine, rows": (lambda m, y: F.cosine_similarity(y[:, None], m.square[None], dim=-1), (6,)),
    "cosine, rows first": (lambda m, y: F.cosine_similarity(m.square, y[:, None], dim=2), (6,)),
    "cosine, axes": (lambda m, y: F.cosine_similarity(y.T[:, :, None], m.square[:, None], dim=0), (6,)),
    "distance": (lambda m, y: F.pairwise_distance(y, y.tanh() + 1, eps=0.1, keepdim=True), (6,)),
    "cdist": (lambda m, y: torch.cdist(y, y.tanh() + 1), (4, 3)),
    "cdist, rows": (lambda m, y: torch.cdist(y[:, None], m.square[None]), (6,)),
    "logsumexp": (lambda m, y: y.logsumexp((1, 2), keepdim=True) * y, (4, 3)),
    "cumsum": (lambda m, y: y.cumsum(-1) + y.cumsum(1), (4, 3)),
    "max": (lambda m, y: y.max(2, keepdim=True)[0] * y + y.amax((1, 2), keepdim=True), (4, 3)),
    "max, ties": (lambda m, y: (y.clamp(max=0.0) + y).max(1)[0] + y.clamp(-0.01, 0.01).amax(1), (4, 3)),
    "max of equals": (lambda m, y: torch.cat([y, y], 1).max(1)[0] * torch.cat([y, 1 * y], 1).amax(1), (4, 3)),
    "max, all": (lambda m, y: torch.maximum(y, y.relu()) + torch.minimum(y, y.relu()), (6,)),
    "all of a parameter": (
        lambda m, y: y * m.square.sum() + m.square.mean(()) / m.v.amax() + m.v.var(), (6,)),
    "power": (lambda m, y: y.abs().pow(2.5) + torch.pow(2.0, y) + (y * y) ** 0.5 + y.pow(3) + y.pow(0), (6,)),
    "float power": (lambda m, y: y.abs().float_power(1.5), (6,)),
    "quotient": (lambda m, y: 3 / (2 + y.abs()) + torch.true_divide(y, m.v) + y / 4, (6,)),
    "floor": (lambda m, y: torch.div(y, 0.1, rounding_mode="trunc"), (6,)),
    "remainder": (lambda m, y: torch.remainder(y, 0.3), (6,)),
    "dropout": (lambda m, y: F.alpha_dropout(F.dropout(y, 0.4, training=False), 0.3), (6,)),
    "average pool": (lambda m, y: F.avg_pool2d(y, 3, 2, padding=1, count_include_pad=False), IMAGE),
    "average pool, ceiling": (lambda m, y: F.avg_pool2d(y, (2, 3), 3, padding=1, ceil_mode=True), ODD),
    "average pool, both": (lambda m, y: F.avg_pool2d(y, 3, 3, 1, ceil_mode=True, count_include_pad=False), ODD),
    "average pool, divisor": (lambda m, y: F.avg_pool2d(y, 2, divisor_override=3), IMAGE),
    "average pool, 1d": (lambda m, y: F.avg_pool1d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 6)),
    "maximum pool": (lambda m, y: F.max_pool2d(y, 2, stride=2, padding=1, dilation=2, ceil_mode=True), ODD),
    "maximum pool, 1d": (lambda m, y: F.max_pool1d(y, 3, 2, padding=1, ceil_mode=True), (2, 7)),
    "pool of a power": (lambda m, y: F.lp_pool2d(y.abs() + 0.1, 2, 2), IMAGE),
    "adaptive": (lambda m, y: F.adaptive_avg_pool2d(y, (4, None)) + 0 * F.adaptive_max_pool2d(y, (4, 6)), IMAGE),
    "adaptive, series": (lambda m, y: F.adaptive_avg_pool1d(y, 4) * F.adaptive_max_pool1d(y, 4), (2, 6)),
    "corners": (lambda m, y: F.interpolate(y, size=(9, 4), mode="bilinear", align_corners=True), IMAGE),
    "no corners": (lambda m, y: F.interpolate(y, size=(9, 4), mode="bilinear"), IMAGE),
    "scale": (lambda m, y: F.interpolate(y, scale_factor=(1.7, 0.6), mode="bilinear"), ODD),
    "scale, computed again": (
        lambda m, y: F.interpolate(y, scale_factor=1.7, mode="bicubic", recompute_scale_factor=True), ODD),
    "of a series": (lambda m, y: F.interpolate(y, size=9, mode="linear"), (2, 5)),
    "of volumes": (lambda m, y: F.interpolate(y, size=(2, 5, 3), mode="trilinear"), (2, 3, 4, 2)),
    "antialias": (lambda m, y: F.interpolate(y, size=(3, 3), mode="bilinear", antialias=True), ODD),
    "cubic": (lambda m, y: F.interpolate(y, scale_factor=(1.7, 0.6), mode="bicubic", align_corners=True), ODD),
    "nearest": (lambda m, y: F.interpolate(y, scale_factor=1.7), ODD),
    "nearest, exact": (lambda m, y: F.interpolate(y, scale_factor=1.7, mode="nearest-exact"), ODD),
    "area": (lambda m, y: F.interpolate(y, size=(3, 4), mode="area"), ODD),
    "grid": (lambda m, y: F.grid_sample(y, y.permute(0, 2, 3, 1).tanh(), padding_mode="border"), IMAGE),
    "padding": (lambda m, y: F.pad(y, (1, 2, 0, 1), value=0.7) * F.pad(y, (1, 2, 0, 1), mode="circular"), IMAGE),
    "padding, other modes": (
        lambda m, y: F.pad(y, (1, 2, 2, 1), mode="reflect") * F.pad(y, (1, 2, 2, 1), mode="replicate"), IMAGE),
    "cropping": (lambda m, y: F.pad(y, (-1, 2, 0, -2)) + F.pad(y, (-1, 2, 0, -2), value=0.3), IMAGE),
    "convolution": (lambda m, y: F.conv2d(y, m.k, m.v[:4], (2, 1), (1, 2), (2, 1), 2), IMAGE),
    "convolution, same": (lambda m, y: F.conv2d(y, m.k, padding="same", dilation=2, groups=2), IMAGE),
    "convolution, modes": (lambda m, y: m.circular(y) + m.reflect(y), IMAGE),
    "transposed": (lambda m, y: m.turned(y), IMAGE),
    "transposed, computed weight": (
        lambda m, y: F.conv_transpose2d(y, m.k[:2].tanh(), m.v[:2], (2, 3), (1, 0), (0, 2), 2, (1, 2)), IMAGE),
    "transposed, own weight": (lambda m, y: F.conv_transpose2d(y, m.k), (4, 3, 3)),
    "added at places": (lambda m, y: y.index_add(1, torch.tensor([2, 0, 2]), y[:, :3].tanh(), alpha=2), (4, 3)),
    "three tensors": (lambda m, y: torch.einsum("nab,...bc,nac->n...a", y, m.square, y), (4, 6)),
    "arcs": (lambda m, y: torch.acos(y.tanh()) + torch.asin(y.tanh() / 2), (6,)),
    "conditions": (
        lambda m, y: y.masked_fill((y > 0.1) & ~(y < m.v) | (y != y).logical_not() & (y == 0), 0.5)
        * (y > 0).any(-1, keepdim=True), (6,)),
    "conditions, of which one or both may hold": (
        lambda m, y: ((y > 5) + (y > 6)) * y + torch.add(y > 5, y < 6) + (y > 5) * 1 + (y > 6), (6,)),
    "conditions of numbers": (
        lambda m, y: y.any(-1, keepdim=True) * y + (y > 5).sum(1, keepdim=True).all(1)[:, None], (6,)),
    "fixed exponents": (
        lambda m, y: torch.pow(torch.stack([y, y.abs() + 0.1], -1), torch.tensor([2.0, 0.5]))
        + y[..., None] ** torch.tensor([[1, 3]]), (6,)),
    "windows": (lambda m, y: F.unfold(y, (2, 3), dilation=(2, 1), padding=(1, 0), stride=2), IMAGE),
    "windows, back": (
        lambda m, y: F.fold(y, (4, 5), (2, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1)), (4, 9)),
    "layer norm": (lambda m, y: F.layer_norm(y, (4, 6), eps=0.5) + F.layer_norm(y, (6,), m.v, eps=0.1), (4, 6)),
    "rms norm": (lambda m, y: F.rms_norm(y, (6,), m.v, eps=0.5) + F.rms_norm(y, (4, 6)), (4, 6)),
    "group norm": (lambda m, y: F.group_norm(y, 2, m.v, eps=0.5), (6, 4)),
    "instance norm": (lambda m, y: F.instance_norm(y, eps=0.5), (6, 4)),
    "batch norm": (lambda m, y: F.batch_norm(y, RUNNING, RUNNING + 1, m.w, eps=0.5), (4, 2)),
    "local response": (lambda m, y: F.local_response_norm(y, 3, alpha=0.5, beta=0.6, k=2.0), IMAGE),
    "attention": (attention(), (4, 6)),
    "attention, one head of keys": (
        lambda m, y: F.scaled_dot_product_attention(heads(y), heads(y)[:, :1], heads(2 * y)[:, 1:]), (4, 6)),
    "attention, scale": (attention(scale=0.3), (4, 6)),
    "attention, causal": (attention(is_causal=True), (4, 6)),
    "attention, causal, fewer keys": (attention(lambda y: y[:, :2].repeat(1, 2, 1), is_causal=True, scale=2.0), (4, 6)),
    "attention, causal, other lengths": (
        lambda m, y: F.scaled_dot_product_attention(heads(y)[:, :, :3], heads(y), heads(2 * y), is_causal=True),
        (4, 6)),
    "attention, groups of heads": (
        lambda m, y: F.scaled_dot_product_attention(
            torch.cat([heads(y), heads(3 * y)], 1), heads(y), heads(2 * y), enable_gqa=True), (4, 6)),
    "attention, heads without groups": (attention(enable_gqa=True), (4, 6)),
    "softmax of rows that may be empty": (lambda m, y: torch.ops.aten._safe_softmax(y @ y.mT, 1) @ y, (4, 6)),
    "attention, finite mask": (attention(attn_mask=torch.rand(4, 4, dtype=torch.float64)), (4, 6)),
    "attention, mask": (attention(attn_mask=torch.ones(4, 4).tril().bool()), (4, 6)),
    "attention, masked row": (attention(attn_mask=MASKED), (4, 6)),
    "attention, infinite row": (attention(attn_mask=INFINITE), (4, 6)),
    "attention, rows that the data masks": (
        lambda m, y: attention(lambda y: y + 1, attn_mask=infinite(y))(m, y) + shifted(y, infinite(y) + infinite(y)),
        (4, 6)),
    "attention, rows that the data masks by a large number": (
        lambda m, y: shifted(y, -1e300 * (y[:, None, None, :, 0] == 0).double().expand(-1, 1, 4, 4)), (4, 6)),
    "infinite numbers, compared": (
        lambda m, y: (lambda z: torch.where((z == -torch.inf) | (z < -torch.inf), 0.0, z) + (z > -torch.inf) * y
                      + (z != -torch.inf) * 2 * y)(y.masked_fill(y > 0.1, -torch.inf)), (6,)),
    "maximum with infinity": (
        lambda m, y: torch.maximum(1e30 * y, torch.where(torch.arange(6) > 3, -torch.inf, m.v.new_ones(6))), (6,)),
    "masked softmax": (lambda m, y: torch.softmax(y @ y.mT + INFINITE.triu(1), -1) @ y, (4, 6)),
    "filled softmax": (
        lambda m, y: torch.softmax((y @ y.mT).masked_fill(~MASKED.T | MASKED, -torch.inf)[:, :3], -1) @ y, (4, 6)),
    "filled softmax, row": (
        lambda m, y: torch.softmax((y @ y.mT).masked_fill(~MASKED, -torch.inf), -1)[:, 1:] @ y, (4, 6)),
    "log softmax of a mask": (
        lambda m, y: F.log_softmax(y.masked_fill(torch.arange(6) > 3, -torch.inf), -1)[:, :, :4], (4, 6)),
    "einsum": (lambda m, y: torch.einsum("nab,bc->nca", y, m.square), (4, 6)),
    "einsum, ellipsis": (lambda m, y: torch.einsum("...b,cb->...c", y, m.square), (4, 6)),
    "tensordot": (lambda m, y: torch.tensordot(y, m.square, dims=([2], [1])), (4, 6)),
    "triangle": (lambda m, y: y.tril(-1) + y.triu(2), (4, 6)),
    "diagonal": (lambda m, y: y.diagonal(1, 1, 2), (4, 6)),
    "flip and roll": (lambda m, y: y.flip(-1) * y.roll((1, -2), (1, 2)) + y.rot90(2, (1, 2)), (4, 6)),
    "repeat": (lambda m, y: y.repeat(1, 2, 3) * y.repeat_interleave(2, 1).repeat_interleave(3, dim=2), (4, 6)),
    "stack": (lambda m, y: torch.stack([y, y.tanh()], -1) + torch.stack((m.v, m.v), 1), (4, 6)),
    "split": (lambda m, y: torch.cat([each.tanh() for each in y.split([1, 2, 1], 1)][::-1], -2), (4, 6)),
    "comparison": (lambda m, y: torch.where(y.ge(0.1), y, 0.3) + (y.lt(m.v)) * y + (y == y) * y, (6,)),
    "cumulative product": (lambda m, y: y.prod(1, keepdim=True) * y, (4, 3)),
    "cropping alone": (lambda m, y: F.pad(y, (-1, 0, 0, -2)), IMAGE),
    "bilinear": (lambda m, y: F.bilinear(y, y.tanh(), m.cube), (6,)),
    "embedding": (lambda m, y: F.embedding(torch.tensor([0, 2, 2]), m.square, padding_idx=2) + y, (3, 6)),
    "logit": (lambda m, y: torch.logit(y.sigmoid(), eps=0.4), (6,)),
    "causal, as many heads as queries": (
        lambda m, y: F.scaled_dot_product_attention(y[:, :, :2], y, y, is_causal=True), (2, 3, 4)),
    "log of other bases": (lambda m, y: (y.abs() + 1).log2() + (y.abs() + 2).log10(), (6,)),
    "product with a log": (lambda m, y: torch.xlogy(y, y.abs()), (6,)),
    "smooth": (lambda m, y: torch.logaddexp(y, y.tanh()) + torch.hypot(y, m.v), (6,)),
}  # fmt: skip
REFUSED = {
    "rrelu", "nan to num", "deviation and mean", "norm, infinite", "norm, p", "norm of matrices", "distance",
    "float power", "floor", "remainder", "grid", "cropping", "tensordot",
    "embedding", "logit", "product with a log", "smooth",
}  # fmt: skip
"""Those that are refused with a message; all others have to be right."""


def module_of(name):
    torch.manual_seed(5)
    function, shape = OPTIONS[name]
    tensors = {"v": torch.rand(6) + 0.5, "w": torch.rand(4), "square": torch.randn(6, 6), "cube": torch.randn(2, 6, 6)}
    tensors |= {"k": torch.randn(4, 1, 2, 3), "scale": torch.rand(shape) + 0.5}
    convs = {"circular": nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="circular"),
             "reflect": nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="reflect"),
             "turned": nn.ConvTranspose2d(2, 4, 3, 2, 1, 1, 2, dilation=2)}  # fmt: skip
    module = Own(lambda m, x: function(m, m.scale * x), tensors, None, **convs).double().eval()
    return module, torch.randn(3, *shape, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_torchs_or_is_refused(name):
    module, x = module_of(name)
    if name in REFUSED:
        with pytest.raises(ValueError, match=r"module|layer"):
            from_torch(module, x)
        return
    network = from_torch(module, x)
    x = torch.cat([x, 30 * x[:1], 0 * x[:1]])  # ranges that the example may not have
    expected = module(x)
    y = torch.randn_like(expected)
    ours = network(x.numpy())
    np.testing.assert_allclose(ours, expected.detach(), rtol=1e-9, atol=1e-11)
    theirs = torch.autograd.grad(F.mse_loss(expected, y), list(module.parameters()), materialize_grads=True)
    theirs = dict(zip(dict(module.named_parameters()), theirs, strict=True))
    found = gb.backward(network, losses.MSELoss(), x.numpy(), y.numpy()).gradient
    for key, value in theirs.items():
        np.testing.assert_allclose(found.get(key, 0 * value), value, rtol=1e-8, atol=1e-10, err_msg=key)


@pytest.mark.parametrize("function", [
    lambda x, v: x.max(1)[0], lambda x, v: x.min(-1, keepdim=True).values, lambda x, v: torch.clamp(x, v, v + 1),
    lambda x, v: x.clamp_min(v), lambda x, v: torch.clamp(x, max=v) + v.max(), lambda x, v: torch.clamp(x, v + 1, v),
])  # fmt: skip
def test_derivatives_of_equal_numbers_are_torchs(function):
    x = (torch.arange(24.0, dtype=torch.float64) // 2 % 3).reshape(2, 4, 3)
    module = Own(lambda m, x: function(x, m.v), {"v": torch.tensor([1.0, 3.0, 3.0])}, None).double()
    expected = module(x.requires_grad_())
    theirs = torch.autograd.grad(expected.sum(), [x, *module.parameters()], materialize_grads=True)
    network = from_torch(module, x.detach())
    found = gb.backward(network, losses.MSELoss("sum"), x.detach().numpy(), expected.detach().numpy() - 0.5, wrt=[
        "x", *network.parameters]).gradient  # fmt: skip
    for key, value in zip(("x", "v"), theirs, strict=True):
        np.testing.assert_allclose(found.get(key, 0 * value), value, atol=1e-12, err_msg=key)


def test_infinite_numbers_of_the_data_are_infinite_in_comparisons():
    module = Own(lambda m, x: m.v * x + (x.log() == -torch.inf), {"v": torch.ones(4)})
    network, x = from_torch(module, torch.rand(3, 4) + 0.1), torch.tensor([[0.0, 1, 0, 2]])
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(network(x.numpy()), module(x).detach())


# -------------------------------------------------------------------------------------------- gradients that are others


def defined(forward, backward):
    """Return a function with a derivative of its own."""
    methods = {"forward": lambda ctx, x: forward(x), "backward": lambda ctx, g: backward(g)}
    return type("Own", (torch.autograd.Function,), {key: staticmethod(each) for key, each in methods.items()}).apply


rounded = defined(torch.sign, lambda g: g)
bounded = defined(lambda x: x.clamp(-5, 5), lambda g: g)
bounding = defined(torch.clone, lambda g: g.clamp(-1, 1))


def clipped(m, y):
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-1, 1))
    return y.tanh()


def without_gradient(m, y):
    with torch.no_grad():
        z = torch.tanh(y)
    return y * z


def beyond(m, y):
    with torch.no_grad():
        z = torch.relu(y - 50)  # 0 for the example
    return y + z


def inferred(m, y):
    with torch.inference_mode():
        z = torch.relu(y - 50)
    return y + z


def switched(m, y):
    torch.set_grad_enabled(False)
    z = torch.relu(y - 50)
    torch.set_grad_enabled(True)
    return y + z


def clamped_in_place(m, y):
    with torch.no_grad():
        y.clamp_(-50, 50)
    return y


def data_in_place(m, y):
    z = torch.zeros_like(y)
    z.data[:, 0].add_(torch.relu(y - 50)[:, 0])
    return y + z


def assigned_data(m, y):
    y = y.clone()
    y.data = y.data.clamp(-50, 50)
    return y


def of_the_weight(m, y):
    with torch.no_grad():
        size = 1 / (1 + 1e-6 * m.scale.norm())
    return y * size


def scaled(m, y):
    if y.requires_grad:
        y.register_hook(lambda g: 1.005 * g)
    return y.tanh()


def written(m, y):
    z = torch.zeros_like(y)
    z[:, :2] = scaled(m, y)[:, :2]
    return z


def hooked(m, y):
    if y.requires_grad:
        y.register_hook(lambda g: 2 * g)
    return y.tanh()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda m, y: y * y.tanh().detach(), "detach: expected a function with the gradient of what it computes"),
        (lambda m, y: y + (torch.sign(y) - y).detach(), "detach: expected a function with the gradient"),
        (without_gradient, "detach: expected a function with the gradient .*, got one that is cut off, as all are in"),
        (beyond, "detach: expected a function with the gradient of what it computes, got one that is cut off"),
        (inferred, "detach: expected a function with the gradient of what it computes, got one that is cut off"),
        (switched, "detach: expected a function with the gradient of what it computes, got one that is cut off"),
        (torch.no_grad()(lambda m, y: y.tanh()), "detach: expected a function with the gradient"),
        (clamped_in_place, "detach: expected a function with the gradient"),
        (data_in_place, "detach: expected a function with the gradient"),
        (lambda m, y: y.detach().clamp_(-50, 50) * 0 + y, "detach: expected a function with the gradient"),
        (assigned_data, "got numbers that are assigned to .data"),
        (of_the_weight, "detach: expected a function with the gradient of what it computes, got one that is cut off"),
        (lambda m, y: y + torch.relu(y - 50).data, "detach: expected a function with the gradient"),
        (scaled, r"got others of scale, its input \(a torch.autograd.Function, a hook, or"),
        (written, r"got others of scale, its input \(a torch.autograd.Function, a hook, or"),
        (lambda m, y: rounded(y), "expected the gradients of the functions that it calls, got others of scale"),
        (lambda m, y: bounded(y), "expected the gradients of the functions that it calls, got others of scale"),
        (lambda m, y: bounding(y), "expected the gradients of the functions that it calls, got others of scale"),
        (hooked, "expected the gradients of the functions that it calls, got others of scale"),
        (clipped, "expected the gradients of the functions that it calls, got others of scale"),
        (lambda m, y: F.cosine_similarity(y, y + 1, 1, 9.0), "got others of scale, its input .* below its eps"),
    ],
)
def test_gradients_that_are_not_those_of_the_functions_are_refused(function, words):
    module = Own(lambda m, x: function(m, m.scale * x), {"scale": torch.rand(4)})
    with pytest.raises(gb.UnsupportedError, match=words):
        from_torch(module, torch.randn(3, 4))


def test_the_cosine_of_short_vectors_has_the_derivative_of_its_value():
    """torch has the value x·w / (ε ‖w‖) below ε, and the derivative as if ε were a constant times ‖x‖."""
    w, x = 2 - 4 * torch.eye(3, 4, dtype=torch.float64), 5 + torch.rand(2, 4, dtype=torch.float64)
    cosine = lambda m, x: F.cosine_similarity((m.scale * x)[:, None], w, -1, 1.0)  # noqa: E731
    module = Own(cosine, {"scale": torch.ones(4, dtype=torch.float64)})
    network, short = from_torch(module, x), (x / 1000).numpy()
    np.testing.assert_allclose(network(short), module(x / 1000).detach(), rtol=1e-12)
    y = np.zeros((2, 3))
    found = gb.backward(network, losses.MSELoss("sum"), short, y).gradient["scale"]
    unit = (w / w.norm(dim=1, keepdim=True)).numpy()
    np.testing.assert_allclose(found, 2 * np.einsum("ni,oi,no->i", short, unit, short @ unit.T), rtol=1e-12)


class LogOfExp(torch.autograd.Function):
    """log(1 + e^x), with a derivative that is finite where e^x is not."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.log1p(torch.exp(x))

    @staticmethod
    def backward(ctx, g):
        return g * torch.sigmoid(ctx.saved_tensors[0])


def test_a_derivative_that_is_written_to_be_finite_is_no_other_one():
    module = Own(lambda m, x: LogOfExp.apply(m.scale * x), {"scale": torch.rand(4)})
    x = 8 * torch.linspace(-1, 1, 12).reshape(3, 4)
    np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x).detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_of_a_parameter_is_refused(register):
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    getattr(module[0].weight, register)(lambda g: g * torch.tensor([0.0, 1, 0])[:, None])
    with pytest.raises(gb.UnsupportedError, match=r"expected parameters without hooks, got 0.weight with one"):
        from_torch(module, torch.randn(3, 4))


@pytest.mark.parametrize("part", [lambda w: w.t(), lambda w: w[1:, 1:]])
def test_parameters_in_the_same_memory_are_refused(part):
    """A step of torch's changes both by both gradients."""
    module = nn.Sequential(nn.Linear(4, 3), nn.Identity())
    weight = part(module[0].weight.data)
    module[1] = nn.Linear(3, len(weight), bias=False)
    module[1].weight = nn.Parameter(weight)
    with pytest.raises(gb.UnsupportedError, match=r"got 0.weight and 1.weight in the same \(make them one, or clone"):
        from_torch(module, torch.randn(3, 4))


def test_a_buffer_in_the_memory_of_a_parameter_is_refused_and_frozen_parameters_are_not():
    module = nn.Sequential(nn.Linear(4, 3))
    module.register_buffer("w", module[0].weight.data.t())
    with pytest.raises(gb.UnsupportedError, match=r"got 0\.weight and w in the same"):
        from_torch(module, torch.randn(3, 4))
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).requires_grad_(False).append(nn.LazyLinear(2))
    module[1].weight.data = module[0].weight.data.t()
    x = torch.randn(5, 3)
    network = from_torch(module, x)
    np.testing.assert_allclose(network(x.numpy()), module(x).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("slopes", [(0.25, 0.25), (0.1, 0.4)])
def test_prelu_has_its_slopes_along_its_second_axis_wherever_the_samples_are(slopes):
    """Equal slopes are right along any axis of as many numbers, but not their gradient."""
    module = Own(lambda m, x: F.prelu(x.permute(1, 2, 0) + m.t[..., None], m.a).permute(2, 0, 1) * m.t,
                 {"a": torch.tensor(slopes), "t": torch.randn(2, 2)}).double()  # fmt: skip
    x = torch.randn(5, 2, 2, dtype=torch.float64)
    network = from_torch(module, x)
    (theirs,) = torch.autograd.grad((module(x) ** 2).sum(), [module.a])
    y = np.zeros(tuple(module(x).shape))
    found = gb.backward(network, losses.MSELoss("sum"), x.numpy(), y).gradient["a"]
    np.testing.assert_allclose(found, theirs, rtol=1e-9)


def test_parameters_beside_each_other_in_memory_are_two():
    module, both = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)), torch.randn(2, 4)
    module[0].weight, module[1].weight = nn.Parameter(both[:, :2]), nn.Parameter(both[:, 2:])
    x = torch.randn(3, 2)
    np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x).detach(), rtol=1e-5, atol=1e-6)


def test_a_gradient_that_a_hook_of_a_module_changes_is_refused():
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    module[1].register_full_backward_hook(lambda part, before, after: (2 * before[0],))
    with pytest.raises(gb.UnsupportedError, match=r"module|expected"):
        from_torch(module, torch.randn(3, 4))


def test_numbers_of_the_data_may_be_detached_where_they_have_no_gradient():
    module = nn.Sequential(nn.Embedding(5, 3))
    assert from_torch(Own(lambda m, x: m.part(x.detach()), part=module), torch.ones(2, 3, dtype=torch.int64))


class Positions(nn.Module):
    """Some things have no gradient: tables, masks, conditions, and numbers of frozen parameters."""

    def __init__(self):
        super().__init__()
        self.part, self.frozen = nn.Linear(4, 3), nn.Parameter(torch.rand(3), requires_grad=False)
        self.register_buffer("table", torch.rand(3))

    def forward(self, x):
        y = self.part(x)
        with torch.no_grad():
            positions = torch.arange(3.0).unsqueeze(0) * self.table
            mask = torch.full((3, 3), -torch.inf).triu_(1)
            mask.view(-1)[3:4].fill_(0.5)
            size = 1 / (1 + self.frozen.norm())
            positive = (y > 0.1).to(y.dtype)
        return size * y * positive + positions + (y.detach() > 0).to(y.dtype) @ mask.exp().to(y.dtype)


@pytest.mark.parametrize("around", [torch.enable_grad, torch.inference_mode])
def test_what_has_no_gradient_may_be_computed_without_one(around):
    module, x = Positions().double(), torch.randn(5, 4, dtype=torch.float64)
    with around():
        network = from_torch(module, x[:3])
    y = module(x)
    theirs = torch.autograd.grad((y**2).sum(), list(module.part.parameters()))
    found = gb.backward(network, losses.MSELoss("sum"), x.numpy(), np.zeros((5, 3)))
    np.testing.assert_allclose(found.output, y.detach(), atol=1e-12)
    for name, value in zip(("part.weight", "part.bias"), theirs, strict=True):
        np.testing.assert_allclose(found.gradient[name], value, atol=1e-12, err_msg=name)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch.no_grad():
            share = torch.sigmoid(x)
        ctx.save_for_backward(x, share)
        return x * share

    @staticmethod
    def backward(ctx, g):
        x, share = ctx.saved_tensors
        return g * share * (1 + x * (1 - share))


def test_a_function_may_have_no_gradients_inside():
    module, x = Own(lambda m, x: Swish.apply(m.part(x)), part=nn.Linear(4, 3)).double(), torch.randn(3, 4).double()
    np.testing.assert_allclose(from_torch(module, x)(2 * x.numpy()), module(2 * x).detach(), rtol=1e-12)


def test_integer_data_have_no_gradient():
    def waves(m, t):
        with torch.no_grad():
            angles = t.double()[:, None] * torch.arange(1.0, 5.0).double()
        return m.part(torch.cat([angles.sin(), angles.cos()], 1))

    module, t = Own(waves, part=nn.Linear(8, 3)).double(), torch.tensor([1, 5, 7])
    np.testing.assert_allclose(from_torch(module, t)(t.numpy()), module(t).detach(), rtol=1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("options", [{"size": (5, 3)}, {"scale_factor": (0.5, 1.5)}])
def test_resizing_with_antialias_is_torchs(mode, options):
    resized = lambda m, x: m.part(F.interpolate(x, mode=mode, antialias=True, **options))  # noqa: E731
    module, x = Own(resized, part=nn.Conv2d(1, 2, 1)).double(), torch.randn(3, 1, 4, 4).double()
    np.testing.assert_allclose(from_torch(module, x)(2 * x.numpy()), module(2 * x).detach(), rtol=0, atol=1e-13)


def of_integers(function, dtype=torch.float32):
    """A module of integers, whose weight is 1, and its network."""
    part = nn.Linear(1, 1, bias=False).to(dtype)
    nn.init.ones_(part.weight)
    module = Own(lambda m, x: m.part(function(x).to(dtype).unsqueeze(2)).squeeze(2), part=part)
    return module, from_torch(module, torch.tensor([[1, 2, 3, 4], [2, 0, 1, 1], [3, 3, 0, 2]]))


COMPUTED = {
    "products": lambda x: (x + 1) * (x + 1) - x * x,
    "pairs": lambda x: x[:, :1] * 4099 + x[:, 1:2] == x[:, 2:3] * 4099 + x[:, 3:],
    "cumulated": lambda x: x.cumsum(1),
    "summed": lambda x: x.sum(1, keepdim=True),
    "squared": lambda x: x**2 > 0,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_integers_are_torchs_or_an_error(name):
    module, network = of_integers(COMPUTED[name])
    x = torch.tensor([[3, 0, 1, 7], [800, 1, 800, 0]])
    np.testing.assert_array_equal(network(x.numpy()), module(x).detach())
    x = torch.tensor([[5001, 9001, 16001, 3], [2**23, 1, 2**23, 0]])
    loss, y = losses.MSELoss(), network(np.ones((2, 4), int))
    calls = [lambda: network(x.numpy()), lambda: gb.prepare(network, loss)(x.numpy(), y),
             lambda: gb.reference(network, loss, x.numpy(), y)]  # fmt: skip
    for _ in range(12):  # none is written down
        gb.backward(network, loss, np.ones((2, 4), int), y)
    for call in [*calls, lambda: gb.backward(network, loss, x.numpy(), y)]:
        with pytest.raises(ValueError, match="expected integers of at most 16777215, which float32 and torch have"):
            call()
    module, network = of_integers(COMPUTED[name], torch.float64)
    np.testing.assert_array_equal(network(x.numpy()), module(x).detach())


def test_integers_that_wrap_around_in_torch_are_an_error():
    for function in (lambda x: x.int() * x.int(), lambda x: (x * x).int()):
        module, network = of_integers(function, torch.float64)
        x = torch.tensor([[46340, 3, -46340, 2]])
        np.testing.assert_array_equal(network(x.numpy()), module(x).detach())
        with pytest.raises(ValueError, match="expected integers of at most 2147483647, which float64 and torch have"):
            network(x.numpy() + 1)


@pytest.mark.parametrize("function", [
    lambda x: x != 0, lambda x: (x != 0).long().cumsum(1) * (x != 0) + 1,
    lambda x: ((x != 0).long() - 2 * (x > 1)).abs(),
    lambda x: ((x > 0).long().cumsum(-1) - 1).masked_fill(x == 0, 1), lambda x: (x > 1).sum(1, keepdim=True),
    lambda x: (x.ne(1).int().cumsum(1).type_as(x) + 0) * x.ne(1).int() + 1,
])  # fmt: skip
def test_integers_of_conditions_need_no_check(function):
    module, network = of_integers(lambda x: function(x).float())
    assert "Exact" not in repr(network)
    x = torch.tensor([[2**24, 0, 1, -5]])
    np.testing.assert_array_equal(network(x.numpy()), module(x).detach())


@pytest.mark.parametrize("signs", [(1, "add", 1), (-1, "add", -1), (1, "sub", -1), (-1, "sub", 1)])
def test_sums_of_conditions_are_checked_where_they_may_be_too_large(signs):
    def joined(x, factor):
        one, name, other = signs
        return getattr(one * factor * (x > 0), name)(other * factor * (x > 1)).float()

    assert "Exact" not in repr(of_integers(lambda x: joined(x, 8_000_000))[1])
    with pytest.raises(ValueError, match="expected integers of at most 16777215, which float32 and torch have, got 18"):
        of_integers(lambda x: joined(x, 9_000_000))


@pytest.mark.parametrize("function", [
    lambda x: (x > 5) * 10_000_001 + (x > 6) * 10_000_000, lambda x: (x > 5) * -10_000_001 + (x > 6) * -10_000_000,
    lambda x: (x > 5) * 10_000_001 - (x > 6) * -10_000_000, lambda x: (x > 5) * -10_000_001 - (x > 6) * 10_000_000,
])  # fmt: skip
def test_integers_of_conditions_that_may_be_large_are_checked(function):
    module, network = of_integers(function)
    x = torch.tensor([[2, 0, 6, 5]])
    np.testing.assert_array_equal(network(x.numpy()), module(x).detach())
    with pytest.raises(ValueError, match="expected integers of at most 16777215, which float32 and torch have"):
        network(x.numpy() + 1)


@pytest.mark.parametrize("function", [
    lambda x: 2**x, torch.pow, lambda x: x + 16777217, lambda x: x == 16777217, lambda x: torch.add(x, x, alpha=3),
    lambda x: x @ torch.eye(4).long(), lambda x: torch.addcmul(x, x, x), lambda x: F.hardtanh(x, -1.5, 9.5),
    lambda x: torch.zeros_like(x).copy_(x.float() * 0.3), lambda x: (x * 0.3).cumsum(1, dtype=torch.int64),
    lambda x: x // 2, lambda x: x % 3, lambda x: x & 1, lambda x: x << 1, lambda x: (0.3 * x).long(),
])  # fmt: skip
def test_integers_of_which_torch_has_others_are_refused(function):
    with pytest.raises(gb.UnsupportedError, match=r"expected|there is no layer|is not supported"):
        of_integers(lambda x: function(x, x.flip(1)) if function is torch.pow else function(x))


def test_powers_of_integers_are_torchs():
    for function in (lambda x: x**3, lambda x: x**0, lambda x: x ** torch.tensor([0, 1, 2, 5])):
        module, network = of_integers(function)
        x = torch.tensor([[-9, 0, 7, -13], [0, 100, 0, 11]])
        np.testing.assert_array_equal(network(x.numpy()), module(x).detach())


def test_an_embedding_with_sparse_gradients_is_taken():
    module, x = nn.Sequential(nn.Embedding(5, 3, sparse=True)).double(), torch.tensor([[1, 4, 1], [0, 4, 2]])
    y = torch.rand(2, 3, 3, dtype=torch.float64)
    F.mse_loss(module(x), y).backward()
    found = gb.backward(from_torch(module, x), gb.losses.MSELoss(), x.numpy(), y.numpy()).gradient["0.weight"]
    np.testing.assert_allclose(found, module[0].weight.grad.to_dense(), rtol=1e-12)


def test_a_module_of_which_torch_has_no_gradient_is_taken():
    def doubled(m, x):
        y = (m.v * x).exp()
        return y.mul_(2)  # the derivative of exp needs what is written over

    module, x = Own(doubled, {"v": torch.rand(4)}), torch.rand(3, 4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        module(x).sum().backward()
    np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x).detach(), rtol=1e-5)


# ------------------------------------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize("expected", [np.inf, -np.inf, np.nan])
def test_a_finite_number_is_unlike_one_that_is_not(expected):
    ours, theirs = np.array([1.0, 2]), np.array([1.0, expected])
    assert unlike(ours, theirs, 1.0, "it") == "expected it, of which 1 are NaN or infinite, got others there"
    assert not unlike(theirs, theirs.copy(), 0.0, "it")


def test_an_infinite_output_hides_no_difference(monkeypatch):
    monkeypatch.setattr(layers.Tanh, "value", lambda self, x: 1.01 * x)
    x = torch.linspace(0, 2, 12).reshape(3, 4)
    words = r"expected torch's output, of at most \d.*, got one that differs"
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match=words):
        from_torch(Own(lambda m, x: m.v * torch.cat([x.log(), torch.tanh(x)], 1), {"v": torch.ones(8)}), x)


def test_infinite_outputs_are_torchs_where_those_are():
    module, x = Own(lambda m, x: (m.v * x).log(), {"v": torch.ones(3)}), torch.tensor([[0.0, 1, -1], [1, 2, 3]])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x).detach(), rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda y: (-2.0) ** y, r"pow: expected a base above 0, got -2.0"),
        (lambda y: 0**y, r"pow: expected a base above 0, got 0.0"),
        (lambda y: F.softmax(y, 1, dtype=torch.float64), r"of at most \S+ in float64, where the network has float32"),
        (lambda y: y.var(1, correction=0.5), r"var: correction=0.5 is not supported, expected a whole number"),
        (lambda y: y * y.max(1, True)[1], r"there is no row of the table for output 1 of max \("),
        (lambda y: y.T, r"as axis 0 of its output, got \(4, N\)"),
        (lambda y: y.unflatten(1, (2, 2)).transpose(0, 1).flatten(0, 1), r"as axis 0 of its output, got \(2 N, 2\)"),
        (lambda y: y.unflatten(1, (2, 2)).flatten(0, 1), r"as axis 0 of its output, got \(N 2, 2\)"),
        (lambda y: y.repeat_interleave(2, 0)[::2], "got some of the samples"),
    ],
)
def test_what_cannot_be_taken_is_named(function, words):
    with pytest.raises(ValueError, match=words):
        from_torch(Own(lambda m, x: function(m.v * x), {"v": torch.rand(4)}), torch.randn(3, 4))


def function_of(kind, bias):
    """A module that calls the function of a layer with parameters of its own."""
    functions = {nn.Linear: F.linear, nn.Conv1d: F.conv1d, nn.ConvTranspose2d: F.conv_transpose2d}
    parameters = dict(kind(4, 2, *[3] * (kind is not nn.Linear)).named_parameters())
    own = Own(lambda m, x: functions[kind](x, m.weight, m.bias), parameters)
    if not bias:
        del own.bias
        own.bias = None
    return own


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "shape"), [(nn.Linear, (4,)), (nn.Conv1d, (4, 5)), (nn.ConvTranspose2d, (4, 5, 5))])
def test_parameters_and_layers_of_which_a_module_calls_the_function_keep_their_names(kind, shape, bias):
    module, x = nn.Sequential(nn.Identity(), function_of(kind, bias)), torch.randn(3, *shape)
    network = from_torch(module, x)
    assert list(network.state_dict()) == list(module.state_dict()) == ["1.weight", "1.bias"][: 1 + bias]
    assert [name for name, layer in network.named_layers() if layer.parameters] == ["1"]
    np.testing.assert_allclose(network(x.numpy()), module(x).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("base", [1e-3, 0.5, 1.0, 2.5])
def test_powers_of_any_base_above_zero_are_taken(base):
    module, x = Own(lambda m, x: base ** (m.v * x), {"v": torch.rand(4)}), torch.randn(3, 4)
    np.testing.assert_allclose(from_torch(module, x)(x.numpy()), module(x).detach(), rtol=1e-5)


EQUAL = {
    "x / number": lambda m, x: x / 49 >= 1, "x / v": lambda m, x: x / m.v >= 1, "number / x": lambda m, x: 49 / x >= 1,
    "log2": lambda m, x: x.log2() == 3, "log10": lambda m, x: x.log10() >= 3, "2 ** x": lambda m, x: 2**x == 8,
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_equal_numbers_are_equal_after_quotients_and_logarithms_as_torch_rounds_them(name):
    module = Own(lambda m, x: torch.where(EQUAL[name](m, x), x, -x) * m.v, {"v": torch.tensor([49.0, 41, 1000])})
    x = torch.tensor([[49.0, 41, 1000], [8, 3, 47]]).double()
    network = from_torch(module.double(), torch.rand(3, 3).double() + 0.1)
    np.testing.assert_array_equal(network(x.numpy()), module(x).detach())
