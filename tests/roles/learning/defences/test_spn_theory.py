"""Statements of the SPN paper about reconstruction by linear equations, as far as they hold."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.nn import functional

norm = np.linalg.norm


@settings(max_examples=50)
@given(
    st.integers(2, 5).flatmap(
        lambda n: st.tuples(
            hnp.arrays(np.float64, (n, n), elements=st.floats(-2, 2)),
            hnp.arrays(np.float64, (n, n), elements=st.floats(-1, 1)),
            hnp.arrays(np.float64, (n,), elements=st.floats(-2, 2)),
            hnp.arrays(np.float64, (n,), elements=st.floats(-1, 1)),
        )
    ),
    st.floats(0.01, 0.9),
)
def test_the_error_of_a_noisy_linear_reconstruction_is_bounded_under_the_condition(
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], contraction: float
) -> None:
    """Theorem 2.2, bound (3), whenever condition (2) holds; its published proof does not show it."""
    noise, error_b, x, error_w = drawn
    b = noise + 4 * np.eye(len(x))
    assume(np.linalg.cond(b) < 1e4 and norm(x) > 1e-3 and norm(error_b) > 1e-3)
    error_b = error_b * contraction / norm(np.linalg.inv(b) @ error_b, 2)
    w = b @ x
    found = np.linalg.solve(b + error_b, w + error_w)
    amplification = np.linalg.cond(b) / (1 - norm(np.linalg.inv(b) @ error_b, 2))
    bound = amplification * (norm(error_b, 2) / norm(b, 2) + norm(error_w) / norm(w))
    assert norm(found - x) / norm(x) <= bound * (1 + 1e-9) + 1e-9


def test_the_step_of_the_proof_that_drops_the_other_error_does_not_hold() -> None:
    """Step (17) says ||x*|| / ||x|| <= 1 / (1 - ||B^-1 E_B||) without regard to E_W."""
    b, x = np.eye(2), np.ones(2)
    found = np.linalg.solve(b, b @ x + b @ x)
    assert norm(found) / norm(x) > 1


@settings(max_examples=30)
@given(st.integers(1, 2), st.integers(1, 2), st.integers(0, 2), st.integers(3, 6), st.integers(0, 99))
def test_a_convolution_is_a_matrix_of_shifted_kernels(
    channels: int, stride: int, padding: int, side: int, seed: int
) -> None:
    """Figure 8: so statements about fully connected layers are statements about convolutions."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(1, channels, side, side, generator=generator, dtype=torch.float64)
    kernel = torch.randn(2, channels, 3, 3, generator=generator, dtype=torch.float64)
    expected = functional.conv2d(image, kernel, stride=stride, padding=padding)
    _, _, height, width = expected.shape
    matrix = torch.zeros(2, height, width, channels, side, side, dtype=torch.float64)
    for row in range(height):
        for column in range(width):
            for dy in range(3):
                for dx in range(3):
                    y, x = row * stride + dy - padding, column * stride + dx - padding
                    if 0 <= y < side and 0 <= x < side:
                        matrix[:, row, column, :, y, x] = kernel[:, :, dy, dx]
    product = matrix.reshape(expected.numel(), -1) @ image.reshape(-1)
    assert torch.allclose(product.reshape(expected.shape), expected)
