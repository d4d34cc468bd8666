"""nngeometry: a grouped convolution is taken for one without groups, without an error.

Checked: neither its documentation nor its list of layers (`LayerCollection`, Conv2d) excludes groups; with groups=1
the same lines agree.

Cells: `jacobian` (groups), `ntk` (groups), `ggn` (groups), `ggn_mc` (groups), `diag_ggn` (groups),
`kfac_exact_expand_joint` (groups).
"""

import torch
from nngeometry.gram import GramMatrix
from nngeometry.jacobian import Jacobian
from nngeometry.metrics import FIM, FIM_MonteCarlo
from nngeometry.object import PMatDense, PMatDiag, PMatKFAC
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
for groups in (1, 2):
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 2, groups=groups), torch.nn.Flatten(), torch.nn.Linear(16, 2))
    x = torch.randn(3, 4, 3, 3)
    loader = DataLoader(TensorDataset(x, torch.zeros(3)), batch_size=3)
    rows = [torch.autograd.grad(net(x[:1])[0, c], tuple(net.parameters())) for c in range(2)]
    j = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])
    size = sum(p.numel() for p in net.parameters())
    print(f"groups={groups}: {size} parameters, {net[0].weight.numel() + 4} of them in the convolution")
    print("  tangent kernel: expected", (j @ j.T)[0].tolist())
    print("  tangent kernel: got     ", GramMatrix(net, loader).to_torch()[0, 0, :, 0].tolist())
    print("  Jacobian: got", tuple(Jacobian(net, loader).to_torch().shape), f"expected (2, 3, {size})")
    fim = {kind: FIM(net, loader, kind, variant="regression") for kind in (PMatDense, PMatDiag, PMatKFAC)}
    print("  FIM: got", tuple(fim[PMatDense].to_torch().shape), f"expected ({size}, {size})")
    drawn = FIM_MonteCarlo(net, loader, PMatDense)
    print("  FIM, drawn: got", tuple(drawn.to_torch().shape), f"expected ({size}, {size})")
    print("  diagonal: got", len(fim[PMatDiag].get_diag()), "entries, expected", size)
    a, g = fim[PMatKFAC].data["0"]
    print(f"  KFAC: got A of {len(a)} inputs, expected {net[0].weight[0].numel() + 1} (with the bias)")
