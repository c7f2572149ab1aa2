from omegaconf import OmegaConf

from mt.utils.omegaconf_private import whole_config


def test_a_section_knows_its_configuration() -> None:
    config = OmegaConf.create({"trainer": {"logger": {"name": "csv"}}, "seed": 1})
    assert whole_config(config.trainer.logger) is config
    assert whole_config(config) is config
