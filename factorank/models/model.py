"""PermutationModel: a code, a network and an objective."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from factorank.codes import Code
from factorank.codes import code as find_code
from factorank.codes.checking import check_code
from factorank.codes.reversed import Reversed
from factorank.errors import ModelError
from factorank.models import autoregressive, classical, masked, orders
from factorank.models.conditions import conditions_for
from factorank.models.context import check_encoder, encode_context, joint_batch, warn_of_mismatch
from factorank.models.drafting import checked_draft
from factorank.models.law import PermutationLaw
from factorank.models.network import Network, checked_sizes
from factorank.models.saving import SavedModel
from factorank.models.transformer import Norm
from factorank.models.unmasking import checked_beam, checked_unmasking
from factorank.permutations import cannot_check, checked_shape

Objective = Literal["masked", "autoregressive"]
Masks = Literal["any", "suffix", "prefix", "all"]
Target = Literal["order", "rank"]
Reveal = Literal["left-to-right", "right-to-left"]


class PermutationModel(SavedModel):
    r"""A learnable law over permutations: the positions of a code, predicted by a transformer.

    The *masked* objective learns every conditional :math:`P(C_j \mid C_S)` at once, and the number of network
    evaluations (NFE) is chosen when sampling. The *autoregressive* one learns :math:`P(C_j \mid C_{<j})`.
    Logits outside the domain of a position are excluded, so that samples of a factorized code are always
    permutations.

    Args:
        n: the number of items.
        code: a name that :func:`factorank.code` knows, or a code.
        objective: "masked" or "autoregressive".
        width, depth, heads, dropout: of the transformer. An autoregressive model with an aligned context
            spends half of its blocks on a bidirectional encoder of the items.
        context: a module that maps what is known to tokens; see :mod:`factorank.models.context`.
        reference: the order ``(n,)`` that the code is relative to; 0..n-1 unless given.
        masks: which positions a masked model learns to predict from the others. "any": every set, so that
            every NFE and order of revealing is learnt. "suffix": all after the first few, for a law that is
            asked left to right or given the order of some items (``observed``). "prefix": all before the
            last few, for a law that is asked right to left. "all": all of them, for a law that is asked at
            1 NFE and no other. The fewer the sets, the more is learnt of each.
        target: what is encoded: the "order" (the default), or the "rank" of each item. Position i of the code
            then belongs to item i instead of place i, or for insertion the other way round. An aligned
            context with a token for each item goes with insertion codes, and with "rank" with all other
            factorized ones. Only codes change: laws take and give orders all the same.
        reveal: from which end an autoregressive model predicts the positions of the code. Insertion and
            left-Lehmer codes tell most at their last positions: "right-to-left" suits them. ``model.code`` is
            the reversed code then; fixed values and logits are of its positions. Contexts must not be
            aligned, and all lists have n items.
        norm: "before" attention and MLP; "after" them is the first transformers' network, with its ReLU, its
            waves for the places, and dropout of tokens, attention and hidden units as well.

    With a code whose domains do not depend on n (insertion, left-Lehmer) lists shorter than n may be mixed
    in, padded with -1. ``model.padded = False`` promises that there are none and saves the attention mask.

    >>> import factorank as fr
    >>> model = PermutationModel(4, "fisher-yates", width=16, depth=2, heads=2)
    >>> model.loss(fr.random_permutations(4, (32,))).shape  # train on the mean of these
    torch.Size([32])
    >>> fr.is_permutation(model.distribution(nfe=2).sample((1000,))).all()
    tensor(True)
    """

    reference: Tensor | None
    first_values: Tensor
    certain: Tensor
    """The positions that have a single possible value, ``(n,)``."""
    place_of: Tensor | None

    def __init__(
        self,
        n: int,
        code: str | Code,
        objective: Objective = "masked",
        width: int = 128,
        depth: int = 8,
        heads: int = 8,
        dropout: float = 0.0,
        context: nn.Module | None = None,
        reference: Tensor | None = None,
        masks: Masks = "any",
        target: Target | None = None,
        reveal: Reveal = "left-to-right",
        norm: Norm = "before",
    ) -> None:
        super().__init__()
        n, width, depth, heads = checked_sizes(n, width, depth, heads, dropout)
        if objective not in ("masked", "autoregressive"):
            raise ModelError(
                f"the objective is 'masked' or 'autoregressive', not {objective!r}", parameter="objective"
            )
        if masks not in get_args(Masks) or (masks != "any" and objective != "masked"):
            raise ModelError(
                f"{{parameter}} are 'any', 'suffix', 'prefix' or 'all', all but 'any' for masked models:"
                f" {masks=}, {objective=}",
                parameter="masks",
            )
        check_encoder(context)
        orders.check_reveal(reveal, objective, context)
        if context is not None and getattr(context, "width", width) != width:
            raise ModelError(
                f"the context encoder makes tokens of width {context.width}, the model's are {width} wide"
            )
        self.n, self.code, self.objective, self.reveal = n, find_code(code), objective, reveal
        check_code(self.code, n)
        if reveal == "right-to-left" and not isinstance(self.code, Reversed):
            self.code = Reversed(self.code)
        self.width, self.depth, self.heads, self.dropout, self.norm = width, depth, heads, dropout, norm
        self.context, self.masks, self.warned = context, masks, False
        self.target, self.target_given = orders.checked_target(self.code, target), target is not None
        encode_items = self.causal and getattr(context, "aligned", False)
        self.network = Network(self.code.support_mask(n), width, depth, heads, dropout, encode_items, norm)

        self.padded = not self.code.domains_depend_on_n and reference is None
        identity = self.code.encode(torch.arange(n), check=False)
        self.register_buffer("first_values", identity, persistent=False)
        self.register_buffer("certain", self.code.sizes(n) == 1, persistent=False)
        self.certain_count = int(self.certain.sum())
        self.register_buffer(
            "reference", None if reference is None else orders.checked_reference(reference, n)
        )
        place_of = None if self.reference is None else self.reference.argsort()
        self.register_buffer("place_of", place_of, persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.places.device

    @property
    def causal(self) -> bool:
        """Whether positions are predicted from the earlier ones only."""
        return self.objective == "autoregressive"

    @property
    def observes(self) -> bool:
        """Whether the first values of a code stand for the relative order of the first items."""
        return (self.code.name, self.target) in (("insertion", "order"), ("left-lehmer", "rank"))

    def noise(
        self, batch: Sequence[int], *, device: torch.device | str, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """The random numbers of :meth:`loss` for a batch of that shape; None where it needs none.

        For a compiled loss, which cannot take a generator: draw them outside and pass them in. They are by
        row, ``(*batch,)`` and ``(*batch, n)``: rows of a large draw serve parts of its batch.
        """
        if self.causal:
            return None
        if not isinstance(batch, torch.Size):
            batch = checked_shape(batch, ModelError)
        return masked.noise(batch, self.n, device, generator)

    def loss(
        self,
        order: Tensor,
        context: Any = None,
        *,
        generator: torch.Generator | None = None,
        noise: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        r"""The loss in nats of each order ``(*batch, n)``: ``(*batch,)``.

        Autoregressive: the exact :math:`-\log p`. Masked: an unbiased estimate of the any-order bound

        .. math:: -\log p(c) \le \mathbb{E}_\sigma \sum_t -\log p(c_{\sigma(t)} \mid c_{\sigma(<t)})
            = \mathbb{E}_{k, M} \frac{n}{k} \sum_{j \in M} -\log p(c_j \mid c_{\bar M}),

        k uniform on 1..n and M a uniform set of k masked positions; k is stratified over the batch. With
        ``masks="suffix"`` M is the last k positions, with "prefix" the first k, with "all" all n of them (the
        exact loss at 1 NFE).

        Tensor operations only, no synchronisation: it can be compiled whole and captured in a CUDA graph.
        Random numbers come from the generator, or are what :meth:`noise` gave. Orders are
        checked on the CPU when not compiled; elsewhere rows with items outside the range give NaN.
        """
        if self.training:
            warn_of_mismatch(self)
        code, present, fault = orders.encoded(self, order)
        encoded = encode_context(self.context, context, self.n, self.width)
        joint_batch(encoded, code.shape[:-1], wider=False)
        fault = orders.disagreeing(encoded, present, fault)
        if noise is None:
            noise = self.noise(code.shape[:-1], device=code.device, generator=generator)
        if noise is None:
            losses = autoregressive.loss(self, code, present, encoded)
        else:
            losses = masked.loss(self, code, present, encoded, *noise)
        return orders.without(fault, losses)

    def forward(self, *arguments: Any, **options: Any) -> Tensor:
        """The same as :meth:`loss`: wrappers that hook into ``forward``, such as DDP, train through it."""
        return self.loss(*arguments, **options)

    def logits(self, code: Tensor, context: Any = None, *, check: bool = True) -> Tensor:
        """What the network predicts: logits ``(*batch, n, n)`` of the values of each position of a code.

        ``code (*batch, n)`` holds -1 at masked positions; its batch broadcasts with that of the context.
        Values outside the domain of a position are minus infinity. A masked model predicts every position
        from all that are not masked. An autoregressive one predicts each from those before it, so masked
        positions must be the last ones, and what follows the first of them is NaN. Dropout is on while the
        model is in training mode. ``check=False`` skips the test of the codes, which on a GPU costs one
        synchronisation; inside ``torch.compile`` and CUDA graph capture it is always off.

        >>> model = PermutationModel(3, "lehmer", width=8, depth=1, heads=2).eval()
        >>> model.logits(torch.tensor([-1, 1, -1])).shape
        torch.Size([3, 3])
        """
        orders.check_code_length(code, self.n)
        code = code.to(device=self.device, dtype=torch.int64)
        if check and not cannot_check(code):
            orders.check_masked_code(self, code)
        encoded = encode_context(self.context, context, self.n, self.width)
        code = code.expand(*joint_batch(encoded, code.shape[:-1]), self.n)
        present = None if encoded is None or not encoded.aligned else encoded.present
        hidden = code == -1
        code = torch.where(hidden, self.network.mask_value, code)
        if not self.causal:
            return self.network.head(self.network.hidden(code, encoded, present))
        logits = self.network.head(self.network.causal_hidden(code, self.network.memory(encoded, present)))
        unseen = torch.nn.functional.pad(hidden[..., :-1], (1, 0))
        return logits.masked_fill(unseen[..., None], torch.nan)

    def distribution(
        self,
        context: Any = None,
        *,
        nfe: int | Sequence[int] | None = None,
        unmask: str | None = None,
        schedule: str | None = None,
        partition: Sequence[Sequence[int]] | None = None,
        observed: Tensor | Sequence[Any] | None = None,
        fixed: Tensor | Sequence[Any] | None = None,
        reference: Tensor | Sequence[Any] | None = None,
        entropy_bound: float | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        remask: int = 0,
        beam: int | None = None,
        draft: "PermutationModel | Literal['self'] | None" = None,
        ahead: int | None = None,
    ) -> PermutationLaw:
        """The law of the order that the model has learnt, given a context.

        Args:
            context: what the context encoder takes; its batch shape becomes that of the law.
            nfe: how many network evaluations a sample takes, 1..n, n unless given; one above the number of
                free positions (not fixed, and with more than one possible value) means that number. They are
                revealed in exactly so many blocks. Or the sizes of the blocks, which sum to that number.
            unmask: the order of revealing: "random" (a fresh one for each sample; the default),
                "left-to-right", "right-to-left", or "confident" (the most certain positions first).
            schedule: of the sizes of the blocks: "equal" (they differ by at most one; the default) or
                "growing" (small blocks first, as little is known then).
            partition: instead of these, the positions of each block.
            observed: the order of some of the items, ``(*batch, r)`` or a list, -1 pads: the law is that of
                the whole order given this. For insertion models whose context is exchangeable and that were
                trained on references (orders of the items in the context) drawn at random: the observed
                items are put first in the reference. Without such a context only items 0..r-1 can be
                observed.
            fixed: fixed values of the code, ``(*batch, n)``, -1 where free.
            reference: the order of the items that the code is relative to, ``(*batch, n)``, for models whose
                context is exchangeable; the model's own, or that of the context, unless given. Observed items
                come first in it.
            entropy_bound: instead of nfe: each step reveals as many of the most certain positions as keep
                the bound on what they share, the sum of their entropies less the largest, at or below this
                many nats (Ben-Hamu et al., 2025). The NFE is what it took: ``nfe_of``, ``sample_with_nfe``.
            temperature, top_p: of every conditional, whose logits are divided by the temperature, then cut
                to the most likely values whose probabilities sum to ``top_p``; ``log_prob`` is of that law.
            remask: how many times, after the last block, the values that were drawn with the least
                probability, as many as the largest block has, are drawn anew given the others; an evaluation
                each. Such a law has no ``log_prob``.
            beam: how many codes the search for the ``mode`` keeps: 1, or 8 in an autoregressive law, unless
                given.
            draft: what guesses values that the model then verifies in one pass: "self", or a masked model of
                the same code. Samples follow the same law in fewer passes (``sample_with_report``). For laws
                that reveal left to right, one position at a time.
            ahead: how many positions are drafted at a time; all, or 8 in a masked model, unless given.

        Autoregressive models reveal left to right, one position each; nothing else can be asked of them.
        """
        unmasking = checked_unmasking(
            self, nfe, unmask, entropy_bound, schedule, partition, temperature, top_p, remask
        )
        given = (context, observed, fixed, reference)
        conditions, batch = conditions_for(self, *given)
        kind = autoregressive.AutoregressiveLaw if self.causal else masked.MaskedLaw
        law: PermutationLaw = kind(self, conditions, batch, unmasking)
        law.beam_width = checked_beam(beam, law.beam_width)
        if draft is None and ahead is not None:
            raise ModelError("{parameter} says how far a draft goes, but none was given", parameter="ahead")
        if draft is not None:
            law.draft = checked_draft(law, draft, ahead, given)
        return law

    def with_length(self, n: int) -> "PermutationModel":
        """A copy of the model for lists of n items, fewer than its own, with the same context encoder.

        Its law is that of lists padded to the model's length. The code's domains must not depend on n.

        >>> model = PermutationModel(6, "insertion", width=8, depth=1, heads=2)
        >>> model.with_length(4).distribution(nfe=2).sample((3,)).shape
        torch.Size([3, 4])
        """
        return orders.shortened(self, n)

    from_mallows = classmethod(classical.from_mallows)
    from_rim = classmethod(classical.from_rim)

    def extra_repr(self) -> str:
        return f"n={self.n}, code={self.code.name!r}, objective={self.objective!r}, target={self.target!r}"
