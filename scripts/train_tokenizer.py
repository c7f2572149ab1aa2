"""Train the tokenizer of conf/train.yaml's data without training a model.

python scripts/train_tokenizer.py data=files data.train=PREFIX tokenizer.vocab_size=8000
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
    with hydra_app.user_errors("train_tokenizer", *hydra_app.USER_ERRORS):
        config = read_config(cfg)
        if config.init_from is not None:
            raise ValueError("init_from: that model has a tokenizer; none needs to be trained")
        path = initialization.tokenizer_path(config)
        if path.exists():
            raise FileExistsError(f"{path} exists: delete it, or give another tokenizer.path")
        initialization.load_or_train(config, path)


if __name__ == "__main__":
    hydra_app.start("train_tokenizer", main, "train")
