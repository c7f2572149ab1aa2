"""Reports with numbers that a test knows, and their pages in a browser: a plugin of pytest.

PYTEST_DONT_REWRITE: the test module imports it before pytest knows that it is a plugin.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, Route
from torch import Tensor

from mt.inspection.arrays import decode, encode
from mt.inspection.page import write_page

VIEWS = ["pieces", "positions", "attention", "by-hand", "steps", "tree", "alignment"]
TEMPERATURES = [0.5, 1.0, 2.0]
VOCABULARY = 100
Opener = Callable[..., Page]


def make_report(S: int = 4, T: int = 3, N: int = 2, h: int = 2, d_model: int = 32) -> dict:
    """A report of random numbers: as ``mt.inspection.report`` makes it, but without a model."""
    generator = torch.Generator().manual_seed(1)

    def rand(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    source = [f"▁source{i}" for i in range(S - 1)] + ["</s>"]
    target = [f"▁target{i}" for i in range(T - 1)] + ["</s>"]
    inputs = ["<s>", *target[:-1]]
    causal = torch.ones(T, T).tril().bool()
    attention = {
        "encoder": rand(N, h, S, S).softmax(-1),
        "decoder": rand(N, h, T, T).masked_fill(~causal, -math.inf).softmax(-1),
        "cross": (3 * rand(N, h, T, S)).softmax(-1),
    }
    entropy = {kind: torch.special.entr(x).sum(-1).mean(-1) for kind, x in attention.items()}
    logits = 2 * rand(T, VOCABULARY).double()
    positions = rand(64, d_model)
    return {
        "format": "mt-inspection-1",
        "model": {
            "name": "/models/random", "N": N, "d_model": d_model, "d_ff": 4 * d_model, "h": h,
            "d_k": 16, "vocab_size": VOCABULARY, "parameters": 1234567, "languages": ["en", "de"],
            "precision": "float32",
        },
        "source": {
            "text": "The source's <b>text</b>", "pieces": source, "ids": list(range(4, 4 + S)),
        },
        "target": {
            "text": "The target", "pieces": target, "ids": list(range(50, 50 + T)),
            "inputs": inputs, "given": True, "score": -1.5, "log_prob": -2.25,
        },
        "translation": {"text": "What is found", "score": -0.75, "log_prob": -1.25},
        "embedding": {
            "scale": d_model**0.5,
            "source": encode(rand(S, d_model)),
            "target": encode(rand(T, d_model)),
            "neighbours": {
                piece: [[f"like-{piece}-{i}", 0.9 - 0.1 * i] for i in range(8)]
                for piece in {*source, *inputs, *target}
            },
        },
        "positions": {
            "table": encode(positions),
            "dot_products": encode(positions @ positions.t()),
            "learned": encode(rand(S, d_model)),
        },
        "attention": {
            **{kind: encode(x) for kind, x in attention.items()},
            "entropy": {kind: encode(x) for kind, x in entropy.items()},
        },
        "by_hand": [
            _by_hand(kind, keys, d_model, rand)
            for kind, keys in (("encoder", S), ("decoder", T), ("cross", S))
        ],
        "temperatures": TEMPERATURES,
        "steps": [_step(target[i], i, logits[i]) for i in range(T)],
        "tree": _tree(),
        "alignment": {
            "layer": 1, "heads": [[1, 2]], "shifted": True,
            "words": {"source": source[:-1], "target": target[:-1]},
            "links": [[t, t, 0.5 + 0.1 * t] for t in range(min(S, T, 5) - 1)],
            "soft": encode(attention["cross"][0, 1]),
        },
    }  # fmt: skip


def _by_hand(kind: str, keys: int, d_model: int, rand: Callable[..., Tensor]) -> dict[str, Any]:
    sizes = {
        "x": [d_model], "q": [16], "K": [keys, 16], "scores": [keys], "scaled": [keys],
        "mask": [keys], "softmax": [keys], "unscaled_softmax": [keys], "V": [keys, 16],
        "context": [16], "heads_concatenated": [d_model], "after_W_O": [d_model],
        "add_norm": [d_model], "feed_forward_input": [d_model],
        "feed_forward_inner": [4 * d_model], "feed_forward": [d_model],
        "feed_forward_add_norm": [d_model],
    }  # fmt: skip
    values = {name: rand(*size) for name, size in sizes.items()}
    values["scores"] = values["K"] @ values["q"]
    values["scaled"] = values["scores"] / 4
    values["mask"] = torch.arange(keys) < (2 if kind == "decoder" else keys)
    for name, of in (("softmax", "scaled"), ("unscaled_softmax", "scores")):
        values[name] = values[of].masked_fill(~values["mask"], -math.inf).softmax(0)
    values["feed_forward_inner"] = values["feed_forward_inner"].relu()
    records = {
        name: {
            "shape": sizes[name],
            "equation": f"{name} K^T  (equation 1)",
            "values": encode(x.float()),
        }
        for name, x in values.items()
    }
    return {"kind": kind, "layer": 1, "head": 2, "step": 2, **records}


def _step(piece: str, rank: int, logits: Tensor) -> dict[str, Any]:
    """The last step's piece is the 30th, so not among those shown."""
    top, ids = logits.topk(20)
    token = int(logits.topk(30).indices[29 if piece == "</s>" else rank])
    others = logits.clone()
    others[ids] = -math.inf
    names = [f"▁candidate{i}" if i != token else piece for i in ids.tolist()]
    probs = logits.softmax(0)[ids].tolist()
    return {
        "piece": piece, "log_prob": float(logits.log_softmax(0)[token]),
        "rank": int((logits > logits[token]).sum()) + 1,
        "top": [list(row) for row in zip(names, top.tolist(), probs, strict=True)],
        "rest": 1 - sum(probs),
        "rest_logsumexp": [float((others / t).logsumexp(0)) for t in TEMPERATURES],
        "logits": logits.tolist(),  # for the test, not for the page
    }  # fmt: skip


