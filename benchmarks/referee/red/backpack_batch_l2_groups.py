"""BackPACK: squared norms of individual gradients of a grouped convolution, beside those of torch's gradients.

Checked: its documentation restricts `BatchL2Grad` to no number of groups, no error is raised, `BatchGrad` of the same
call is right, and with groups=1 the norms are, too.

Cells: `batch_l2` (groups, relations).
"""

import torch
from backpack import backpack, extend, extensions

torch.manual_seed(0)
for groups in (1, 2):
    net = extend(torch.nn.Sequential(torch.nn.Conv2d(4, 4, 2, groups=groups), torch.nn.Flatten()))
    x = torch.randn(3, 4, 3, 3)
    with backpack(extensions.BatchL2Grad()):
        (net(x) ** 2).sum().backward()
    expected = []
    for n in range(3):
        (g,) = torch.autograd.grad((net(x[n : n + 1]) ** 2).sum(), net[0].weight)
        expected.append(float((g**2).sum()))
    print(f"groups={groups}: expected {expected}, got {net[0].weight.batch_l2.tolist()}")
