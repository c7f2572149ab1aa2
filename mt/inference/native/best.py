"""The likeliest tokens by ``best.cpp``."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mt.data.special_ids import EOS, FIRST_OUTPUT_ID
from mt.inference.native.library import library


def best_tokens(
    logits: Tensor, k: int, unfinished: Sequence[bool]
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [B, w, V], which it destroys -> log P and ids of the k likeliest tokens, [B, w, k].

    Special tokens other than eos are not among them, nor is eos for sentences that are
    ``unfinished`` [B]. Only where ``library`` is not None.
    """
    loaded = library()
    assert loaded is not None
    logits = logits.contiguous()
    B, w, V = logits.shape
    log_probs, ids = logits.new_empty(B, w, k), logits.new_empty((B, w, k), dtype=torch.long)
    rows = bytes(u for u in unfinished for _ in range(w))
    threads = torch.get_num_threads()
    loaded.mt_best(
        logits.data_ptr(), B * w, V, k, FIRST_OUTPUT_ID, EOS, rows,
        log_probs.data_ptr(), ids.data_ptr(), threads,
    )  # fmt: skip
    return log_probs.numpy(), ids.numpy()
