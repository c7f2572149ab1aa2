"""What this project uses of OmegaConf beyond its public interface, and why; each has a test."""

from omegaconf import DictConfig


def whole_config(section: DictConfig) -> DictConfig:
    """The configuration that a section of it belongs to. A public node does not tell its parent."""
    root = section._get_root()
    assert isinstance(root, DictConfig)
    return root
