"""The rows of re-ranking runs: a folder for each, what they are of, and all of them in one file."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from factorank.data.ratings import Ratings
from factorank.errors import FactorankError
from factorank.experiments.record import write_results
from factorank.experiments.rerank_leads import USERS, leads
from factorank.files import write_json, write_whole

MEASURED = "measured.json"
"""The file of a run that says what its rows are of."""


def write_rows(
    folder: Path, facts: dict[str, Any], rows: list[dict[str, Any]], scored: dict[str, Tensor]
) -> None:
    """Write the rows of a run, and first what they are of, and what each user got."""
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / MEASURED, _plain(facts))
    write_whole(folder / USERS, save(scored))
    write_results(folder / "rows.jsonl", rows)


def measured_already(folder: Path, facts: dict[str, Any]) -> bool:
    """Whether the rows are there; refused if they are of something else."""
    if not (folder / "rows.jsonl").exists():
        return False
    if (folder / MEASURED).exists():
        theirs, ours = json.loads((folder / MEASURED).read_bytes()), _plain(facts)
        if differing := [name for name in ours if theirs.get(name) != ours[name]]:
            raise FactorankError(
                f"{folder} holds rows of another {', '.join(differing)}; choose another folder or label, or"
                " remove its rows.jsonl to measure again"
            )
    return True


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts, some of them dataclasses, as JSON gives them back."""
    read: dict[str, Any] = json.loads(json.dumps(facts, default=asdict))
    return read


def fingerprint(ratings: Ratings) -> str:
    """A digest of who rated what how."""
    digest = hashlib.sha256()
    for array in (ratings.starts, ratings.items, ratings.values):
        digest.update(array.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def gather(out: str | Path) -> list[dict[str, Any]]:
    """The rows of all evaluated runs of a folder, written to one file."""
    out = Path(out)
    gathered = []
    for kind, target in (("rows", "rerank"), ("calibration", "rerank-calibration")):
        files = sorted(out.glob(f"*/{kind}.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines() if line]
        if rows:
            write_results(out / f"{target}.jsonl", rows)
        gathered.append(rows)
    if found := leads(out):
        write_results(out / "rerank-leads.jsonl", found)
    return gathered[0]
