"""Draws docs/inside/*.png and writes docs/inside.md: the paper, seen in one translation.

Every number of the page is computed here, from the bundled model and from the published examples
in tests/golden/. The words are in inside_template.md. Checkpoints of one training run, the earliest
first, add the section about training:

    python scripts/draw_inside.py RUN/checkpoints/step-00000500.ckpt RUN/checkpoints/last.ckpt
"""

import argparse
import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mt.utils import console

with console.exit_at_interrupt():
    import torch
    from torch import Tensor

    from mt.inference.translator import Translator
    from mt.inspection.arrays import decode
    from mt.inspection.drawing import number, percent
    from mt.inspection.report import inspect
    from mt.model import reference
    from mt.utils.atomic import atomic_write

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = Path(__file__).parent / "inside_template.md"
EXAMPLES = ROOT / "tests" / "golden" / "worked_examples.json"
SENTENCE = "Where do you live?"

Report = dict[str, Any]


def code(text: str) -> str:
    return f"`{text}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def values_of(report: Report) -> dict[str, str]:
    """The placeholders of the template and what replaces them."""
    model, source, target = report["model"], report["source"], report["target"]
    first = source["pieces"][0]
    near, cosine = report["embedding"]["neighbours"][first][0]
    products = decode(report["positions"]["dot_products"])
    return {
        "source": source["text"],
        "target": target["text"],
        "pieces_table": table(
            ["", *map(code, source["pieces"])], [["id", *map(str, source["ids"])]]
        ),
        **{name: str(model[name]) for name in ("N", "d_model", "d_ff", "h", "d_k")},
        **{name: f"{model[name]:,}" for name in ("vocab_size", "parameters")},
        "scale": f"{report['embedding']['scale']:g}",
        "first_piece": first,
        "near_piece": near,
        "near_cosine": number(cosine),
        **{f"dot_{n}": number(products[0, n], 1) for n in (0, 1, 10)},
        "S": str(len(source["pieces"])),
        "most_entropy": number(math.log(len(source["pieces"]))),
        "sqrt_d_k": f"{model['d_k'] ** 0.5:g}",
        **_heads(report),
        **_by_hand(report),
        **_steps(report),
        **_search(report),
        **_alignment(report),
        **examples(json.loads(EXAMPLES.read_text("utf-8"))),
    }


def _heads(report: Report) -> dict[str, str]:
    """The heads of cross-attention with the least and the largest entropy."""
    entropy = decode(report["attention"]["entropy"]["cross"])
    places = {"focused": int(entropy.argmin()), "broad": int(entropy.argmax())}
    values = {}
    for name, place in places.items():
        layer, head = divmod(place, entropy.shape[1])
        values |= {f"{name}_layer": str(layer + 1), f"{name}_head": str(head + 1)}
        values[f"{name}_entropy"] = number(entropy.flat[place])
    return values


def _by_hand(report: Report) -> dict[str, str]:
    [record] = [record for record in report["by_hand"] if record["kind"] == "cross"]
    columns = {
        name: decode(record[name]["values"])
        for name in ("scores", "scaled", "softmax", "unscaled_softmax")
    }
    rows = [
        [code(piece), *(number(column[i], 3) for column in columns.values())]
        for i, piece in enumerate(report["source"]["pieces"])
    ]
    inner = decode(record["feed_forward_inner"]["values"])
    head = ["key of", "q · k", "÷ √d_k", "softmax", "softmax without scaling"]
    step = record["step"] - 1
    return {
        "asks": report["target"]["inputs"][step],
        "comes": report["target"]["pieces"][step],
        "hand_layer": str(record["layer"]),
        "hand_head": str(record["head"]),
        "hand_table": table(head, rows),
        "scaled_largest": number(columns["softmax"].max(), 3),
        "unscaled_largest": number(columns["unscaled_softmax"].max(), 3),
        # what is smaller is stored as 0 (mt.inspection.arrays)
        "inner_active": str(int((inner > inner.max() / 2**16).sum())),
    }


