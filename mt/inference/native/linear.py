"""A matrix product by ``float32.cpp`` or ``int8.cpp``."""

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor

from mt.inference.native.library import library
from mt.model.storage import round_rows
from mt.utils.native import Int, Pointer

PLAIN, RELU, ADD = range(3)  # Mode of products.h
BLOCK, VECTOR = 64, 16  # outputs
LEAST_WEIGHT = 1e-8  # which takes all 8 bits of a row; smaller ones take fewer


class Linear(ctypes.Structure):
    _fields_ = [
        *((name, Pointer) for name in ("W", "numbers", "scales", "sums", "bias")),
        *((name, Int) for name in ("in", "out")),
    ]


class NativeLinear:
    """A LinearOp where a row's result does not depend on the other rows, to the last bit.

    With ``int8``, W has 8 bits and a scale for each output, and each row of x is rounded between
    its extremes. Use it where ``can_multiply`` says so.
    """

    def __init__(self, W: Tensor, b: Tensor | None = None, int8: bool = False) -> None:
        loaded = library()
        assert loaded is not None
        self.out, n = W.shape
        bias = None if b is None else b.contiguous()
        self._tensors = (*(_int8_blocks(W) if int8 else _float32_blocks(W)), bias)
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in self._tensors]
        self.struct = Linear(*pointers, n, self.out)
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


Blocks = tuple[Tensor | None, ...]  # W, numbers, scales and sums of Linear


def _float32_blocks(W: Tensor) -> Blocks:
    W = _padded(W)
    blocks = W.view(-1, VECTOR, W.shape[1]).transpose(1, 2).contiguous()
    return blocks, None, None, None


def _int8_blocks(W: Tensor) -> Blocks:
    numbers, scales = round_rows(W, LEAST_WEIGHT)
    numbers = _padded(numbers)
    blocks = numbers.view(-1, BLOCK, W.shape[1] // 4, 4).transpose(1, 2).contiguous()
    sums = numbers.sum(dim=1, dtype=torch.int32)
    return None, blocks, F.pad(scales, (0, -len(W) % BLOCK)), sums


def _padded(W: Tensor) -> Tensor:
    rest = -len(W) % BLOCK
    return F.pad(W, (0, 0, 0, rest)) if rest else W  # F.pad copies in any case


def can_multiply(W: Tensor) -> bool:
    """Whether W [out, in] can be a NativeLinear of int8 here."""
    return W.shape[1] % 4 == 0 and library() is not None
