"""The ids of the special pieces, the same in every vocabulary of this project."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_IDS = (PAD, UNK, BOS, EOS)
FIRST_OUTPUT_ID = EOS  # a translation holds no smaller id: pad, unk and bos never stand in one
