"""``factorank unscramble``: the words in scrambled letters."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from factorank.commands._options import Unmask, check_least, options_for
from factorank.commands._text import command_line, percent, table
from factorank.signals import exit_code

if TYPE_CHECKING:
    from factorank.models import PermutationModel

SHOWN = 12
"""How many words are printed at most, beside those of the list."""


@dataclass
class Unscramble:
    """Find the words in scrambled letters with a small trained model, or train it."""

    letters: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="LETTERS")] = ""
    """The letters, a to z, such as osftre; with --train they may be left out."""
    nfe: int | None = None
    """Network evaluations a word takes: 1 draws all places at once; as many as letters unless given."""
    unmask: Unmask | None = None
    """Which places of the code are revealed first; as suits the code of the model unless given."""
    samples: int = 1000
    """How many times to draw; the words drawn are shown."""
    show_path: bool = False
    """Show one draw being made: the code as it is revealed and the order it stands for at each step."""
    seed: int = 0
    """Decides the draws, and the training."""
    model: Path | None = None
    """The folder of a trained model or of its run; the one that is shipped unless given."""
    train: bool = False
    """Train the model anew and measure it: minutes on a GPU, which it uses where there is one, and many hours
    on a CPU."""
    steps: int | None = None
    """With --train: training steps, if other than the usual."""
    max_seconds: float | None = None
    """With --train and --steps: stop after this much time; the same command goes on with it. Without --steps:
    train for this long, however many steps that takes."""
    width: int | None = None
    """With --train: of the network, if other than the usual."""
    depth: int | None = None
    """With --train: blocks of the network, if other than the usual."""
    heads: int | None = None
    """With --train: attention heads of the network, if other than the usual; they divide the width."""
    dropout: float | None = None
    """With --train: the share of the hidden units left out in training, if other than the usual."""
    spelling_share: float | None = None
    """With --train and --spelling: the share of the words trained on that are of the larger list, if other
    than the usual."""
    words: Path | None = None
    """A list of words, one a line, instead of the one that is shipped."""
    spelling: Path | None = None
    """With --train: a larger list, such as /usr/share/dict/american-english-huge, to learn spelling from."""
    out: Path = Path("runs/unscramble")
    """With --train: the folder for the run, the model and unscramble.jsonl."""

    def run(self) -> int:
        from factorank import unscramble
        from factorank.data.words import SHIPPED, anagram_sets, read_words

        for name in ("samples", "steps", "width", "depth", "heads"):
            check_least(name, getattr(self, name))
        words = read_words(self.words or SHIPPED)
        if self.train:
            if self.letters:  # refuse them before minutes of training, not after
                unscramble.check_letters(self.letters, max(map(len, words)))
            model = self.fit(words)
            if model is None:
                return exit_code()
            if not self.letters:
                return 0
            print()
        else:
            model = unscramble.load(self.model or unscramble.WEIGHTS)
        letters = unscramble.check_letters(self.letters, model.n)
        self.show(model, letters, anagram_sets(words).get("".join(sorted(letters)), []))
        return 0

    def show(self, model: "PermutationModel", letters: str, real: list[str]) -> None:
        """Print the words, real ones marked, and the path if ``--show-path`` asks for it."""
        import torch

        from factorank.data.words import split_sets
        from factorank.experiments.unscramble import UnscrambleSize
        from factorank.unscramble import likely_words

        generator = torch.Generator().manual_seed(self.seed)
        options: dict[str, Any] = {"nfe": self.nfe, "unmask": self.unmask, "samples": self.samples}
        words = likely_words(letters, real, model=model, generator=generator, **options)
        shown = [item for i, item in enumerate(words) if i < SHOWN or item[0] in real]
        lines = [[word, f"{100 * share:.2f}", "*" if word in real else ""] for word, share in shown]
        print(table(["word", "%", ""], lines, "lrl"))
        if rest := len(words) - len(shown):
            print(f"  and {rest} more among {self.samples} draws")
        if real:
            total = sum(share for word, share in words if word in real)
            print(f"\n* in the word list, with {100 * total:.1f}% of the probability")
            if split_sets(["".join(sorted(letters))], UnscrambleSize().held_out)[1]:
                print("These letters were held out: the model has not been trained on their words.")
        else:
            print("\nThe word list has no word of just these letters: the model can only guess.")
        if self.show_path:
            self.print_path(model, letters, generator)

    def print_path(self, model: "PermutationModel", letters: str, generator: Any) -> None:
        """Print one draw, step by step."""
        from factorank.unscramble import law_of_letters, spell, usual_unmask

        law = law_of_letters(model, [letters], self.nfe, self.unmask or usual_unmask(model))
        words: dict[str, str] = {}  # an NFE beyond the number of letters has steps that change nothing
        for code, order in law.path(generator=generator):
            shown = " ".join("·" if v < 0 else str(v) for v in code[0, : len(letters)].tolist())
            words.setdefault(shown, spell(letters, order[0].tolist()))
        lines = [[step, *line] for step, line in enumerate(words.items())]
        print(f"\nOne draw: the {model.code.name} code as it is revealed, and the order it stands for\n")
        print(table(["nfe", "code", "order"], lines, "rll"))

    def fit(self, words: list[str]) -> "PermutationModel | None":
        """Train, measure and save; None if it was interrupted."""
        from factorank.data.words import dictionary_words
        from factorank.experiments import unscramble

        changes = options_for(self, unscramble.UnscrambleSize)
        size = replace(
            unscramble.UnscrambleSize(),
            **{name: value for name, value in changes.items() if value is not None},
        )
        if self.max_seconds is not None and self.steps is None:
            size = replace(size, steps=None)
        more = [] if self.spelling is None else dictionary_words(self.spelling)
        model, rows = unscramble.run(
            words, size, self.out, command_line(), more=more, seed=self.seed, max_seconds=self.max_seconds
        )
        if model is None:
            print(f"stopped; the same command goes on from {self.out}")
            return None
        print(scores_table(rows))
        print(f"\nwritten to {self.out}: model, unscramble.jsonl")
        return model


def scores_table(rows: list[dict[str, Any]]) -> str:
    """What real words get, in percent."""
    header = ["letters", "length", "unmask", "nfe", "real words %", "all anagrams %"]
    lines = [
        [row["letter_sets"], row["length"] or "all", row["unmask"], row["nfe"]]
        + [percent(row[name]) for name in ("real", "all_anagrams")]
        for row in rows
    ]
    title = "Probability of real words, and how often every anagram of a set has a tenth of\nits share"
    return f"{title} or more\n\n{table(header, lines, 'lrl')}"