def _steps(report: Report) -> dict[str, str]:
    rows, unsure = [], max(report["steps"], key=lambda step: 1 - step["top"][0][2])
    for i, step in enumerate(report["steps"], start=1):
        others = [(piece, p) for piece, _, p in step["top"] if piece != step["piece"]]
        other, p = others[0]
        chosen = percent(math.exp(step["log_prob"]))
        rows.append(
            [str(i), code(step["piece"]), chosen, str(step["rank"]), code(other), percent(p)]
        )
    head = ["step", "piece", "probability", "rank", "best other piece", "probability"]
    logits = torch.tensor([logit for _, logit, _ in unsure["top"]], dtype=torch.float64)
    likeliest = {}
    for name, at in (("cool", 0.5), ("plain", 1.0), ("hot", 2.0)):
        rest = torch.tensor([unsure["rest_logsumexp"][report["temperatures"].index(at)]])
        total = torch.cat([logits / at, rest]).logsumexp(dim=0)
        likeliest[name] = percent(float((logits[0] / at - total).exp()))
    return {
        "steps_table": table(head, rows),
        "log_prob": number(report["target"]["log_prob"], 3),
        **likeliest,
    }


def _search(report: Report) -> dict[str, str]:
    tree = report["tree"]
    finished = [node for node in tree["nodes"] if node["state"] == "finished"]
    finished.sort(key=lambda node: -node["score"])
    rows = [
        [
            code(_pieces(tree["nodes"], node)),
            *(number(node[n], 3) for n in ("total", "penalty", "score")),
        ]
        for node in finished
    ]
    options, greedy = tree["options"], tree["greedy"]
    return {
        "beam_size": str(options["beam_size"]),
        "alpha": f"{options['alpha']:g}",
        "finished_table": table(["finished", "log P", "lp", "score"], rows),
        "num_nodes": str(len(tree["nodes"]) - 1),
        "num_pruned": str(sum(node["state"] == "pruned" for node in tree["nodes"])),
        "greedy": greedy["text"],
        "greedy_log_prob": number(greedy["log_prob"], 3),
    }


def _pieces(nodes: Sequence[Report], node: Report) -> str:
    pieces: list[str] = []
    while node["parent"] is not None:
        pieces.insert(0, node["piece"])
        node = nodes[node["parent"]]
    return " ".join(pieces)


def _alignment(report: Report) -> dict[str, str]:
    alignment = report["alignment"]
    words = alignment["words"]
    rows = [
        [words["source"][s], words["target"][t], number(weight)]
        for s, t, weight in alignment["links"]
    ]
    heads = " and ".join(f"layer {layer}, head {head}" for layer, head in alignment["heads"])
    method = (
        "The weights of a piece are read one step after the piece is predicted, when the decoder "
        f"reads it (Shift-Att, Chen et al. 2020). They come from {heads}, chosen without any gold "
        "alignment."
        if alignment["shifted"]
        else "In this model no head follows words reliably, so they are the mean of all heads."
    )
    return {
        "alignment_method": method,
        "alignment_table": table(["source", "translation", "weight"], rows),
    }


# The published examples


def recomputed(examples: Report) -> dict[str, dict[str, Tensor]]:
    """Example -> quantity -> the numbers of ``mt.model.reference``, shaped as published."""
    d3 = examples["attention_d3"]
    x, W_Q, W_K, W_V = (torch.tensor(d3[name]) for name in ("x", "W_Q", "W_K", "W_V"))
    Q, K, V = x @ W_Q.T, x @ W_K.T, x @ W_V.T
    everything = torch.ones(3, 3, dtype=torch.bool)
    computed = {
        "attention_d3": {
            "Q": Q,
            "K": K,
            "V": V,
            "scores": Q @ K.T / 3**0.5,
            "weights": reference.attention(Q, K, torch.eye(3), everything),
            "output": reference.attention(Q, K, V, everything),
        }
    }
    for name in ("masked_softmax_d3", "masked_softmax_equal_scores"):
        scores, V = (torch.tensor(examples[name][n], dtype=torch.float32) for n in ("scores", "V"))
        n = len(scores)
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        queries, keys = scores * n**0.5, torch.eye(n)  # whose scaled scores are the published ones
        computed[name] = {
            "weights": reference.attention(queries, keys, torch.eye(n), causal),
            "output": reference.attention(queries, keys, V, causal),
        }
    for name in ("positional_encoding_d4", "positional_encoding_d64"):
        example = examples[name]
        rows = reference.positional_encoding(len(example["rows"]), example["d_model"])
        computed[name] = {"rows": rows[:, example.get("columns", list(range(rows.shape[1])))]}
    example = examples["embedding_plus_position_d4"]
    embedding = torch.tensor(example["embedding"])
    positions = reference.positional_encoding(*embedding.shape)
    computed["embedding_plus_position_d4"] = {
        "sum": embedding * example["d_model"] ** 0.5 + positions,
        "plain_sum": embedding + positions,
    }
    return computed


