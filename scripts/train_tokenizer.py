"""Train the tokenizer of conf/train.yaml's data without training a model.

python scripts/train_tokenizer.py data=files data.source.train=PREFIX tokenizer.vocab_size=8000
"""

import sys

import hydra
from omegaconf import DictConfig

from mt import train
from mt.corpus import make_source


@hydra.main(version_base="1.3", config_path=train.CONF, config_name="train")
def main(cfg: DictConfig) -> None:
    train.set_up_logging()
    try:
        source = make_source(**cfg.data.source)
        path = train.tokenizer_path(cfg, source)
        if path.exists():
            raise FileExistsError(f"{path} exists: delete it, or give another tokenizer.path")
        trained = train.get_tokenizer(path, cfg.tokenizer.vocab_size, source)
    except train.USER_ERRORS as error:
        print(f"train_tokenizer: error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{path}: {trained.vocab_size:,} pieces")


if __name__ == "__main__":
    main()
