"""What the laws of both objectives share: shapes, chunks, checks, and the way between orders and codes."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.types import _size

from factorank.distributions.constraints import permutation
from factorank.errors import ModelError, short_of_memory
from factorank.lexicographic import permutation_at
from factorank.models import orders
from factorank.models.conditions import Given, Step, evaluating
from factorank.models.model import PermutationModel
from factorank.models.sampler import Sampler
from factorank.models.unmasking import Chooser, Draw
from factorank.permutations import checked_shape, inverse, is_permutation

LARGEST_ENUMERATED = 7
"""The largest n for which a law lists all permutations by itself."""
BEAM = 8
"""How many orders the search for an autoregressive mode keeps."""
CHUNK = {"cpu": 2**22, "cuda": 2**29}
"""How many numbers the widest tensor of a network evaluation may hold, by device; it bounds the memory."""


class PermutationLaw(Distribution):
    """The law of the orders that a model has learnt, a :class:`torch.distributions.Distribution`.

    Made by :meth:`PermutationModel.distribution`. ``batch_shape`` is that of the context; orders are int64
    ``(*sample, *batch, n)``, best first. The NFE and the way of unmasking belong to the law, so that
    ``sample`` and ``log_prob`` speak of the same one. Dropout is off. The context is
    encoded when the law is made.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = False
    nfe: int | None
    unmask: str

    def __init__(self, model: PermutationModel, given: Given, batch_shape: torch.Size) -> None:
        super().__init__(batch_shape, torch.Size((model.n,)), validate_args=False)
        self.model, self.given = model, given
        self._sampler = Sampler(self)

    # What the law of an objective gives.

    def _walk(
        self,
        given: Given,
        samples: int,
        chooser: Chooser,
        generator: torch.Generator | None,
        score: bool = False,
    ) -> Iterator[Step]:
        """Reveal the codes of ``samples`` orders for each row, beginning with nothing revealed."""
        raise NotImplementedError

    def _score(self, given: Given, code: Tensor, generator: torch.Generator | None) -> Tensor:
        """The log-probability of codes ``(samples, rows, n)`` that agree with what is given."""
        raise NotImplementedError

    def _mode(self, given: Given) -> Tensor:
        """Likely codes ``(rows, n)``."""
        raise NotImplementedError

    @property
    def exact(self) -> bool:
        """Whether ``log_prob`` is offered: the partition does not depend on chance."""
        return True

    # What every law has.

    @property
    def n(self) -> int:
        return self.model.n

    @property
    def support(self) -> constraints.Constraint:
        """Permutations; for inline, which can leave them, all sequences of 0..n-1."""
        if self.model.code.factorized and self.given.present is None:
            return permutation
        least = 0 if self.given.present is None else -1
        return constraints.independent(constraints.integer_interval(least, self.n - 1), 1)

    @torch.no_grad()
    def sample(self, sample_shape: _size = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw orders ``(*sample_shape, *batch, n)``, int64, from torch's generator or the one given.

        Drawn in chunks: beyond the result the memory does not grow with the number of samples. On a GPU a
        law that is asked again for as many samples replays a recording of the first time; under
        ``torch.autocast`` to bfloat16 short lists go through fused kernels.
        """
        return self._sample(checked_shape(sample_shape, ModelError), generator, None)

    @torch.no_grad()
    def sample_with_nfe(
        self, sample_shape: _size = (), *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """:meth:`sample`, and how many network evaluations each took: ``(*sample_shape, *batch)``."""
        shape = checked_shape(sample_shape, ModelError)
        nfe = torch.zeros((shape.numel(), self.given.rows), dtype=torch.int64, device=self._device)
        order = self._sample(shape, generator, nfe)
        return order, nfe.view(torch.Size((*shape, *self.batch_shape)))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None, nfe: Tensor | None) -> Tensor:
        size = (shape.numel(), self.given.rows, self.n)
        advice = (
            f"the result alone takes {8 * math.prod(size):,} bytes: draw fewer samples at once; what the"
            f" network takes follows factorank.models.law.CHUNK, now {CHUNK}"
        )
        with short_of_memory(advice), evaluating(self.model):
            result = torch.empty(size, dtype=torch.int64, device=self._device)
            for given, rows, draws in self._chunks(shape.numel()):
                drawn = self._sampler.draw(given, rows, draws.stop - draws.start, generator)
                result[draws, rows] = drawn[0]
                if nfe is not None:
                    nfe[draws, rows] = drawn[1]
        return result.view(*shape, *self.batch_shape, self.n)

    def log_prob(self, order: Tensor) -> Tensor:
        """The log-probability, in nats, of each order ``(*sample, *batch, n)``; shapes broadcast.

        Exact, and offered where the partition is fixed by the law: left-to-right, right-to-left, confident,
        one block, or autoregressive. Inline laws also take sequences that are no permutations.
        """
        if not self.exact:
            raise ModelError(
                f"unmask='random' at nfe={self.nfe} is a mixture over all partitions, whose log_prob has no"
                " feasible exact value; use log_prob_bound or log_prob_estimate, or another way of unmasking"
            )
        return self._log_prob(order, None)

    def log_prob_bound(
        self, order: Tensor, *, samples: int = 16, generator: torch.Generator | None = None
    ) -> Tensor:
        r"""An unbiased estimate of :math:`\mathbb{E}_S \log p_S(x) \le \log p(x)`, over random partitions S.

        Where ``log_prob`` is offered this is ``log_prob``.
        """
        if self.exact:
            return self._log_prob(order, None)
        return self._over_partitions(order, samples, generator).mean(0)

    def log_prob_estimate(
        self, order: Tensor, *, samples: int = 16, generator: torch.Generator | None = None
    ) -> Tensor:
        r"""The logarithm of a Monte-Carlo mean of :math:`p_S(x)` over random partitions S.

        Too low on average, by less and less as ``samples`` grows. Where ``log_prob`` is offered this is
        ``log_prob``.
        """
        if self.exact:
            return self._log_prob(order, None)
        return self._over_partitions(order, samples, generator).logsumexp(0) - math.log(samples)

    def nfe_of(self, order: Tensor) -> Tensor:
        """How many network evaluations it takes to draw each order: ``(*sample, *batch)``, int64.

        As many as the law's ``nfe``, or as there are free positions if those are fewer.
        """
        shape = self._aligned(order)[2]
        return torch.full(shape, self.n, device=order.device)

    def entropy(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The entropy in nats, ``(*batch,)``.

        Exact at one NFE, and by enumeration up to n = 7 where ``log_prob`` is exact; refused elsewhere.
        With ``samples``, as for the classical laws, it is :meth:`entropy_estimate`.
        """
        if samples is not None:
            return self.entropy_estimate(samples, generator=generator)
        if not self.model.code.factorized:
            raise ModelError(
                "the exact entropy of an inline law is offered at nfe=1; samples= gives an estimate"
            )
        log_probs = self._enumerated("entropy", "; samples= gives an estimate")
        return -(log_probs.exp() * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)).sum(0)

    def entropy_estimate(
        self, samples: int = 1024, *, partitions: int = 16, generator: torch.Generator | None = None
    ) -> Tensor:
        """The mean of ``-log_prob`` over that many draws, ``(*batch,)``: an unbiased estimate of the entropy.

        Under random partitions it is the mean of ``-log_prob_estimate``, which is too high on average.
        """
        drawn = self.sample((samples,), generator=generator)
        return -self.log_prob_estimate(drawn, samples=partitions, generator=generator).mean(0)

    def leak(self, *, samples: int | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The probability that an order is not a permutation, ``(*batch,)``: zero unless the code is inline.

        Exact by enumeration up to n = 7 where ``log_prob`` is exact; with ``samples`` the share of
        that many draws.
        """
        if self.model.code.factorized:
            return torch.zeros(self.batch_shape, device=self._device)
        if samples is not None:
            drawn = self.sample((samples,), generator=generator)
            return 1 - is_permutation(drawn).to(torch.get_default_dtype()).mean(0)
        return (1 - self._enumerated("leak", "; samples= gives an estimate").exp().sum(0)).clamp(min=0)

    def mean_ranks(self, *, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """The mean place of each item over that many draws: ``(*batch, n)``; NaN after a list's end.

        Items sorted by it are a better guess at the order than one sample.
        """
        if not self.model.code.factorized:
            raise ModelError("mean_ranks needs permutations, which inline laws do not always give")
        drawn = self.sample((samples,), generator=generator)
        places = torch.arange(self.n, device=drawn.device)
        ranks = (
            inverse(torch.where(drawn < 0, places, drawn), check=False).to(torch.get_default_dtype()).mean(0)
        )
        if self.given.present is None:
            return ranks
        return torch.where(self.given.present.view(*self.batch_shape, self.n), ranks, torch.nan)

    @property
    @torch.no_grad()
    def mode(self) -> Tensor:
        """A likely order ``(*batch, n)``: the most likely value of each position as it is revealed.

        The most likely order at one NFE, in general a good guess. Under random partitions positions are
        revealed in the confident order; autoregressive laws search with a beam.
        """
        result = torch.empty((self.given.rows, self.n), dtype=torch.int64, device=self._device)
        with evaluating(self.model):
            for given, rows, _ in self._chunks(1, at_once=BEAM):
                result[rows] = self._decode(given, self._mode(given)[None])[0]
        return result.view(*self.batch_shape, self.n)

    def path(
        self, sample_shape: _size = (), *, generator: torch.Generator | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Watch samples being drawn: after each step the codes, -1 where hidden, and orders they stand for.

        A partly revealed code of a factorized kind always stands for a permutation: hidden positions are read
        as those of the reference order. Both are ``(*sample_shape, *batch, n)``; the first pair is the start.

        >>> import factorank as fr
        >>> model = fr.PermutationModel(3, "lehmer", width=8, depth=1, heads=2)
        >>> [order.tolist() for code, order in model.distribution(nfe=3).path()][0]
        [0, 1, 2]
        """
        shape = checked_shape(sample_shape, ModelError)
        whole = torch.Size((*shape, *self.batch_shape, self.n))
        steps = self._walk(dataclasses.replace(self.given), shape.numel(), Draw(generator), generator)
        while True:
            with torch.no_grad(), evaluating(self.model):
                step = next(steps, None)
                if step is None:
                    return
                hidden = step.code == self.model.network.mask_value
                order = self._decode(self.given, torch.where(hidden, self.model.first_values, step.code))
            yield step.code.masked_fill(hidden, -1).view(whole), order.view(whole)

    def expand(self, batch_shape: _size, _instance: Any = None) -> Self:
        """The same law with its batch dimensions expanded to ``batch_shape``."""
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._batch_shape = torch.Size(batch_shape)
        new.given = self.given.expand(self.batch_shape, new._batch_shape)
        new._sampler = Sampler(new)
        return new

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n={self.n}, code={self.model.code.name!r}, nfe={self.nfe},"
            f" unmask={self.unmask!r}, batch_shape={tuple(self.batch_shape)})"
        )

    # Between orders and codes, in chunks.

    @property
    def _device(self) -> torch.device:
        return self.model.network.places.device

    def _widest(self) -> int:
        """How many numbers of one sample the widest tensor holds while it is drawn after the first."""
        return self.n * max(4 * self.model.width, 2 * self.n)

    def _chunks(
        self, samples: int, at_once: int = 1, *, drawn: bool = True
    ) -> Iterator[tuple[Given, slice, slice]]:
        """Rectangles (rows of the batch, samples of each) that fit the memory, and what is given there.

        Those of the same rows follow each other and share a :class:`Given`, and so the first evaluation.
        ``drawn``: samples are drawn, not scored, which may take less memory.
        """
        limit = CHUNK.get(self._device.type, CHUNK["cpu"]) // at_once
        widest = self.n * max(4 * self.model.width, 2 * self.n)
        rows = max(1, min(self.given.rows, limit // widest))
        # Where the first evaluation is all there is, a sample takes no more than a few rows of numbers.
        each = 4 * self.n if self.nfe == 1 else self._widest() if drawn else widest
        draws = max(1, limit // each // rows)
        for row in range(0, self.given.rows, rows):
            where = slice(row, min(row + rows, self.given.rows))
            given = dataclasses.replace(self.given.part(where.start, where.stop))
            for draw in range(0, samples, draws):
                yield given, where, slice(draw, min(draw + draws, samples))

    def _decode(self, given: Given, code: Tensor) -> Tensor:
        order = orders.decoded(self.model, code, given.present)
        if given.reference is None:
            return order
        named = given.reference.expand_as(order).gather(-1, order.clamp(min=0))
        return torch.where(order < 0, -1, named)

    def _encode(self, given: Given, order: Tensor) -> Tensor:
        if given.reference is not None:
            place_of = inverse(given.reference, check=False)
            order = torch.where(order < 0, -1, place_of.expand_as(order).gather(-1, order.clamp(min=0)))
        return orders.encoded(self.model, order, check_rows=False)[0]

    def _aligned(self, order: Tensor) -> tuple["PermutationLaw", Tensor, torch.Size]:
        """A law and orders ``(samples, rows, n)`` that fit it, from orders that broadcast with the batch."""
        padded = orders.check(self.model, order, sequences=not self.model.code.factorized)
        shape = self._broadcast(order)
        own = len(self.batch_shape)
        batch = shape[len(shape) - own :]
        law = self if batch == self.batch_shape else self.expand(batch)
        full = order.to(torch.int64).expand(*shape, self.n)
        if padded and law.given.present is None:  # nothing but the orders tells the lengths of the lists
            law = law.expand(shape)
            law.given = dataclasses.replace(law.given, present=full.reshape(-1, self.n) >= 0)
            batch = shape
        rows = full.reshape(-1, batch.numel(), self.n) if batch.numel() else full.reshape(0, 0, self.n)
        if law.given.present is not None and not bool(((rows >= 0) == law.given.present).all()):
            raise ModelError("an order has as many items as the list in its context, but some here have not")
        return law, rows, shape

    def _broadcast(self, order: Tensor) -> torch.Size:
        try:
            return torch.broadcast_shapes(order.shape[:-1], self.batch_shape)
        except RuntimeError:
            raise ModelError(
                f"a law of batch shape {tuple(self.batch_shape)} takes orders (*sample, *batch, n) that"
                f" broadcast with it, not {tuple(order.shape)}"
            ) from None

    def _log_prob(self, order: Tensor, generator: torch.Generator | None) -> Tensor:
        law, rows, shape = self._aligned(order)
        parts: dict[int, list[Tensor]] = {}
        with evaluating(self.model):
            for given, where, draws in law._chunks(rows.shape[0], drawn=False):
                code = law._encode(given, rows[draws, where])
                score = law._score(given, code, generator)
                if given.fixed is not None:
                    agrees = ((given.fixed < 0) | (given.fixed == code)).all(-1)
                    score = torch.where(agrees, score, -torch.inf)
                parts.setdefault(where.start, []).append(score)
        if not parts:
            return torch.zeros(shape, device=self._device)
        return torch.cat([torch.cat(part, 0) for part in parts.values()], 1).view(shape)

    def _over_partitions(self, order: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise ModelError(
                f"an estimate takes at least 1 sample, a whole number, not {samples!r}", parameter="samples"
            )
        orders.check_length(order, self.n)
        return self._log_prob(order.expand(samples, *self._broadcast(order), self.n), generator)

    def _enumerated(self, what: str, hint: str) -> Tensor:
        """The log-probabilities ``(n!, *batch)`` of all permutations."""
        if self.n > LARGEST_ENUMERATED or not self.exact or self.given.present is not None:
            raise ModelError(
                f"{what} lists all permutations, which is offered where log_prob is exact, for n up to"
                f" {LARGEST_ENUMERATED} and lists of full length{hint}"
            )
        listed = permutation_at(torch.arange(math.factorial(self.n), device=self._device), self.n)
        return self.log_prob(listed.view(-1, *(1 for _ in self.batch_shape), self.n))
