"""What a model folder may ask for. It imports nothing, so that options start without PyTorch."""

MAX_MODEL_BEAM = 100  # the beam size where the user asks for none
