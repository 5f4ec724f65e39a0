"""ONNX files give what torch gives, for batches of any size."""

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.jigsaw.encoder import SINKHORN, PieceEncoder, SlotGuess
from factorank.kernels.codes import OPERATIONS, comparisons, transform
from factorank.onnx import export
from factorank.rerank.lists import Lists
from factorank.rerank.place_probabilities import list_law
from tests.models.naive import all_orders, small_model
from tests.models.test_library_encoders import small_ranker

CLOSE = {"atol": 1e-4, "rtol": 1e-4}


def runner(path):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(**inputs):
        assert {each.name for each in session.get_inputs()} == set(inputs)
        return [
            torch.from_numpy(each) for each in session.run(None, {k: v.numpy() for k, v in inputs.items()})
        ]

    return run


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_comparisons_are_the_operations(name, n):
    orders = all_orders(n)
    rows = orders if "decode" not in name else transform(orders, name.replace("decode", "encode"))[0]
    assert torch.equal(comparisons.transform(rows, name), transform(rows, name)[0])


def test_every_operation_as_a_graph(tmp_path):
    class Every(torch.nn.Module):
        def forward(self, order):
            outputs = [transform(order, "inverse")[0]]
            for code in map(fr.code, ("lehmer", "left-lehmer", "insertion", "fisher-yates", "inline")):
                outputs += [code.encode(order), code.decode(code.encode(order))]
            return tuple(outputs)

    names = [f"out_{i}" for i in range(11)]
    export(
        Every(),
        tmp_path / "codes.onnx",
        (torch.zeros((2, 3), dtype=torch.int64),),
        inputs=["order"],
        outputs=names,
    )
    orders = all_orders(3)
    for rows in (orders, orders[4:5]):
        for got, expected in zip(runner(tmp_path / "codes.onnx")(order=rows), Every()(rows), strict=True):
            assert torch.equal(got, expected)


def check_decision(run, law, **inputs):
    order, log_prob = run(**inputs)
    assert torch.equal(order, law.mode)
    torch.testing.assert_close(log_prob, law.log_prob(law.mode).detach(), **CLOSE)


@torch.no_grad()
def test_a_masked_model_of_padded_lists(tmp_path):
    model = small_model(4, "insertion", context=fr.ItemContext(9, 16)).train()
    model.export_onnx(tmp_path / "model.onnx")
    assert model.training
    model.eval()
    run = runner(tmp_path / "model.onnx")
    for items in (
        torch.tensor([[3, 1, -1, -1], [1, 5, 0, 2], [6, -1, -1, -1]]),
        torch.tensor([[8, 2, 0, 1]]),
    ):
        check_decision(run, model.distribution(items, nfe=1), context=items)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_of_another_precision_is_written_in_single(dtype, tmp_path):
    model = small_model(4, "insertion").to(dtype)
    with pytest.raises(fr.ModelError, match=r"there is no folder .*none for path"):
        model.export_onnx(tmp_path / "none" / "model.onnx")
    model.export_onnx(tmp_path / "model.onnx")
    assert next(model.parameters()).dtype == dtype
    fixed = torch.full((3, 4), -1)
    order, log_prob = runner(tmp_path / "model.onnx")(fixed=fixed)
    law = model.float().distribution(fixed=fixed, nfe=1)
    assert torch.equal(order, law.mode)
    torch.testing.assert_close(log_prob, law.log_prob(law.mode), **CLOSE)


@torch.no_grad()
def test_a_model_of_ranks_without_a_context_takes_fixed_values(tmp_path):
    model = small_model(4, "fisher-yates", target="rank", reference=torch.tensor([2, 0, 3, 1]))
    model.export_onnx(tmp_path / "model.onnx")
    run = runner(tmp_path / "model.onnx")
    for fixed in (
        torch.tensor([[-1, -1, -1, -1], [2, -1, 1, -1], [-1, 0, -1, 0]]),
        torch.tensor([[3, -1, -1, -1]]),
    ):
        check_decision(run, model.distribution(fixed=fixed, nfe=1), fixed=fixed)


@torch.no_grad()
def test_an_autoregressive_model_of_a_context_of_parts(tmp_path):
    class Parts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.map = torch.nn.Linear(2, 16)

        def forward(self, context):
            return self.map(context["points"]) + context["shift"][:, None, None]

    model = small_model(4, "lehmer", "autoregressive", context=Parts())
    with pytest.raises(fr.ModelError, match="traced with an example of a context: pass one"):
        model.export_onnx(tmp_path / "model.onnx")
    for part in (torch.tensor(0.0), 0.0):
        with pytest.raises(fr.ModelError, match="tensors, batch first, alone"):
            model.export_onnx(tmp_path / "model.onnx", {"points": torch.zeros(1, 3, 2), "shift": part})
    assert not (tmp_path / "model.onnx").exists()
    model.export_onnx(tmp_path / "model.onnx", {"points": torch.zeros(1, 3, 2), "shift": torch.zeros(1)})
    generator = torch.Generator().manual_seed(0)
    context = {
        "points": torch.randn((5, 3, 2), generator=generator),
        "shift": torch.randn(5, generator=generator),
    }
    code = torch.tensor([[-1] * 4, [1, -1, -1, -1], [3, 2, 1, -1], [0, 0, 0, 0], [2, 1, 0, 0]])
    (logits,) = runner(tmp_path / "model.onnx")(code=code, **context)
    expected = model.logits(code, context)
    torch.testing.assert_close(logits, expected, equal_nan=True, **CLOSE)


@torch.no_grad()
def test_pieces_of_puzzles(tmp_path):
    torch.manual_seed(0)
    features = ("edges", "contrast", "means", "neighbours")
    encoder = PieceEncoder(2, 4, 16, features=features, slots="lehmer")
    model = small_model(4, "lehmer", context=encoder)
    model.export_onnx(tmp_path / "model.onnx")
    pieces = torch.randint(
        256, (7, 4, 4, 4, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    check_decision(runner(tmp_path / "model.onnx"), model.distribution(pieces, nfe=1), context=pieces)


def test_a_ranker(tmp_path):
    ranker = small_ranker()
    ranker.export_onnx(tmp_path / "ranker.onnx")
    items = torch.tensor([[3, 1, 4, 0, 2, 5], [6, 2, 7, 1, -1, -1], [1, 0, 2, 3, 4, -1]])
    counts = torch.tensor([2, 0, 3])
    places = torch.arange(3)
    lists = Lists(items, torch.where(places < counts[:, None], places, -1))
    inputs = {"items": items, "observed_count": counts}
    if ranker.told == "ratings":
        inputs["ratings"] = torch.full(items.shape, torch.nan)
    law = list_law(ranker.model, lists, torch.arange(6).expand(3, 6))
    check_decision(runner(tmp_path / "ranker.onnx"), law, **inputs)


def test_ties_of_slots_are_broken_as_by_a_stable_sort():
    guess = SlotGuess(5, 8, "lehmer")
    logits = torch.randn((200, 5, 5), generator=torch.Generator().manual_seed(0)).round()
    scores = logits
    for _ in range(SINKHORN):
        scores = scores.log_softmax(-1).log_softmax(-2)
    slots = scores.log_softmax(-1).argmax(-1).numpy()
    assert any(len(set(row)) < 5 for row in slots.tolist())
    pieces = torch.from_numpy(np.argsort(slots, -1, kind="stable"))
    assert torch.equal(guess.code.decode(guess.draft(logits, "piece-of-slot")), pieces)
    assert torch.equal(guess.code.decode(guess.draft(logits, "slot-of-piece")), fr.inverse(pieces))
