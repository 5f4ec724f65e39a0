"""``factorank jigsaw solve``: pieces in files, or a picture that is cut and scrambled."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from factorank.errors import FactorankError

if TYPE_CHECKING:
    from factorank.jigsaw import JigsawSetting, PhotographModel
    from factorank.models import PermutationModel

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".pdf")


@dataclass(kw_only=True)
class JigsawSolve:
    """Solve a puzzle and draw it: of a picture, which is cut and scrambled, or of pieces in a folder."""

    picture: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="PICTURE")] = None
    """Any picture. It is turned as its camera says."""
    grid: str | None = None
    """Pieces in a row, such as 8, or rows and columns, such as 6x9; 4 unless given, or what the model in
    --weights solves."""
    pieces: Path | None = None
    """A folder with a picture of each piece, instead of PICTURE. Their names do not matter. Where there are
    fewer than the grid has slots, some slots stay empty."""
    turned: tyro.conf.FlagCreatePairsOff[bool] = False
    """Pieces may be turned by quarter turns. They are square; those of PICTURE are turned at random."""
    search: bool = True
    """Go on from the answer of one evaluation to the board that agrees best with all borders."""
    weights: Path | None = None
    """The folder of a run, or of a model for photographs; the shipped model for photographs unless given."""
    nfe: int | None = None
    """For a run trained with --masks any: network evaluations."""
    seed: int = 0
    """Decides how the pieces are scrambled."""
    out: Path | None = None
    """The picture to write, by its suffix .png, .jpg, .webp or .pdf; PICTURE-solved.png here unless given."""
    steps: Path | None = None
    """Also write an animation, a .gif, that reveals the solution, the most certain pieces first."""

    def run(self) -> int:
        from factorank.data.pictures import read_picture
        from factorank.figures import solution_picture, steps_animation
        from factorank.jigsaw import solve

        if (self.picture is None) == (self.pieces is None):
            raise FactorankError("give a picture, or the --pieces of a puzzle in a folder")
        source = self.picture or self.pieces
        assert source is not None
        grid = (
            parse_grid(self.grid) if self.grid is not None else None if self.weights is not None else (4, 4)
        )
        if not 0 <= self.seed < 2**63:
            raise FactorankError(f"--seed is from 0 to 2**63 - 1, not {self.seed}")
        if not source.exists():
            raise FactorankError(f"there is no {'picture' if self.picture else 'folder'} {source}")
        name = source.stem if self.picture else source.resolve().name
        out = self.out if self.out is not None else Path(f"{name}-solved.png")
        check_out("--out", out, PICTURES, source)
        if self.steps is not None:
            check_out("--steps", self.steps, (".gif",), source)
        # Errors of pictures come before those of the model.
        puzzle: Any = read_pieces(source) if self.picture is None else read_picture(source)
        model = self._model(grid)
        try:
            answer = solve(
                puzzle,
                grid,
                turned=self.turned,
                search=self.search,
                model=model,
                nfe=self.nfe,
                seed=self.seed,
            )
        except FactorankError as error:
            if error.parameter is None:
                raise FactorankError(f"{source}: {error}") from None
            raise
        rows, columns = answer.grid
        solution_picture(answer, out)
        doubts = f", {len(answer.doubtful)} doubtful" if answer.doubtful else ""
        print(f"{source}, {rows}×{columns}: {answer.summary}{doubts}\ndrawn to {out}")
        if self.steps is not None:
            steps_animation(answer, self.steps)
            print(f"revealed step by step in {self.steps}")
        return 0

    def _model(self, grid: tuple[int, int] | None) -> "PhotographModel | PermutationModel":
        from factorank.jigsaw import PhotographModel, load, setting_of

        if self.weights is None or PhotographModel.is_in(self.weights):
            return PhotographModel.load(self.weights)
        if grid is not None and grid[0] != grid[1]:
            raise FactorankError(f"the model in {self.weights} solves square puzzles, not --grid {self.grid}")
        model = load(None if grid is None else grid[0], self.weights)
        if self.nfe is not None:
            check_nfes((self.nfe,), setting_of(model))
        return model


def parse_grid(text: str) -> tuple[int, int]:
    """Rows and columns.

    >>> parse_grid("8"), parse_grid("6x9"), parse_grid("6×9")
    ((8, 8), (6, 9), (6, 9))
    """
    match = re.fullmatch(r"(\d+)(?:[x×](\d+))?", text)
    if match is None:
        raise FactorankError(f"--grid is a number such as 8, or rows and columns such as 6x9, not {text}")
    rows, columns = int(match[1]), int(match[2] or match[1])
    if rows * columns < 2 or (match[2] is None and rows < 2):
        raise FactorankError(f"a puzzle has at least 2 pieces in a row, not --grid {text}")
    return rows, columns


def read_pieces(folder: Path) -> Any:
    """The pictures of a folder as pieces, uint8 ``(n, height, width, 3)``; all have one size."""
    import numpy as np

    from factorank.data.pictures import picture_files, read_picture

    paths = picture_files(folder)
    pieces = [read_picture(path) for path in paths]
    sizes = [piece.shape[:2] for piece in pieces]
    usual = max(set(sizes), key=sizes.count)
    if odd := [(path, size) for path, size in zip(paths, sizes, strict=True) if size != usual]:
        path, (height, width) = odd[0]
        raise FactorankError(
            f"{path}: a piece of {width}×{height} pixels, but most have {usual[1]}×{usual[0]}; all pieces"
            " have one size"
        )
    return np.stack(pieces)


def check_out(option: str, out: Path, suffixes: tuple[str, ...], source: Path) -> None:
    """Refuse a place for a picture where none can be written, or the source itself is."""
    if out.is_dir():
        raise FactorankError(f"{option} {out} is a folder; give the name of a picture")
    if not out.parent.is_dir():
        raise FactorankError(f"there is no folder {out.parent} for {option} {out}")
    if out.suffix.lower() not in suffixes:
        listed = ", ".join(suffix for suffix in suffixes if suffix != ".jpeg")
        raise FactorankError(f"the picture is written as {listed}, not {option} {out}")
    if out.exists() and out.samefile(source):
        raise FactorankError(
            f"{option} {out} is the picture itself, which would be lost; choose another name"
        )


def check_nfes(nfes: tuple[int, ...], chosen: "JigsawSetting") -> None:
    """Refuse numbers of evaluations before anything is trained."""
    if not nfes:
        raise FactorankError("--nfe takes one number of evaluations or more")
    if outside := [nfe for nfe in nfes if not 1 <= nfe <= chosen.n]:
        raise FactorankError(f"--nfe is from 1 to {chosen.n} for this grid, not {outside[0]}")
    if not set(nfes) - {1}:
        return
    if chosen.method != "factorank" or chosen.objective != "masked":
        raise FactorankError("--nfe is for masked models; this one takes as many evaluations as it needs")
    if chosen.masks_used == "all":
        raise FactorankError("others than --nfe 1 are for those trained with --masks any; this was not")
