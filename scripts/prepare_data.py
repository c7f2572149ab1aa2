"""Make the tokenizer and the prepared corpora of a training run without training.

python scripts/prepare_data.py experiment=wmt14_base

The run of the same settings then starts at once: on a cluster, the hours with GPUs go to training.
"""

import hydra
from omegaconf import DictConfig

from mt import beginning, cli, train
from mt.sources import make_source


@hydra.main(version_base="1.3", config_path=cli.CONF, config_name="train")
def main(cfg: DictConfig) -> None:
    cli.remove_empty(cli.run_folder())  # there is no run
    train.set_up_logging()
    with cli.user_errors("prepare_data", *train.USER_ERRORS):
        source = make_source(cfg.data)
        parent = beginning.find_parent(cfg, None, None)
        tokenizer = beginning.get_tokenizer(cfg, source, None, parent)
        train.make_data(cfg, source, tokenizer, cfg.data.max_tokens).prepare_data()


if __name__ == "__main__":
    cli.start("prepare_data", main)
