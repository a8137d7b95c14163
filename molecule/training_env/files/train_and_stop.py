"""Train with the sample job as a user would, stop it in every way, and compare what comes of it.

Arguments: the environment's folder, the sample's folder, a folder to work in. Ends with a sentence when something is
wrong.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

ENVIRONMENT, SAMPLE, WORK = sys.argv[1:]
STEPS, EVERY = 40, 5


def command(checkpoints: str, steps: int = STEPS) -> list[str]:
    return [
        *[f"{ENVIRONMENT}/bin/torchrun", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0"],
        *[f"{SAMPLE}/train.py", f"--text={SAMPLE}/input.txt", f"--checkpoint-directory={WORK}/{checkpoints}"],
        *[f"--steps={steps}", f"--checkpoint-every={EVERY}", "--log-every=1"],
    ]


def must(condition: bool, sentence: str) -> None:
    if not condition:
        sys.exit(sentence)


def losses(output: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"^step=(\d+) loss=([\d.]+)$", output, re.MULTILINE)}


def train(checkpoints: str, steps: int = STEPS) -> str:
    result = subprocess.run(command(checkpoints, steps), capture_output=True, text=True, check=False, timeout=300)
    must(result.returncode == 0, f"training ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def train_until(checkpoints: str, step: int, number: int) -> str:
    """Start a training that would go on for long, and send all its ranks a signal once it has a checkpoint."""
    with open(f"{WORK}/output", "w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            command(checkpoints, 100_000), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        deadline = time.monotonic() + 300
        while not os.path.isdir(f"{WORK}/{checkpoints}/step-{step:08d}"):
            must(
                process.poll() is None and time.monotonic() < deadline,
                f"no checkpoint at step {step}: see {WORK}/output",
            )
            time.sleep(0.05)
        if number == signal.SIGKILL:
            ranks = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True)
            for pid in [process.pid, *map(int, ranks.stdout.split())]:
                os.kill(pid, number)
        else:
            subprocess.run(["pkill", f"-{int(number)}", "-P", str(process.pid)], check=True)
        code = process.wait(120)
        must(
            number == signal.SIGKILL or code == 0,
            f"signal {int(number)} ended the training with {code}: see {WORK}/output",
        )
        output.seek(0)
        return output.read()


shutil.rmtree(WORK, ignore_errors=True)
os.makedirs(WORK)
os.environ["OMP_NUM_THREADS"] = "1"

# Gloo's threads abort a rank now and then while Python shuts down in it, which a rank must leave out therefore.
os.makedirs(f"{WORK}/watch")
with open(f"{WORK}/watch/sitecustomize.py", "w", encoding="utf-8") as watch:
    watch.write(f"import atexit, os\n'LOCAL_RANK' in os.environ and atexit.register(open, '{WORK}/shut-down', 'w')\n")
os.environ["PYTHONPATH"] = f"{WORK}/watch"

whole = losses(train("whole"))
must(not os.path.exists(f"{WORK}/shut-down"), "Python shut down in a rank while Gloo's threads were there")
must(sorted(whole) == list(range(1, STEPS + 1)), f"not every step has a loss: {whole}")
must(5 < whole[1] < 6, f"the first loss is {whole[1]}, not that of guessing a byte (5.5)")
must(whole[STEPS] < 0.75 * whole[1], f"the loss doesn't fall: {whole}")
must(
    sorted(os.listdir(f"{WORK}/whole")) == [f"step-{step:08d}" for step in range(EVERY, STEPS + 1, EVERY)],
    f"the checkpoints are {sorted(os.listdir(f'{WORK}/whole'))}",
)
for name in os.listdir(f"{WORK}/whole"):
    must(os.path.isfile(f"{WORK}/whole/{name}/COMPLETE"), f"{name} has no COMPLETE")
    subprocess.run(["sha256sum", "--check", "--quiet", "MANIFEST.sha256"], cwd=f"{WORK}/whole/{name}", check=True)

# Killed at once: it goes on from its newest checkpoint, with the losses of a training that nobody stopped.
train_until("killed", 10, signal.SIGKILL)
newest = max(int(name[5:]) for name in os.listdir(f"{WORK}/killed") if re.fullmatch(r"step-\d+", name))
target = newest + 10
resumed = losses(train("killed", target))
must(min(resumed) == newest + 1, f"it resumed at step {min(resumed)} though {newest} was saved")
reference = whole if newest < STEPS else losses(train("reference", target))  # on a machine that is very fast
different = {
    step: (loss, reference[step])
    for step, loss in resumed.items()
    if step in reference and abs(loss - reference[step]) > 0.01
}
must(not different, f"the losses jump after resuming: {different}")

# A damaged newest checkpoint: the one before it serves, and the damaged one is kept aside.
with open(f"{WORK}/killed/step-{target:08d}/model.pt", "r+b") as model:
    model.write(b"rotten")
before = (target - 1) // EVERY * EVERY
again = train("killed", target)
must(
    "is damaged" in again and f"step-{before:08d} step={before}" in again,
    f"a damaged checkpoint isn't passed over:\n{again}",
)
must(any(".damaged-" in name for name in os.listdir(f"{WORK}/killed")), "the damaged checkpoint is lost")

# Asked to stop: it saves the step that it is at, and leaves in peace.
output = train_until("stopped", EVERY, signal.SIGTERM)
match = re.search(r"^done=no step=(\d+)", output, re.MULTILINE)
must(match is not None, f"SIGTERM didn't end the training in peace:\n{output}")
path = f"{WORK}/stopped/step-{int(match[1]):08d}/COMPLETE" if match else ""
must(os.path.isfile(path), f"SIGTERM left no {path}")
