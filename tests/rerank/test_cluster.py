"""Answers on a local Ray of two workers are those of one process, and parts that are there stay."""

import sys

import polars
import pytest

import factorank as fr
from factorank.rerank.cluster import predict_on_ray
from factorank.rerank.streaming import predict_table


def asked(masked, tmp_path):
    """A table of users, and the folder of the ranker that is to answer them."""
    rows = [
        {"user": i, "items": [100 + (i + j) % 12 for j in range(4)], "observed": [100 + i % 12, 111 - i % 5]}
        for i in range(40)
    ]
    rows[9]["items"] = [5]
    users, run = tmp_path / "users.parquet", tmp_path / "run"
    polars.DataFrame(rows).write_parquet(users)
    masked.save(run)
    return users, run


class OneProcess:
    """The calls of Ray that are made, answered here: what is asked of a cluster can be tested without it."""

    def __init__(self):
        self.data, self.started, self.options = self, [], {}

    def is_initialized(self):
        return bool(self.started)

    def init(self, **options):
        self.started.append(options)

    def from_items(self, items, override_num_blocks):
        assert override_num_blocks == len(items)
        self.items = items
        return self

    def map_batches(self, worker, fn_constructor_args, **options):
        self.worker, self.options = worker(*fn_constructor_args), options
        return self

    def iter_rows(self):
        for item in self.items:
            yield {"part": self.worker({"part": [item["part"]]})["part"][0]}


def test_each_missing_part_is_asked_for_once(masked, tmp_path, monkeypatch):
    cluster = OneProcess()
    monkeypatch.setitem(sys.modules, "ray", cluster)
    monkeypatch.setitem(sys.modules, "ray.data", cluster)
    users, run = asked(masked, tmp_path)
    out = tmp_path / "out"
    next(predict_table(masked, users, out, rows=8))  # a run that was stopped
    steps = list(predict_on_ray(run, users, out, workers=9, threads=1, rows=8))
    assert steps == [(done, 40) for done in (8, 16, 24, 32, 40)]
    assert cluster.options == {"batch_size": 1, "num_cpus": 1, "concurrency": 4}
    assert [item["part"] for item in cluster.items] == [1, 2, 3, 4]
    assert list(predict_on_ray(run, users, out, workers=1, rows=8)) == [(40, 40)]
    assert len(cluster.started) == 1
    for wrong in ({"workers": 0}, {"threads": 0}):
        with pytest.raises(fr.FactorankError, match="at least one worker and one thread"):
            next(predict_on_ray(run, users, out, **wrong))


@pytest.mark.filterwarnings("ignore")
def test_two_workers_answer_as_one_process_does(masked, tmp_path):
    ray = pytest.importorskip("ray")
    users, run = asked(masked, tmp_path)
    list(predict_table(masked, users, tmp_path / "alone", rows=8))
    next(predict_table(masked, users, tmp_path / "out", rows=8))  # a run that was stopped
    first = (tmp_path / "out/part-00000.parquet").stat().st_mtime_ns
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        steps = list(predict_on_ray(run, users, tmp_path / "out", workers=2, rows=8))
        assert list(predict_on_ray(run, users, tmp_path / "out", workers=2, rows=8)) == [(40, 40)]
    finally:
        ray.shutdown()
    assert steps[0] == (8, 40)
    assert steps[-1] == (40, 40)
    assert (tmp_path / "out/part-00000.parquet").stat().st_mtime_ns == first
    for part in range(5):
        name = f"part-{part:05d}.parquet"
        wanted, got = (polars.read_parquet(tmp_path / folder / name) for folder in ("alone", "out"))
        assert got.drop("place", "top").equals(wanted.drop("place", "top"))
    with pytest.raises(fr.FactorankError, match="other answers"):
        list(predict_on_ray(run, users, tmp_path / "out", workers=2, rows=8, k=3))
