"""Make the tokenizer and the prepared corpora of a training run without training.

python scripts/prepare_data.py experiment=wmt14_base

A run with the same settings then starts at once: on a cluster, the hours with GPUs go to training.
"""

from mt.utils import console

with console.exit_at_interrupt():
    import hydra
    from omegaconf import DictConfig

    from mt.training import initialization, setup
    from mt.training.config import read_config
    from mt.utils import hydra_app


@hydra.main(version_base="1.3", config_path=hydra_app.CONF, config_name="train")
def main(cfg: DictConfig) -> None:
    hydra_app.remove_empty(hydra_app.run_folder())  # there is no run
    setup.set_up_logging()
    with hydra_app.user_errors("prepare_data", *hydra_app.USER_ERRORS):
        config = read_config(cfg)
        pretrained = initialization.find_pretrained(config, None, None)
        tokenizer = initialization.get_tokenizer(config, None, pretrained)
        setup.make_data(config, tokenizer, config.data.max_tokens).prepare_data()


if __name__ == "__main__":
    hydra_app.start("prepare_data", main, "train")
