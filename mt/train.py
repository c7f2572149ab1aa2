"""python -m mt.train: train a Transformer with the settings of conf/train.yaml (Hydra).

With -m it runs a sweep. A run directory holds config.yaml, tokenizer.model and .vocab, train.log,
checkpoints/, logs/ and, at the end, the model folder model/.
"""

import os
import sys
from contextlib import ExitStack

from mt.utils import console

with console.exit_at_interrupt():
    import hydra
    from omegaconf import DictConfig

    from mt.training import sweep
    from mt.training.config import read_config
    from mt.training.fit import fit
    from mt.training.run_dir import only_run
    from mt.training.setup import is_rank_zero, set_up, set_up_logging
    from mt.utils import hydra_app
    from mt.utils.processes import RANK_ZERO, SWEEP, exit_with_parent


@hydra.main(version_base="1.3", config_path=hydra_app.CONF, config_name="train")
def main(cfg: DictConfig) -> None:
    folder = hydra_app.run_folder()
    if sweep.is_sweep():
        with hydra_app.setting_up("mt.train", folder, *hydra_app.USER_ERRORS):
            return sweep.run_job(folder, cfg)
    console.write_utf8()
    set_up_logging()
    if not is_rank_zero():
        # A rank that was started apart may have made a folder that rank 0 does not use.
        hydra_app.remove_empty(folder)
        exit_with_parent()
    else:
        os.environ[RANK_ZERO] = str(os.getpid())
        if SWEEP in os.environ:  # a job must not train beside its successor
            exit_with_parent(int(os.environ[SWEEP]))
    with hydra_app.setting_up("mt.train", folder, *hydra_app.USER_ERRORS), ExitStack() as stack:
        if is_rank_zero():
            stack.enter_context(only_run(folder))
        run = set_up(read_config(cfg), folder)
        locked = stack.pop_all()
    with locked, hydra_app.user_errors("mt.train", OSError, MemoryError):  # its files are whole
        status = fit(run)
    sys.exit(status)


if __name__ == "__main__":
    hydra_app.start("mt.train", main)
