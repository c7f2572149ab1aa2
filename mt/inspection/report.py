"""What a model does with one sentence, as a report for JSON.

Shapes: as in ``mt.inference.trace``. ``mt.inspection.arrays`` says how arrays are stored.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from mt.data.special_ids import BOS, EOS
from mt.inference.incremental import position_table
from mt.inference.inspection import Inspection
from mt.inference.translator import Translator
from mt.inspection.arrays import encode
from mt.inspection.by_hand import KINDS, by_hand
from mt.model.layers import ACTIVATIONS
from mt.utils.checks import check_int

FORMAT = "mt-inspection-1"
TOP = 20  # next tokens shown at each step
NEIGHBOURS = 8
POSITIONS = 64  # rows of the table of positions, at least
TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)


def inspect(
    translator: Translator,
    sentence: str,
    target: str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    step: int = 1,
    **settings: Any,
) -> dict[str, Any]:
    """The report of a sentence and its translation, or of a given ``target``.

    ``layer``, ``head`` and ``step``, all counted from 1, say what is computed by hand; None are
    the layer and the head that align words best. ``settings`` are those of ``Translator.inspect``.
    Raises ValueError that says what cannot be inspected or does not exist.
    """
    model = translator.models[0]
    # Before the search, which may be slow
    check_int("layer", 1 if layer is None else layer, 1, len(model.decoder))
    check_int("head", 1 if head is None else head, 1, model.h)
    inspection = translator.inspect(sentence, target, **settings)
    check_int("step", step, 1, len(inspection.target))
    best_layer, best_head = inspection.aligner.heads[0]
    layer = best_layer + 1 if layer is None else layer
    head = best_head + 1 if head is None else head
    report, source = _Report(translator, inspection), inspection.source
    return {
        "format": FORMAT,
        "model": report.model(),
        "source": {"text": sentence, "pieces": report.pieces(source), "ids": source},
        "target": report.target(target),
        "translation": report.translation(),
        "embedding": report.embedding(),
        "positions": report.positions(),
        "attention": report.attention(),
        "by_hand": [
            by_hand(report.trace, kind, layer - 1, head - 1, step - 1, report.activation)
            for kind in KINDS
        ],
        "temperatures": list(TEMPERATURES),
        "steps": report.steps(),
        "tree": report.tree(),
        "alignment": report.alignment(),
    }


def entropy(weights: Tensor) -> Tensor:
    """The entropy in nats of distributions over the last dimension."""
    return torch.special.entr(weights).sum(dim=-1)


class _Report:
    """The parts of a report."""

    def __init__(self, translator: Translator, inspection: Inspection) -> None:
        self.translator, self.inspection, self.trace = translator, inspection, inspection.trace
        self.network = translator.models[0]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self.translator.tokenizer.pieces(list(ids))

    def text(self, ids: Sequence[int]) -> str:
        return self.translator.texts([list(ids)])[0]

    @property
    def activation(self) -> str:
        """The name of the activation of the feed-forward networks."""
        activation = self.network.decoder[0].feed_forward.activation
        return next(name for name, function in ACTIVATIONS.items() if function is activation)

    def model(self) -> dict[str, Any]:
        network, (self_attention, _, feed_forward) = self.network, self.trace.decoder[0]
        config = (self.translator.configs or [{}])[0]
        return {
            "name": self.translator.name,
            "N": len(network.decoder),
            "d_model": network.d_model,
            "d_ff": feed_forward.inner.shape[1],
            "h": network.h,
            "d_k": self_attention.Q.shape[2],
            "activation": self.activation,
            "vocab_size": len(network.embedding),
            "parameters": network.parameters,
            "languages": config.get("languages"),
            "precision": network.precision,
        }

    def target(self, text: str | None) -> dict[str, Any]:
        inspection = self.inspection
        return {
            "text": self.text(inspection.target[:-1]) if text is None else text,
            "pieces": self.pieces(inspection.target),
            "ids": inspection.target,
            "inputs": self.pieces([BOS, *inspection.target[:-1]]),
            "given": text is not None,
            "score": inspection.hypothesis.score,
            "log_prob": inspection.hypothesis.log_prob,
        }

    def translation(self) -> dict[str, Any]:
        best = self.inspection.tree.hypotheses[0]
        return {"text": self.text(best.ids), "score": best.score, "log_prob": best.log_prob}

    def embedding(self) -> dict[str, Any]:
        return {
            "scale": self.network.d_model**0.5,
            "source": encode(self.trace.source_embedding),
            "target": encode(self.trace.target_embedding),
            "neighbours": self._neighbours(),
        }

    def _neighbours(self) -> dict[str, list[list[Any]]]:
        """The pieces whose embeddings have the largest cosine with that of each shown piece."""
        ids = list(dict.fromkeys([*self.inspection.source, BOS, *self.inspection.target]))
        rows = torch.nn.functional.normalize(self.network.embedding.float(), dim=1)
        cosines = rows[ids] @ rows.t()
        cosines[range(len(ids)), ids] = -math.inf  # a piece is not its own neighbour
        best, near = cosines.topk(min(NEIGHBOURS, len(rows) - 1))
        table = zip(self.pieces(ids), near.tolist(), best.tolist(), strict=True)
        return {
            piece: [
                [other, round(cosine, 4)]
                for other, cosine in zip(self.pieces(others), values, strict=True)
            ]
            for piece, others, values in table
        }

    def positions(self) -> dict[str, Any]:
        learned = self.network.learned
        n = max(len(self.inspection.source), len(self.inspection.target), POSITIONS)
        table = position_table(None, n, self.network.d_model)
        return {
            "table": encode(table),
            "dot_products": encode(table @ table.t()),
            "learned": None if learned is None else encode(learned[:n].float()),
        }

    def attention(self) -> dict[str, Any]:
        weights = self.trace.weights
        return {
            **{kind: encode(values) for kind, values in weights.items()},
            "entropy": {kind: encode(entropy(x).mean(dim=-1)) for kind, x in weights.items()},
        }

    def steps(self) -> list[dict[str, Any]]:
        target = self.inspection.target
        rows = zip(target, self.pieces(target), self.trace.logits.double(), strict=True)
        return [self._step(token, piece, logits) for token, piece, logits in rows]

    def _step(self, token: int, piece: str, logits: Tensor) -> dict[str, Any]:
        """The distribution of the next token, of logits [V]."""
        log_probs = logits.log_softmax(dim=0)
        best, ids = logits.topk(min(TOP, len(logits)))
        probs = log_probs[ids].exp().tolist()
        others = logits.clone()
        others[ids] = -math.inf
        at = torch.tensor(TEMPERATURES, dtype=torch.float64)[:, None]
        rest = (others / at).logsumexp(dim=1)
        return {
            "piece": piece,
            "log_prob": float(log_probs[token]),
            "rank": int((logits > logits[token]).sum()) + 1,
            "top": [
                list(row)
                for row in zip(self.pieces(ids.tolist()), best.tolist(), probs, strict=True)
            ],
            "rest": float((others - logits.logsumexp(dim=0)).exp().sum()),
            # log of the sum of exp(logit / temperature) over all other tokens
            "rest_logsumexp": None if len(ids) == len(logits) else rest.tolist(),
        }

    def tree(self) -> dict[str, Any]:
        inspection = self.inspection
        tokens = self.pieces([node.token for node in inspection.tree.nodes])
        nodes = [
            {"id": i, **asdict(node), "piece": piece}
            for i, (node, piece) in enumerate(zip(inspection.tree.nodes, tokens, strict=True))
        ]
        greedy = inspection.greedy
        return {
            "options": asdict(inspection.options),
            "nodes": nodes,
            "n_best": inspection.tree.n_best,
            "texts": [self.text(hypothesis.ids) for hypothesis in inspection.tree.hypotheses],
            "greedy": {
                "pieces": self.pieces([*greedy.ids, EOS]),
                "log_probs": list(greedy.token_log_probs),
                "text": self.text(greedy.ids),
                "score": greedy.score,
                "log_prob": greedy.log_prob,
            },
        }

    def alignment(self) -> dict[str, Any]:
        aligner, alignment = self.inspection.aligner, self.inspection.alignment
        return {
            "layer": aligner.heads[0][0] + 1,
            "heads": [[layer + 1, head + 1] for layer, head in aligner.heads],
            "shifted": aligner.shifted,
            "words": {"source": alignment.source, "target": alignment.target},
            "links": [[s, t, round(weight, 4)] for s, t, weight in alignment.links],
            "soft": encode(alignment.soft),
        }
