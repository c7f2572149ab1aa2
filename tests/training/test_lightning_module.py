"""Training steps, validation and optimizer, without a command line."""

import itertools
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pytorch_lightning.strategies import DDPStrategy

from mt.data.batch_sampler import collate
from mt.data.datamodule import TranslationData
from mt.data.preprocessing import PairFilter
from mt.data.readers import PhrasebookReader
from mt.data.tokenizer import Tokenizer
from mt.evaluation import metrics
from mt.inference.translator import Translator
from mt.model.transformer import Transformer
from mt.training.lightning_module import TranslationModule
from mt.training.lr_scheduler import learning_rate

SHAPE = {"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "P_drop": 0.0}


def data(bpe: Tokenizer, folder: Path, **changes: Any) -> TranslationData:
    options: dict[str, Any] = {
        "max_tokens": 256,
        "cache_dir": str(folder / "cache"),
        "seed": 1,
        "limit": 200,
        "validation_limit": 30,
        **changes,
    }
    return TranslationData(PhrasebookReader(), bpe, PairFilter(), **options)


def trainer(folder: Path, max_steps: int, **changes: Any) -> pl.Trainer:
    return pl.Trainer(
        default_root_dir=folder,
        max_steps=max_steps,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        **changes,
    )


def fit(module: TranslationModule, bpe: Tokenizer, folder: Path, **changes: Any) -> pl.Trainer:
    fitted = trainer(folder, **{"max_steps": 1, "limit_val_batches": 0, **changes})
    fitted.fit(module, data(bpe, folder))
    return fitted


def test_the_gradient_is_the_mean_over_the_target_tokens_of_the_step(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    """The oracle takes one step of plain PyTorch on the same batch, with the plain formula."""
    torch.manual_seed(5)
    module = TranslationModule(bpe, SHAPE, eps_ls=0.1, warmup_steps=10)
    oracle = Transformer(vocab_size=300, **SHAPE)
    oracle.load_state_dict(module.model.state_dict())
    fit(module, bpe, tmp_path)

    prepared = data(bpe, tmp_path)
    prepared.trainer = trainer(tmp_path, 1)
    prepared.setup("fit")
    batch = next(iter(prepared.train_dataloader()))
    tgt = batch.tgt.padded()
    logits = oracle(batch.src.padded(), tgt)[tgt != 0]
    loss = F.cross_entropy(logits, batch.labels, label_smoothing=0.1)
    rate = learning_rate(1, 16, 10)
    optimizer = torch.optim.Adam(oracle.parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-9)
    loss.backward()
    optimizer.step()
    expected = dict(oracle.named_parameters())
    for name, parameter in module.model.named_parameters():
        torch.testing.assert_close(parameter, expected[name], atol=2e-5, rtol=0, msg=name)


def test_the_logged_loss_is_that_of_all_batches_of_the_step(bpe: Tokenizer, tmp_path: Path) -> None:
    torch.manual_seed(5)
    module = TranslationModule(bpe, SHAPE)
    oracle = Transformer(vocab_size=300, **SHAPE)
    oracle.load_state_dict(module.model.state_dict())
    fitted = fit(module, bpe, tmp_path, accumulate_grad_batches=3, log_every_n_steps=1)

    prepared = data(bpe, tmp_path)
    prepared.trainer = trainer(tmp_path, 1)
    prepared.setup("fit")
    loss = nll = tokens = 0.0
    for batch in itertools.islice(prepared.train_dataloader(), 3):
        tgt = batch.tgt.padded()
        logits = oracle(batch.src.padded(), tgt)[tgt != 0]
        sums = {"label_smoothing": 0.1, "reduction": "sum"}
        loss += float(F.cross_entropy(logits, batch.labels, **sums))
        nll += float(F.cross_entropy(logits, batch.labels, reduction="sum"))
        tokens += len(batch.labels)
    assert float(fitted.logged_metrics["train_loss"]) == pytest.approx(loss / tokens, rel=1e-5)
    assert float(fitted.logged_metrics["train_nll"]) == pytest.approx(nll / tokens, rel=1e-5)


def test_adam_and_the_learning_rate_are_the_paper_s(bpe: Tokenizer, tmp_path: Path) -> None:
    module = TranslationModule(bpe, SHAPE, warmup_steps=3)
    rates: list[float] = []
    logged: list[float] = []

    class Watch(pl.Callback):
        def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
            (group,) = optimizer.param_groups
            rates.append(group["lr"])
            assert group["betas"] == (0.9, 0.98)
            assert group["eps"] == 1e-9
            assert group["weight_decay"] == 0

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            logged.append(float(trainer.logged_metrics["learning_rate"]))

    fit(module, bpe, tmp_path, max_steps=5, callbacks=[Watch()])
    assert rates == pytest.approx([learning_rate(step, 16, 3) for step in range(1, 6)])
    assert logged == pytest.approx(rates)


def test_validation_reports_loss_per_token_and_real_bleu(bpe: Tokenizer, tmp_path: Path) -> None:
    module = TranslationModule(bpe, SHAPE, eps_ls=0.1, search={"beam_size": 2})
    prepared = data(bpe, tmp_path, max_tokens=64)
    fitted = trainer(tmp_path, 1)
    (values,) = fitted.validate(module, datamodule=prepared, verbose=False)

    source, target = prepared.validation_texts
    batch = collate(*([np.array(ids) for ids in bpe.encode(side)] for side in (source, target)))
    with torch.no_grad():
        tgt = batch.tgt.padded()
        logits = module.model(batch.src.padded(), tgt)[tgt != 0]
    loss = F.cross_entropy(logits, batch.labels, label_smoothing=0.1)
    perplexity = F.cross_entropy(logits, batch.labels).exp()
    assert values["val_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert values["val_ppl"] == pytest.approx(perplexity.item(), rel=1e-4)

    results = Translator(module.model, bpe, 256).translate(source, beam_size=2)
    translations = [result.text for result in results]
    assert values["val_bleu"] == pytest.approx(metrics.bleu(translations, target).value)
    assert module.val_translations == translations


def test_dropout_repeats_for_the_same_batch_number(bpe: Tokenizer, tmp_path: Path) -> None:
    def weights(disturb: bool) -> torch.Tensor:
        torch.manual_seed(3)
        module = TranslationModule(bpe, {**SHAPE, "P_drop": 0.5}, warmup_steps=2)

        class Disturb(pl.Callback):
            def on_train_batch_end(self, *args: Any) -> None:
                if disturb:
                    torch.rand(100)

        fit(module, bpe, tmp_path, max_steps=3, callbacks=[Disturb()])
        return module.model.embedding.weight.detach()

    assert torch.equal(weights(disturb=False), weights(disturb=True))


def test_a_request_stops_training_of_one_process_at_once(bpe: Tokenizer, tmp_path: Path) -> None:
    module = TranslationModule(bpe, SHAPE)
    module.stop_requested = True
    fitted = fit(module, bpe, tmp_path, max_steps=50)
    assert module.stopped
    assert fitted.global_step == 1


def test_a_module_saves_its_settings_in_plain_types(bpe: Tokenizer) -> None:
    module = TranslationModule(bpe, SHAPE, max_length=77)
    shape = {"vocab_size": 300, **SHAPE, "d_k": 8, "learned_positions": None}
    assert module.hparams["model"] == shape
    assert module.hparams["max_length"] == 77
    assert "tokenizer" not in module.hparams


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"warmup_steps": 0}, "warmup_steps"),
        ({"warmup_steps": "many"}, "warmup_steps"),
        ({"model": {**SHAPE, "N": "six"}}, "N"),
        ({"eps_ls": 2.0}, "eps_ls"),
        ({"beta2": 1.5}, "beta2"),
        ({"eps": "tiny"}, "eps"),
        ({"lr_factor": 0}, "lr_factor=0: must be a number above 0"),
        ({"lr_factor": -1.0}, "lr_factor=-1.0: must"),
        ({"lr_factor": float("inf")}, "lr_factor=inf: must"),
        ({"lr_factor": float("nan")}, "lr_factor=nan: must"),
        ({"lr_factor": "2"}, "lr_factor='2': must"),
        ({"lr_factor": True}, "lr_factor=True: must"),
        ({"lr_factor": None}, "lr_factor=None: must"),
        ({"search": {"beam_size": -1}}, "beam_size"),
    ],
)
def test_wrong_settings_are_named(bpe: Tokenizer, changes: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        TranslationModule(bpe, **{"model": SHAPE, **changes})


def test_gradients_are_exchanged_once_a_step_not_once_a_batch(
    bpe: Tokenizer, tmp_path: Path
) -> None:
    module = TranslationModule(bpe, SHAPE)
    exchanged: list[bool] = []

    class Watch(pl.Callback):
        def on_before_backward(self, trainer: pl.Trainer, *_: Any) -> None:
            exchanged.append(bool(trainer.strategy.model.require_backward_grad_sync))

    strategy = DDPStrategy(process_group_backend="gloo")
    options = {"max_steps": 2, "accumulate_grad_batches": 3, "strategy": strategy}
    try:
        fit(module, bpe, tmp_path, **options, callbacks=[Watch()])
    finally:
        dist.destroy_process_group()
    assert exchanged == [False, False, True] * 2


def test_gradients_are_gone_before_the_next_forward_pass(bpe: Tokenizer, tmp_path: Path) -> None:
    seen: list[bool] = []

    class Watch(pl.Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, *_: Any) -> None:
            seen.append(any(p.grad is not None for p in module.parameters()))

    options = {"max_steps": 2, "accumulate_grad_batches": 2, "callbacks": [Watch()]}
    fit(TranslationModule(bpe, SHAPE), bpe, tmp_path, **options)
    assert seen == [False, True, False, True]  # the second batch of a step adds to the first's


def test_malloc_is_tuned_once_after_the_first_step(
    bpe: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    module = TranslationModule(bpe, SHAPE)

    def tune_malloc_for_steps() -> None:
        calls.append(len(module.optimizers().state) == len(list(module.parameters())))

    monkeypatch.setattr("mt.training.lightning_module.tune_malloc_for_steps", tune_malloc_for_steps)
    fit(module, bpe, tmp_path, max_steps=3)
    assert calls == [True]  # when Adam has its moments


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_training_step_does_not_wait_for_the_gpu(bpe: Tokenizer, dtype: torch.dtype) -> None:
    """Forward, loss, backward and the totals: torch raises an error wherever one would wait."""
    module = TranslationModule(bpe, {**SHAPE, "P_drop": 0.1}).cuda()
    module.trainer = SimpleNamespace(world_size=1, global_step=0)  # type: ignore[assignment]
    module.log = lambda *_: None  # type: ignore[assignment, method-assign]
    host = collate([np.array([5, 6, 7]), np.array([8])], [np.array([9]), np.array([10, 11])])
    sides = ([x.cuda() if torch.is_tensor(x) else x for x in side] for side in host[:2])
    src, tgt = (type(host.src)(*side) for side in sides)
    batch = type(host)(src, tgt, host.labels.cuda())
    optimizer = torch.optim.Adam(module.parameters(), fused=True)
    for attempt in range(3):  # the first loads kernels
        torch.cuda.set_sync_debug_mode("error" if attempt else "default")
        try:
            with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
                loss, nll = module._loss_and_nll(batch)
            loss.backward()
            module._batches, module._batch_losses = [batch], [loss.detach()]
            module._batch_nlls = [nll.detach()]
            module.on_before_optimizer_step(optimizer)
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_compiled_layers_compute_the_same_from_code_for_few_shapes(
    bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
    torch.manual_seed(0)
    plain, compiled = (TranslationModule(bpe, {**SHAPE, "N": 2, "d_model": 32}) for _ in range(2))
    compiled.load_state_dict(plain.state_dict())
    compiled.compile_layers()
    assert list(compiled.state_dict()) == list(plain.state_dict())  # checkpoints are the same
    rng = np.random.default_rng(0)
    torch._dynamo.utils.counters.clear()
    for count in (3, 1, 9, 30, 2):
        sides = [
            [rng.integers(4, 300, rng.integers(1, 40)) for _ in range(count)] for _ in range(2)
        ]
        results = []
        for module in (plain, compiled):
            module.zero_grad()
            loss, _ = module.train()._loss_and_nll(collate(*sides))
            with torch.no_grad():
                evaluated, _ = module.eval()._loss_and_nll(collate(*sides))
            loss.backward()
            results.append([loss.detach(), evaluated, *(p.grad for p in module.parameters())])
        torch.testing.assert_close(*results, atol=1e-2, rtol=1e-3)
    assert 0 < torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 20
