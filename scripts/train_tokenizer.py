"""Train the tokenizer of conf/train.yaml's data without training a model.

python scripts/train_tokenizer.py data=files data.train=PREFIX tokenizer.vocab_size=8000
"""

import hydra
from omegaconf import DictConfig

from mt import train
from mt.data.readers import make_reader
from mt.training import initialization
from mt.utils import hydra_app


@hydra.main(version_base="1.3", config_path=hydra_app.CONF, config_name="train")
def main(cfg: DictConfig) -> None:
    hydra_app.remove_empty(hydra_app.run_folder())  # there is no run
    train.set_up_logging()
    with hydra_app.user_errors("train_tokenizer", *train.USER_ERRORS):
        if cfg.start_from is not None:
            raise ValueError("start_from brings its tokenizer along: there is none to train")
        source = make_reader(cfg.data)
        path = initialization.tokenizer_path(cfg, source)
        if path.exists():
            raise FileExistsError(f"{path} exists: delete it, or give another tokenizer.path")
        initialization.load_or_train(cfg, path, source)


if __name__ == "__main__":
    hydra_app.start("train_tokenizer", main)
