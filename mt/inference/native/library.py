"""The C++ of this folder."""

import ctypes
from pathlib import Path

from mt.utils.native import Int, Pointer, native_library

HERE = Path(__file__).parent
SOURCES = [HERE / name for name in ("products.h", "products.cpp", "step.cpp", "best.cpp")]
library = native_library(
    "int8",
    SOURCES,
    {
        "mt_multiply": (Pointer, Pointer, Int, Int, Pointer, Int),
        "mt_encode": (Pointer, Pointer),
        "mt_step": (Pointer, Pointer),
        "mt_best": (Pointer, Int, Int, Int, Int, Int, ctypes.c_char_p, Pointer, Pointer, Int),
    },
)
