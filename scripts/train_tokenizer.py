"""Train the tokenizer of conf/train.yaml's data without training a model.

python scripts/train_tokenizer.py data=files data.train=PREFIX tokenizer.vocab_size=8000
"""

import hydra
from omegaconf import DictConfig

from mt import beginning, cli, train
from mt.sources import make_source


@hydra.main(version_base="1.3", config_path=cli.CONF, config_name="train")
def main(cfg: DictConfig) -> None:
    cli.remove_empty(cli.run_folder())  # there is no run
    train.set_up_logging()
    with cli.user_errors("train_tokenizer", *train.USER_ERRORS):
        if cfg.start_from is not None:
            raise ValueError("start_from brings its tokenizer along: there is none to train")
        source = make_source(cfg.data)
        path = beginning.tokenizer_path(cfg, source)
        if path.exists():
            raise FileExistsError(f"{path} exists: delete it, or give another tokenizer.path")
        beginning.load_or_train(cfg, path, source)


if __name__ == "__main__":
    cli.start("train_tokenizer", main)
