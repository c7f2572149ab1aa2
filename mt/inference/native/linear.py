"""A matrix product in 8 bits by ``products.cpp``."""

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor

from mt.inference.native.library import library
from mt.utils.native import Int, Pointer

PLAIN, RELU, ADD = range(3)  # Mode of products.h
BLOCK = 64  # outputs


class Linear(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("W", "scales", "sums", "bias")),
        *((name, Int) for name in ("in", "out")),
    ]


class NativeLinear:
    """W in 8 bits with a scale for each output; each row of x is rounded between its extremes.

    A row's result does not depend on the other rows. Use it where ``can_multiply`` says so.
    """

    def __init__(self, W: Tensor, b: Tensor | None = None) -> None:
        loaded = library()
        assert loaded is not None
        out, n = W.shape
        scales = W.abs().amax(dim=1).clamp(min=1e-8) / 127
        numbers = W.div(scales[:, None]).round_().to(torch.int8)
        numbers = F.pad(numbers, (0, 0, 0, -out % BLOCK))
        blocks = numbers.view(-1, BLOCK, n // 4, 4).transpose(1, 2).contiguous()
        sums = numbers.sum(dim=1, dtype=torch.int32)
        scales = F.pad(scales, (0, -out % BLOCK))
        self.out = out
        self._tensors = blocks, scales, sums, None if b is None else b.contiguous()
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in self._tensors]
        self.struct = Linear(*pointers, n, out)
        self._address, self._multiply = ctypes.addressof(self.struct), loaded.mt_multiply

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x, PLAIN, x.new_empty(len(x), self.out))

    def relu(self, x: Tensor) -> Tensor:
        return self._product(x, RELU, x.new_empty(len(x), self.out))

    def add_residual(self, x: Tensor, residual: Tensor) -> Tensor:
        y = residual.clone(memory_format=torch.contiguous_format)
        return self._product(x, ADD, y)

    def _product(self, x: Tensor, mode: int, y: Tensor) -> Tensor:
        x, threads = x.contiguous(), torch.get_num_threads()
        self._multiply(self._address, x.data_ptr(), len(x), mode, y.data_ptr(), threads)
        return y


def can_multiply(W: Tensor) -> bool:
    """Whether W [out, in] can be a NativeLinear here."""
    return W.shape[1] % 4 == 0 and library() is not None
