"""Torch modules of different kinds, with the shape of a sample of their input."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F
from torch_sequences import SEQUENCES, Doing


def activations():
    return nn.Sequential(nn.Linear(5, 6), nn.GELU("tanh"), nn.Linear(6, 5), nn.LeakyReLU(0.2), nn.SiLU(), nn.Softplus())


class Small(nn.Module):
    """LeNet as tutorials write it, with functions and a view."""

    def __init__(self, view):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 4, 2)
        self.fc1, self.fc2 = nn.Linear(16, 6), nn.Linear(6, 3)
        self.view = view

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2, stride=1, padding=0)
        return self.fc2(torch.sigmoid(self.fc1(self.view(x))))


class Block(nn.Module):
    """The block of a ResNet."""

    def __init__(self, before, after, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += identity
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 3, padding=1)
        self.layer1 = nn.Sequential(Block(3, 3), Block(3, 3))
        self.layer2 = nn.Sequential(Block(3, 4, stride=2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        x = self.avgpool(self.layer2(self.layer1(F.relu(self.stem(x)))))
        return self.fc(torch.flatten(x, 1))


def gated():
    return Doing(lambda m, x: m.value(x) * torch.sigmoid(m.gate(x)), value=nn.Linear(5, 4), gate=nn.Linear(5, 4))


class Dense(nn.Module):
    """Concatenations, as in a DenseNet."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(2 + 2 * i, 2, 3, padding=1) for i in range(3)])
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for conv in self.convs:
            x = torch.cat([x, F.silu(conv(x))], dim=1)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """Heads of attention, without the constant factor."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.q, self.k, self.v = nn.Linear(6, 6), nn.Linear(6, 6, bias=False), nn.Linear(6, 6)
        self.out = nn.Linear(6, 6)

    def heads(self, x):
        n, t, _ = x.shape
        return x.view(n, t, 2, 3).transpose(1, 2)

    def forward(self, x):
        h = self.norm(x)
        q, k, v = self.heads(self.q(h)), self.heads(self.k(h)), self.heads(self.v(h))
        weights = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
        mixed = torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous()
        return x + self.out(mixed.reshape(x.size(0), x.shape[1], -1))


def products():
    left, right = nn.Linear(4, 3), nn.Linear(4, 3)
    return Doing(lambda m, x: torch.bmm(m.left(x), m.right(x).permute(0, 2, 1)), left=left, right=right)


def mixer():
    """Layers over the positions and over the features in turn."""

    def forward(m, x):
        x = x + F.gelu(m.positions(m.norm(x).transpose(1, 2))).transpose(1, 2)
        return x + F.leaky_relu(m.features(x), 0.1)

    return Doing(forward, positions=nn.Linear(4, 4), features=nn.Linear(6, 6), norm=nn.LayerNorm(6, eps=1e-3))


def shared():
    """A layer that is used twice; torch's order of calls is not the only one."""

    def forward(m, x):
        late = m.fc(torch.tanh(x))
        return m.out(late + m.fc(x))

    return Doing(forward, fc=nn.Linear(4, 4), out=nn.Linear(4, 2))


def recurrent():
    """One layer, three times in a row."""

    def forward(m, x):
        for _ in range(3):
            x = torch.tanh(m.step(x)) + x
        return x

    return Doing(forward, step=nn.Linear(4, 4))


def two_names():
    """One layer with two names."""
    layer = nn.Linear(4, 4)
    return Doing(lambda m, x: m.decode(torch.sigmoid(m.encode(x))), encode=layer, decode=layer)


def nested():
    """Modules whose parts are used by another, across their borders."""

    def forward(m, x):
        h = m.a["first"](m.b(x))
        return m.b[0](m.a["second"](F.log_softmax(h, dim=1)))

    a = nn.ModuleDict({"first": nn.Linear(4, 5), "second": nn.Linear(5, 4)})
    return Doing(forward, a=a, b=nn.Sequential(nn.Linear(4, 4), nn.Tanh()))


class WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.drop, self.fc2 = nn.Linear(4, 5), nn.Dropout(0.4), nn.Linear(5, 2)

    def forward(self, x, mask=None):
        if mask is not None:
            x = x * mask
        x = F.dropout(self.drop(F.softplus(self.fc1(x))), 0.3, training=self.training)
        return self.fc2(x)


def squeeze_excite():
    """Channels that are weighed: their factors as planes of the image's size."""

    def forward(m, x):
        gate = torch.sigmoid(m.up(F.relu(m.down(F.adaptive_avg_pool2d(x, (1, 1))))))
        return x * m.grow(gate)

    return Doing(forward, down=nn.Conv2d(4, 2, 1), up=nn.Conv2d(2, 4, 1), grow=nn.Upsample(size=(4, 4)))


def u_net():
    def forward(m, x):
        low = F.hardswish(m.down(x))
        return m.out(torch.cat((x, m.up(low)), 1)).squeeze(1)

    down, up = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 2, 2, stride=2)
    return Doing(forward, down=down, up=up, out=nn.Conv2d(4, 1, 1))


