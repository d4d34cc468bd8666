"""Cost models that choose the fastest of several forms from shapes alone; each constant with its measurements.

Costs are in multiply-adds; memory traffic is counted in the same unit, on the safe side (the simpler form is chosen
when the models are close). Letters: V columns, T shared positions, I and O inputs and outputs of a weight, W windows of
a pooling layer. Times are for one thread in float32 unless stated otherwise.
"""

from __future__ import annotations

from gbackprop.calculus.layer import Shape
from gbackprop.calculus.window import Window

COUPLED_BYTES = 2**28
"""Largest stack, of the whole batch, where samples meet and columns are N times as many: others are in more passes."""

BLOCK_BYTES = 2**26
"""Target size of the largest stack of a block of samples, of the outputs of all layers, or of a fourth of its rows of
results.

3c3d, N = 128, two threads: KFLR took 383, 349, 341, 325 and 373 ms in blocks of 27, 34, 46, 67 and 135 MiB. Rows of
results are written once and not read again: BatchGrad took 207 ms in blocks of 9 samples, 158 in blocks of 32."""

SMALL_PRODUCTS = 2**24
"""Multiplications of a call up to which BLAS has one thread: beside another process that is busy each product can wait
for it. 3c3d with 2 samples takes 6 to 8 ms alone, with one thread and with two; beside it 6 with one, 17 with two.
"""

SMALL_PRODUCT = 2**22
"""Multiplications of the largest product of all samples up to which BLAS has one thread. Alone, 784-128-64-10 with 128
samples takes 0.95 ms with one thread, 0.65 with two, in torch 0.75; beside a busy process 1.0, 3 to 6, and 2 to 4. With
32 samples, below the limit: 0.45 with one and with two, torch 0.37."""

SMALL_BYTES = 2**22
"""The same size for a whole batch, up to which it is not cut: starting threads would cost more than they save."""

REUSED_BYTES = 2**19
"""The size of the outputs of all layers, of the largest stack, or of a fourth of the rows of results, for a whole batch
from which a call without blocks takes its arrays from an arena. The gradient of an LSTM with 50 steps of 64 samples
requested 12 MB anew in each call."""

COMPILED_OUTER = 2**13
"""Largest outer product of rows that is left to NumPy: calling compiled code takes as long as 8,000 products."""

COMPILED_LOOP = 2**13
"""Largest array whose elementwise products are left to NumPy: a compiled loop takes 2 µs more before it starts. ReLU of
16,384 numbers takes 4 µs and not 7, and its product with columns 4 and not 6; of 786,000, 70 µs and not 290 or 200."""

STEP_NUMBERS = 2**15
"""Least size of what a time step of a recurrent layer computes in a block. Blocks of 32 samples for 256 numbers each
took 16 ms in two threads, one block of 64 samples 10 ms: threads wait for each other at each small step."""

LOOP_NUMBERS = 2**18
"""The same for all time steps of a block, where they are one compiled loop, which waits for nobody: 2 ms of an LSTM's
gradient. With 64 units and 50 steps, 128 samples took 23 ms in one block, whose products BLAS computed in two threads,
and 10 to 15 in two blocks; 64 samples 8 ms in one block, and 5 to 8 in two."""

UNFOLDED_BYTES = 2**26
"""Unfolded inputs up to this size are saved by the forward pass; larger ones are computed again where needed."""

TILED_CHANNELS = 32
"""Least number of input and output channels for tiles: with fewer, the transforms cost what the products save."""

SAMPLE_COST = 3e6
"""Cost of the Python loop over one sample where columns are routed through max pooling: about 40 µs (10 alone)."""


TILED_POSITIONS = 512
"""Least number of outputs of a channel, of all images, for tiles: with fewer, the weight's transforms take longer."""


def tiles_pay(window: Window, channels: tuple[int, int], groups: int, spatial: Shape, images: int) -> bool:
    """Return whether a convolution is faster by tiles of 2 x 2 outputs, with 16 products each instead of 36.

    32 samples, 64 -> 96 channels on 14 x 14: forward 3.8 -> 2.7 ms; 40 samples, 192 -> 192 on 16 x 16: 54 -> 28 ms.
    """
    plain = window.kernel == (3, 3) and window.stride == window.dilation == (1, 1) and groups == 1
    if not plain or min(channels) < TILED_CHANNELS:
        return False
    height, width = window.out(spatial)
    if images * height * width < TILED_POSITIONS:
        return False
    return 16 * -(-height // 2) * -(-width // 2) <= 6 * height * width  # 6, not 9: the last tiles may be half empty


def norm_by_grams(v: int, t: int, i: int, o: int) -> bool:
    """Return whether ‖Σₜ gₜ uₜᵀ‖² is cheaper as Σₜₛ (gₜᵀ gₛ)(uₜᵀ uₛ), in multiply-adds."""
    return t * (i + v * o) < v * o * i


# ------------------------------------------------------------------ Σᵥₙ (Jᵀ g)² of a weight, for each sample and output


def square_by_products(v: int, t: int, i: int) -> float:
    """Return the cost of computing and squaring each product gᵀu."""
    return v * i * (t + 30)


def square_by_positions(v: int, t: int, i: int, o: int) -> float:
    """Return the cost of sums over pairs of positions, Σₜᵣ kₜᵣ uₜ uᵣ, in float64.

    256 columns, 36 positions, 128 x 864, 8 samples, two threads: 109 ms of processor time; 256 columns, 144
    positions, 96 x 576, 2 samples: the products took 62 ms, pairs 100.
    """
    return t * t * (2.6 * v + 1.3 * i + 60 * i / o) + 180 * t * v


def square(v: int, t: int, i: int, o: int) -> float:
    """Return the cost of the cheaper of the two."""
    return min(square_by_positions(v, t, i, o), square_by_products(v, t, i))


def routed_by_products(v: int, w: int, i: int) -> float:
    """Return the cost of computing and squaring each product from the numbers of W windows of max pooling."""
    return v * i * (w + 30) + 15 * w * i + 20 * v * w


def routed_by_windows(v: int, w: int, i: int) -> float:
    """Return the cost of sums over pairs of windows instead of pairs of positions."""
    return 2 * w * w * (v + i) + 150 * w * i + 40 * v * w


def routing_pays(v: int, w: int, t: int, i: int, o: int) -> bool:
    """Return whether a weight's square is faster from columns routed through max pooling than at all T positions.

    266 columns, one sample: 64 x 75 weights on 784 positions: 24 -> 9 ms; 96 x 576 on 144: 33 -> 8; 128 x 864 on 36:
    7 -> 2.
    """
    here = min(routed_by_products(v, w, i), routed_by_windows(v, w, i))
    return o * (square(v, t, i, o) - here) > SAMPLE_COST


def mirrored(rows: int, i: int) -> bool:
    """Return whether NumPy's uᵀu, half computed and half mirrored, beats the full product, for rows of i numbers.

    13 rows of 1152: 1.5 ms against 0.5 for all of it; 16 of 6400: 174 against 36; 64 of 784: 0.44 against 0.49; 64 of
    4096: 59 against 21; 256 of 4096: 84 against 51, of 1152: 3.7 against 4.3, of 4608: 92 against 104.
    """
    return rows >= (64 if i < 2048 else 256)
