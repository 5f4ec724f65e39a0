"""Answers on a local Ray of two workers are those of one process, and parts that are there stay."""

import polars
import pytest

import factorank as fr
from factorank.rerank.streaming import predict_table

ray = pytest.importorskip("ray")


@pytest.mark.filterwarnings("ignore")
def test_two_workers_answer_as_one_process_does(masked, tmp_path):
    from factorank.rerank.cluster import predict_on_ray

    rows = [
        {"user": i, "items": [100 + (i + j) % 12 for j in range(4)], "observed": [100 + i % 12, 111 - i % 5]}
        for i in range(40)
    ]
    rows[9]["items"] = [5]
    users, run = tmp_path / "users.parquet", tmp_path / "run"
    polars.DataFrame(rows).write_parquet(users)
    masked.save(run)
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
