"""The ids of the special pieces, the same in every vocabulary of this project."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_IDS = (PAD, UNK, BOS, EOS)
# Smallest id that may stand in a translation: pad, unk and bos, which come before it, never do.
FIRST_OUTPUT_ID = EOS
