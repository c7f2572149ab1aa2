"""Make the tokenizer and the prepared corpora of a training run without training.

python scripts/prepare_data.py experiment=wmt14_base

The run of the same settings then starts at once: on a cluster, the hours with GPUs go to training.
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
    with hydra_app.user_errors("prepare_data", *train.USER_ERRORS):
        source = make_reader(cfg.data)
        parent = initialization.find_pretrained(cfg, None, None)
        tokenizer = initialization.get_tokenizer(cfg, source, None, parent)
        train.make_data(cfg, source, tokenizer, cfg.data.max_tokens).prepare_data()


if __name__ == "__main__":
    hydra_app.start("prepare_data", main)
