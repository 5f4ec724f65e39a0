"""The card of a model on the hub: what it is, how to load it, and what the record of its training says."""

import math
import os
from pathlib import Path
from typing import Any

from factorank.errors import ModelError
from factorank.files import read_history
from factorank.reading import expect, read_object


def model_card(
    repo_id: str, config: dict[str, Any], weights: int, run: str | os.PathLike[str] | None = None
) -> str:
    """The text of ``README.md`` for a model with that ``config()`` and so many weights.

    ``run`` is the folder that ``train`` wrote; the card says nothing of training that is not in it.
    """
    context = config["context"]
    encoder = "none" if context is None else f"`{context['name'] or context['class']}`"
    facts = {
        "items": config["n"],
        "code": f"{config['code']} of the {config['target']}",
        "objective": config["objective"],
        "width, depth, heads": f"{config['width']}, {config['depth']}, {config['heads']}",
        "weights": f"{weights:,}",
        "context encoder": encoder,
    }
    given = "context, " if context is not None else ""
    own = context is not None and context["name"] is None
    load = f'"{repo_id}"' + (", context=your_encoder" if own else "")
    parts = [
        "---\nlibrary_name: factorank\ntags:\n- factorank\n- permutations\n- rankings\n---",
        f"# {repo_id.rpartition('/')[2]}",
        "A law over the orders of some items, learnt with factorank.",
        "```python\nimport factorank as fr\n"
        f"model = fr.PermutationModel.from_pretrained({load})\n"
        f"orders = model.distribution({given}nfe=1).sample((10,))\n```",
        "## Model\n\n" + _table(facts),
        "## Training\n\n"
        + ("No record of the training came with the model." if run is None else _training(Path(run))),
    ]
    return "\n\n".join(parts) + "\n"


def _training(run: Path) -> str:
    """What ``training.json`` and ``metrics.jsonl`` of a run say."""
    path = run / "training.json"
    if not path.is_file():
        raise ModelError(f"{run} holds no run of train: training.json is missing", parameter="run")
    record = read_object(path, error=ModelError)
    data = expect(dict[str, Any], record.get("data") or {}, path, ModelError)
    rows = expect(int | None, data.get("rows"), path, ModelError)
    facts: dict[str, Any] = {
        "rows of data": "made by a function or a loader" if rows is None else f"{rows:,}"
    }
    names = (
        "optimizer",
        "lr",
        "schedule",
        "batch_size",
        "weight_decay",
        "ema",
        "precision",
        "seed",
        "device",
    )
    facts |= {name: record[name] for name in names if record.get(name) is not None}
    lines = []
    if (run / "metrics.jsonl").is_file():
        lines = read_history(run / "metrics.jsonl")
    if lines:
        facts["steps done"] = f"{lines[-1]['step']:,} in {lines[-1]['seconds']:.0f} s"
    losses = [line["bits"] for line in lines if line.get("bits") is not None]
    if losses:
        facts["last training loss"] = f"{losses[-1]:.4f} bits per order"
    scores = [(line["held_out"], line["step"]) for line in lines if line.get("held_out") is not None]
    if scores:
        nats, step = min(scores)
        facts["best held-out loss"] = f"{nats / math.log(2):.4f} bits per order, at step {step:,}"
    return _table(facts)


def _table(facts: dict[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())])