def words():
    def forward(m, x):
        h = F.relu(m.conv(m.embedding(x).permute(0, 2, 1)))
        return m.out(F.max_pool1d(h, h.size(-1)).squeeze(-1))

    embedding, conv = nn.Embedding(7, 4), nn.Conv1d(4, 3, 3, padding="same")
    return Doing(forward, embedding=embedding, conv=conv, out=nn.Linear(3, 2))


def parts():
    """Parts of features, as of gates in one product."""

    def forward(m, x):
        h = m.fc(x)
        return m.out(torch.tanh(h[:, :, :4]) * torch.sigmoid(h[:, :, 4:]))[:, 1:4:2, -1]

    return Doing(forward, fc=nn.Linear(3, 8), out=nn.Linear(4, 2))


def nested_chain():
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2, affine=False), nn.ReLU()),
        nn.Sequential(nn.MaxPool2d(2), nn.Sequential(nn.Conv2d(2, 4, 1, groups=2), nn.Sequential())),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def shared_chain():
    layer, act = nn.Linear(4, 4), nn.Tanh()
    return nn.Sequential(layer, act, layer, act, nn.Linear(4, 2))


def named_chain():
    conv = nn.Conv1d(2, 3, 2, padding_mode="circular", padding=1)
    return nn.Sequential(
        OrderedDict(conv=conv, act=nn.Mish(), flat=nn.Flatten(), norm=nn.RMSNorm(18), out=nn.Linear(18, 2))
    )


def frozen():
    module = nn.Sequential(nn.Linear(4, 5), nn.ELU(), nn.Linear(5, 2))
    module[0].requires_grad_(False)
    return module


MODULES = {
    "logistic regression": (lambda: nn.Sequential(nn.Linear(5, 3)), (5,)),
    "activations": (activations, (5,)),
    "further activations": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.PReLU(4), nn.CELU(0.5), nn.Hardtanh(-2, 2), nn.Softshrink(0.1)),
        (4,),
    ),
    "sequence": (lambda: nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1), nn.Linear(3, 2, bias=False)), (5, 4)),
    "nested chain": (nested_chain, (1, 4, 4)),
    "shared chain": (shared_chain, (4,)),
    "named chain": (named_chain, (2, 5)),
    "frozen": (frozen, (4,)),
    "view with a number": (lambda: Small(lambda x: x.view(-1, 16)), (1, 10, 10)),
    "view with a size": (lambda: Small(lambda x: x.view(x.size(0), -1)), (1, 10, 10)),
    "reshape with a shape": (lambda: Small(lambda x: x.reshape(x.shape[0], 4 * 2 * 2)), (1, 10, 10)),
    "flatten": (lambda: Small(lambda x: torch.flatten(x, start_dim=1)), (1, 10, 10)),
    "residual": (ResNet, (2, 6, 6)),
    "blocks in a chain": (lambda: nn.Sequential(Block(2, 2), Block(2, 3, stride=2), nn.Flatten()), (2, 4, 4)),
    "gate": (gated, (5,)),
    "gates in a chain": (lambda: nn.Sequential(nn.Linear(4, 5), gated(), nn.Tanh(), nn.Linear(4, 2)), (4,)),
    "dense": (Dense, (2, 4, 4)),
    "attention": (Attention, (4, 6)),
    "products": (products, (5, 4)),
    "mixer": (mixer, (4, 6)),
    "shared": (shared, (4,)),
    "recurrent": (recurrent, (4,)),
    "two names": (two_names, (4,)),
    "across borders": (nested, (4,)),
    "dropout": (WithDropout, (4,)),
    "squeeze and excite": (squeeze_excite, (4, 4, 4)),
    "skip connection": (u_net, (2, 4, 4)),
    "words": (words, (6,)),
    "parts": (parts, (5, 3)),
    "norms": (
        lambda: nn.Sequential(
            nn.GroupNorm(2, 4, eps=1e-3), nn.Conv2d(4, 2, 3, padding=1, bias=False), nn.InstanceNorm2d(2, affine=True)
        ),
        (4, 4, 4),
    ),
    "pixels": (
        lambda: nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(4, 4, 1), nn.PixelShuffle(2), nn.ReflectionPad2d(1)),
        (1, 4, 4),
    ),
    "volumes": (
        lambda: nn.Sequential(
            nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2), nn.AvgPool3d(2, 1), nn.Flatten(), nn.Linear(16, 2)
        ),
        (1, 4, 4, 4),
    ),
    "pools": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, dilation=2, bias=False),
            nn.MaxPool2d(3, 2, 1, ceil_mode=True),
            nn.AvgPool2d(2, 1, count_include_pad=False),
            nn.AdaptiveMaxPool2d((1, None)),
            nn.Unflatten(1, (2, 1)),
        ),
        (1, 9, 9),
    ),
    **SEQUENCES,
}