def _tree() -> dict[str, Any]:
    rows = [
        (0, None, 0, "<s>", 0.0, 0.0, "alive", ""),
        (1, 0, 1, "▁Wo", -0.25, -0.25, "alive", ""),
        (2, 0, 1, "▁Was", -3.0, -3.0, "pruned", "it is not among the 2 best that go on"),
        (3, 1, 2, "</s>", -1.0, -1.25, "finished", ""),
        (4, 1, 2, "▁le", -2.0, -2.25, "alive", ""),
    ]
    names = ("id", "parent", "step", "piece", "log_prob", "total", "state", "why")
    nodes = [dict(zip(names, row, strict=True), token=5, penalty=None, score=None) for row in rows]
    nodes[3].update(penalty=1.25, score=-1.0)
    return {
        "options": {"beam_size": 2, "alpha": 0.6, "n_best": 1},
        "nodes": nodes,
        "n_best": [3],
        "texts": ["Wo"],
        "greedy": {"pieces": ["▁Wo", "▁le", "</s>"], "log_probs": [-0.25, -2.0, -0.5],
                   "text": "Wo le", "score": -1.375, "log_prob": -2.75},
    }  # fmt: skip


@pytest.fixture
def open_report(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens the page of a report as a file, or as if a server had sent it from ``address``.

    Every other request fails the test, and so does each error and each line on the console.
    """
    contexts, wrong = [], []

    def open_page(*reports: dict[str, Any], address: str | None = None, **settings: object) -> Page:
        file = tmp_path / "page.html"
        write_page(reports, file)
        address = address or file.as_uri()
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **settings})
        contexts.append(context)

        def on_request(route: Route) -> None:
            if route.request.url == address:
                route.fulfill(path=file, content_type="text/html; charset=utf-8")
            else:
                wrong.append(route.request.url)
                route.abort()

        context.route("**/*", on_request)
        context.set_offline(True)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong, wrong


def go_to(page: Page, view: str) -> None:
    page.locator(f"nav a[href='#{view}']").click()
    page.locator(f"#{view}[data-drawn]").wait_for()


def number(stored: object, *index: int) -> float:
    return float(decode(stored)[index])


def brief(x: float) -> str:
    """As the page writes a number below 10."""
    return f"{x:.3f}".replace("-", "−")
