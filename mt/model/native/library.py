"""The C++ of this folder as a library."""

from pathlib import Path

from mt.utils.native import Float, Int, NativeLibrary, Pointer

HERE = Path(__file__).parent
library = NativeLibrary(
    "training",
    [HERE / name for name in ("attention.cpp", "dropout.cpp", "loss.cpp")],
    {
        "mt_attention": (
            *(Pointer, Int, Pointer, Pointer, Int),
            *[Pointer] * 6,
            *(Int, Int, Int, Int, Float, Int, Int),
        ),
        "mt_dropout": (Pointer, Int, Pointer, Pointer, *[Int] * 4, Float, Int),
        "mt_loss": (Pointer, *[Int] * 4, Pointer, Float, Int, Pointer, Pointer, Int),
    },
)
