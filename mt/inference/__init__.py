"""From a trained model to translations: cached decoding, search, ``Translator``."""
