"""Upload a folder of files to the hub, and get one from it, with ``huggingface_hub``."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from factorank.errors import ModelError

FILES = ("config.json", "model.safetensors")
"""What is read of a model on the hub; nothing else is fetched."""


def push(
    save: Callable[[Path], None],
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    commit_message: str = "Upload a factorank model",
) -> str:
    """Upload what ``save(folder)`` writes to ``user/name``, and return the address of the commit."""

    class Upload(_library().ModelHubMixin):  # type: ignore[misc]
        def _save_pretrained(self, save_directory: Path) -> None:
            save(save_directory)

    address: str = Upload().push_to_hub(repo_id, private=private, token=token, commit_message=commit_message)
    return address


def fetched(folder: str | os.PathLike[str], revision: str | None = None) -> Path:
    """The folder of a model: itself, or where the files of ``user/name`` on the hub were put on this disk."""
    path = Path(folder)
    is_name = re.fullmatch(r"[\w.-]+/[\w.-]+", str(folder)) is not None
    if path.exists() or not is_name:
        if revision is not None:
            raise ModelError(
                f"{{parameter}} is that of a model on the hub; {folder} is none", parameter="revision"
            )
        return path
    try:
        library = _library()
    except ModelError as error:
        raise ModelError(f"there is no folder {folder}; if it is a model on the hub: {error}") from None
    try:
        return Path(library.snapshot_download(str(folder), revision=revision, allow_patterns=list(FILES)))
    except Exception as error:  # of the hub, of the network, or of the disk
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"there is no folder {folder}, and the hub did not give a model of that name: {first}"
        ) from error


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ModelError("the hub needs huggingface_hub: pip install 'factorank[hub]'") from None
    return huggingface_hub
