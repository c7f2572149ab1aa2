"""The C++ of this folder as a library."""

import ctypes
from pathlib import Path

from mt.utils.native import Int, NativeLibrary, Pointer

HERE = Path(__file__).parent
NAMES = "products.h", "float32.cpp", "int8.cpp", "step.cpp", "best.cpp"
SOURCES = [HERE / name for name in NAMES]
library = NativeLibrary(
    "translation",
    SOURCES,
    {
        "mt_multiply": (Pointer, Pointer, Int, Int, Pointer, Int),
        "mt_encode": (Pointer, Pointer),
        "mt_step": (Pointer, Pointer),
        "mt_best": (Pointer, Int, Int, Int, Int, Int, ctypes.c_char_p, Pointer, Pointer, Int),
    },
)
