"""Tasks side by side: what becomes of them when the command is told to stop."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROC = Path("/proc")
COMMAND = "cyclic --steps 1000000 --codes lehmer inline --objectives masked --jobs 2 --out"


@pytest.mark.skipif(not (PROC / "self/task").is_dir(), reason="needs /proc to find the workers")
def test_a_signal_to_the_command_alone_stops_its_workers_and_their_training_is_saved(tmp_path):
    arguments = [sys.executable, "-m", "factorank", *COMMAND.split(), str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        logs = [tmp_path / "laws" / f"{code}-masked-0" / "metrics.jsonl" for code in ("lehmer", "inline")]
        while command.poll() is None and not all(log.exists() and log.stat().st_size for log in logs):
            time.sleep(0.1)
        children = (PROC / f"{command.pid}/task/{command.pid}/children").read_text().split()
        workers = [child for child in children if b"spawn_main" in (PROC / child / "cmdline").read_bytes()]
        assert len(workers) == 2
        command.send_signal(signal.SIGTERM)
        said = command.communicate(timeout=120)[0].decode()
    finally:
        command.kill()
    assert command.returncode == 143, said
    assert not [worker for worker in workers if (PROC / worker).exists()]
    for log in logs:
        steps = [int(saved.name) for saved in (log.parent / "checkpoints").iterdir() if saved.name.isdigit()]
        assert max(steps) > 0, "no more than the beginning was saved"