def differences(examples: Report) -> dict[str, float]:
    """Example -> the largest difference between a published number and ours."""
    return {
        name: max(
            float((ours - torch.tensor(examples[name][quantity])).abs().max())
            for quantity, ours in quantities.items()
        )
        for name, quantities in recomputed(examples).items()
    }


def examples(published: Report) -> dict[str, str]:
    computed = recomputed(published)

    def vectors(rows: Iterable[Iterable[float]], digits: int) -> list[str]:
        return [f"({', '.join(number(x, digits) for x in row)})" for row in rows]

    def pairs(name: str, quantity: str, digits: int) -> list[list[str]]:
        return [
            vectors(rows, digits)
            for rows in (published[name][quantity], computed[name][quantity].tolist())
        ]

    attention = [
        [quantity, token, theirs, ours]
        for quantity in ("Q", "K", "V", "scores", "weights", "output")
        for token, theirs, ours in zip(
            ("I", "love", "Transformer"), *pairs("attention_d3", quantity, 3), strict=True
        )
    ]
    positions = [
        [str(i), theirs, ours]
        for i, (theirs, ours) in enumerate(
            zip(*pairs("positional_encoding_d4", "rows", 6), strict=True)
        )
    ]
    rows = [
        [code(name), ", ".join(computed[name]), f"{published[name]['tolerance']:g}", f"{value:.0e}"]
        for name, value in differences(published).items()
    ]
    return {
        "attention_example": table(["", "token", "published", "computed"], attention),
        "position_example": table(["position", "published", "computed"], positions),
        "examples_table": table(["example", "numbers", "allowed", "largest difference"], rows),
    }


# The page


def training_section(reports: Sequence[Report]) -> str:
    """The section about training, for checkpoints of a run, the earliest first."""
    if not reports:
        return ""
    names = [Path(report["model"]["name"]).stem for report in reports]
    mean = [decode(report["attention"]["entropy"]["cross"]).mean() for report in reports]
    rows = [
        [code(name), number(report["target"]["log_prob"], 2), number(value)]
        for name, report, value in zip(names, reports, mean, strict=True)
    ]
    head = ["checkpoint", "log P of the translation", "mean entropy of cross-attention"]
    model = reports[0]["model"]
    return f"""
## Training seen (5.3)

`mt.inspect` takes `--model` several times. It then shows checkpoints side by side, and the learning
rate and the losses of their run. The checkpoints below are of one training with N = {model["N"]},
d_model = {model["d_model"]} and {model["vocab_size"]:,} pieces. All read the same translation.

{table(head, rows)}

![Learning rate, losses and validation BLEU of the run. The rates in its log lie on the curve of
equation 3.](inside/training.png)

![Cross-attention of each checkpoint, the mean of the heads, a row for each
layer.](inside/attention.png)

![The likeliest next pieces of each checkpoint at each step.](inside/next-piece.png)
"""


def render(report: Report, checkpoints: Sequence[Report] = ()) -> str:
    """The page. Raises KeyError for a placeholder of the template that has no value."""
    values = {**values_of(report), "training": training_section(checkpoints)}
    page = re.sub(r"{{(\w+)}}", lambda match: values[match[1]], TEMPLATE.read_text("utf-8"))
    return "\n\n".join(map(_wrapped, page.strip().split("\n\n"))) + "\n"


def _wrapped(block: str) -> str:
    """A paragraph in lines of at most 100 characters; other blocks as they are."""
    if re.match(r"[A-Z*!]", block):
        return textwrap.fill(block, 100, break_long_words=False, break_on_hyphens=False)
    return block.strip("\n")


def bundled_report() -> Report:
    return inspect(Translator.load(), SENTENCE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/inside.md and its pictures.")
    parser.add_argument("checkpoints", metavar="CHECKPOINT", nargs="*", help="of one training run")
    parser.add_argument("--docs", type=Path, metavar="FOLDER", default=ROOT / "docs")
    args = parser.parse_args()
    from mt.inspection import pictures  # needs matplotlib

    report = bundled_report()
    target = report["target"]["text"]
    reports = [inspect(Translator.load(path), SENTENCE, target) for path in args.checkpoints]
    folder = args.docs / "inside"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    pictures.write_pictures([report], folder)
    if len(reports) > 1:
        pictures.write_pictures(reports, folder)
    atomic_write(args.docs / "inside.md", render(report, reports))


if __name__ == "__main__":
    main()
