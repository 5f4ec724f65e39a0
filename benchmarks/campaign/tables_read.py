"""The tables, texts and pictures that the library reads: how a whole one is made, and what is read of it."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import factorank as fr
from benchmarks.campaign import facts
from benchmarks.campaign import ingredients as made
from benchmarks.campaign.damage import Kind
from factorank.data.picture_sets import picture_folder
from factorank.data.pictures import read_picture
from factorank.data.words import read_words

Read = Callable[[Path], Any]
RATINGS = "1,10,5,100\n1,20,3,101\n2,10,4,102\n2,30,1,103\n"
HEAD = "userId,movieId,rating,timestamp\n"
DOUBLE = RATINGS.replace(",", "::")
MOVIES_DAT = "10::Heat (1995)::Action|Crime\n20::Babe (1995)::Comedy\n30::Antz (1998)::Comedy\n"
MOVIES_CSV = (
    'movieId,title,genres\n10,"Heat, The (1995)",Action|Crime\n20,Babe (1995),Comedy\n30,Antz,Comedy\n'
)
TITLES = "item,title,price\n10,Heat,3\n20,Babe,4.5\n"
CLICKS = "user,item,clicks\n1,10,2\n1,20,0\n2,10,1\n"
JOKES = ("2," + "99," * 10 + "1.5,-3\n") * 3
MATRIX = np.array([[1, 99, -3], [2.5, 4, 99]], dtype=np.float32)
BATTLES = "model_a,model_b,winner,judge\nx,y,model_a,j1\ny,z,model_b,j2\nz,x,tie,j1\nx,y,model_b,j2\n"
BOARDS = {
    "battles": BATTLES,
    "scores": "item,task,score\na,t1,0.5\na,t2,0.25\nb,t1,1\nb,t2,0.75\n",
    "wins": "model,x,y,z\nx,0,3,1\ny,2,0,4\nz,1,1,0\n",
    "pairs": "model_a,model_b,wins_a,wins_b,ties\nx,y,3,2,1\ny,z,1,4,0\n",
    "tasks": "model,t1,t2\na,0.5,0.25\nb,1,0.75\n",
}
LAYOUTS = {
    "ranks": "count,ann,bob,cat\n3,1,2,3\n1,2,1,\n",
    "orders": "first,second,third\nann,bob,cat\nbob,cat,ann\n",
    "scores": "ann,bob,cat\n0.5,0.25,1\n3,2,1\n",
    "long": "voter,item,rank\n1,ann,1\n1,bob,2\n2,bob,1\n2,ann,2\n",
    "pairs": "winner,loser,count\nann,bob,3\nbob,cat,2\n",
}
PICTURES = (
    *(".png", ".jpg", ".mpo", ".webp", ".gif", ".bmp", ".tif", ".ppm", ".jp2", ".avif"),
    *(".ico", ".icns", ".tga", ".pcx", ".sgi", ".dds", ".qoi"),
)


def _text(name: str, content: dict[str, str], read: Read) -> Kind:
    """A kind of text, in files of these names."""
    return Kind(name, lambda p: [(p / file).write_text(text) for file, text in content.items()], read, False)


def _table(name: str, file: str, text: str, read: Read) -> Kind:
    """A kind of table that is no text."""
    return Kind(name, lambda p: _frame(text, Path(file).suffix, p / file), read, False)


def _ratings(file: str = "", **options: Any) -> Read:
    def read(path: Path) -> Any:
        given = {name: path / value if name == "titles" else value for name, value in options.items()}
        ratings = fr.load_ratings(path / file, **given)
        features = None if ratings.features is None else str(ratings.features.tolist())
        times = None if ratings.times is None else ratings.times.tolist()
        return *facts.users(ratings), ratings.titles, ratings.feature_names, features, times

    return read


def _votes(file: str, layout: str | None = None) -> Read:
    def read(path: Path) -> Any:
        votes = fr.read_rankings(path / file, layout)
        return votes.items, votes.ranks.tolist(), votes.counts.tolist()

    return read


def _written(suffix: str) -> Kind:
    def write(path: Path) -> None:
        fr.write_rankings(made.rankings(), path / f"votes{suffix}")

    return Kind(f"votes {suffix}", write, _votes(f"votes{suffix}"), False)


def _board(file: str) -> Read:
    from factorank.leaderboard import read_board

    return lambda path: repr(read_board(path / file))


def _frame(text: str, suffix: str, path: Path) -> None:
    """A table in CSV as another kind of file."""
    import polars

    frame = polars.read_csv(io.StringIO(text))
    if suffix == ".parquet":
        frame.write_parquet(path)
    elif suffix == ".json":
        frame.write_json(path)
    else:
        frame.write_ndjson(path)


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path / "ml-1m.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ml-1m/ratings.dat", DOUBLE)
        archive.writestr("ml-1m/movies.dat", MOVIES_DAT)


def _sheet(path: Path) -> None:
    """A sheet of numbers in Excel's format."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    linked = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    packed = "http://schemas.openxmlformats.org/package/2006"
    cells = "".join(f"<c><v>{value}</v></c>" for value in (2, *[99] * 10, 1.5, -3))
    lines = f"<row>{cells}</row>" * 3
    related = f'<Relationships xmlns="{packed}/relationships">%s</Relationships>'
    sheets = '<sheets><sheet name="a" sheetId="1" r:id="r1"/></sheets>'
    link = f'<Relationship Id="r1" Type="{linked}/%s" Target="%s"/>'
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    part = f'<Override PartName="/%s" ContentType="{kind}.%s+xml"/>'
    parts = part % ("xl/workbook.xml", "sheet.main") + part % ("xl/worksheets/sheet1.xml", "worksheet")
    files = {
        "[Content_Types].xml": f'<Types xmlns="{packed}/content-types">{parts}</Types>',
        "_rels/.rels": related % (link % ("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{linked}">{sheets}</workbook>',
        "xl/_rels/workbook.xml.rels": related % (link % ("worksheet", "worksheets/sheet1.xml")),
        "xl/worksheets/sheet1.xml": f"<worksheet {main}><sheetData>{lines}</sheetData></worksheet>",
    }
    with zipfile.ZipFile(path / "jester.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def _picture(name: str) -> Kind:
    def make(path: Path) -> None:
        from PIL import Image

        Image.fromarray(made.pixels()).save(path / f"picture{name}")

    return Kind(f"picture {name}", make, lambda p: _pixels(p / f"picture{name}"), False)


def _pixels(path: Path) -> Any:
    picture = read_picture(path)
    return picture.shape, picture.tobytes()


def _pictures(path: Path) -> None:
    from PIL import Image

    for index, suffix in enumerate((".png", ".jpg", ".bmp", ".webp")):
        Image.fromarray(made.pixels(20, 20, index)).save(path / f"{index}{suffix}")


def _pieces(path: Path) -> Any:
    from factorank.commands._jigsaw_solve import read_pieces

    return read_pieces(path).tolist()


def _titled(path: Path) -> Any:
    (path / "r.csv").write_text(HEAD + RATINGS)
    return _ratings("r.csv", titles="t.parquet")(path)


TABLES = [
    *(_written(suffix) for suffix in (".soc", ".soi", ".toc", ".toi", ".tsv", ".parquet")),
    *(_text(f"votes of {name}", {"v.csv": text}, _votes("v.csv", name)) for name, text in LAYOUTS.items()),
    _text("votes of any layout", {"v.txt": LAYOUTS["ranks"].replace(",", ";")}, _votes("v.txt")),
    _text("ratings table", {"ratings.csv": HEAD + RATINGS}, _ratings("ratings.csv")),
    _text("choices", {"clicks.csv": CLICKS}, _ratings(implicit=True)),
    _text("ratings u.data", {"u.data": RATINGS.replace(",", "\t")}, _ratings()),
    _table("ratings .parquet", "ratings.parquet", HEAD + RATINGS, _ratings()),
    Kind("ratings zip", _zip, _ratings("ml-1m.zip"), False),
    _text("MovieLens .dat", {"ratings.dat": DOUBLE, "movies.dat": MOVIES_DAT}, _ratings()),
    _text("MovieLens .csv", {"ratings.csv": HEAD + RATINGS, "movies.csv": MOVIES_CSV}, _ratings()),
    _text("titles", {"r.csv": HEAD + RATINGS, "t.csv": TITLES}, _ratings("r.csv", titles="t.csv")),
    _table("titles .parquet", "t.parquet", TITLES, _titled),
    Kind("Jester .npz", lambda p: np.savez(p / "r.npz", ratings=MATRIX), _ratings("r.npz"), False),
    Kind("Jester .npy", lambda p: np.save(p / "r.npy", MATRIX), _ratings("r.npy"), False),
    _text("Jester text", {"jester.csv": JOKES}, _ratings()),
    Kind("Jester .xlsx", _sheet, _ratings("jester.xlsx"), False),
    _text(
        "user", {"user.csv": "item,rating\n10,3\n20,4\n"}, lambda p: repr(fr.rerank.read_user(p / "user.csv"))
    ),
    _text("words", {"words": "tea\neat\nnet\n"}, lambda p: read_words(p / "words")),
    *(_text(f"board of {name}", {"board.csv": text}, _board("board.csv")) for name, text in BOARDS.items()),
    *(
        _table(f"board {suffix}", f"board{suffix}", BATTLES, _board(f"board{suffix}"))
        for suffix in (".json", ".jsonl", ".parquet")
    ),
    *(_picture(name) for name in PICTURES),
    Kind("folder of pictures", _pictures, lambda p: picture_folder(p, side=8).train.tolist(), False),
    Kind("folder of pieces", _pictures, _pieces, False),
]
