"""From text to batches: readers, cleaning, tokenizer, packing, batches, the built-in phrasebook."""
