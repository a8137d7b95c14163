# Copyright: Contributors to the trainyard.cluster collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Train a small language model on the bytes of a text, on one or many machines, and survive being stopped.

Started by torchrun (see train.sbatch). It shows what a job needs to lose no work: it writes a checkpoint every so many
steps, writes one more when it gets SIGUSR1 or SIGTERM and leaves, and goes on from the newest whole checkpoint when it
is started again. Runs on GPUs with NCCL, and on CPUs with Gloo when PyTorch sees no GPU. PyTorch 1.13 or newer.

Prints lines such as `step=10 loss=3.1416`.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import sys
import time
from typing import Any

import checkpoints
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 256  # every byte is a token

stop_signals: list[int] = []  # those received so far


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(self.norm_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        score = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        score = score.masked_fill(future, float("-inf"))
        mixed = (score.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, width)
        x = x + self.output(mixed)
        return x + self.feed_forward(self.norm_feed_forward(x))


class LanguageModel(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _layer in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        for table in (self.token, self.position):
            nn.init.normal_(table.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.token(tokens) + self.position(places))))


def request_stop(signum: int, frame: Any) -> None:
    stop_signals.append(signum)


def say(text: str) -> None:
    if int(os.environ.get("RANK", "0")) == 0:
        print(text, flush=True)


def batch_of(text: torch.Tensor, options: argparse.Namespace, step: int, rank: int) -> torch.Tensor:
    """The examples of a step depend on seed, step and rank alone, so a resumed run sees what the first would have."""
    generator = torch.Generator().manual_seed((options.seed * 1_000_003 + step) * 65_537 + rank)
    starts = torch.randint(len(text) - options.context - 1, (options.batch_size,), generator=generator)
    return torch.stack([text[start : start + options.context + 1] for start in starts.tolist()]).long()


def random_state(device: torch.device) -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def save(options: argparse.Namespace, step: int, model: nn.Module, optimizer: Any, device: torch.device) -> None:
    """Rank 0 writes; every rank hands it the state of its random numbers."""
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, random_state(device))
    if dist.get_rank() == 0:
        began = time.monotonic()
        # Tensors and whole numbers alone: PyTorch reads them without running code, 1.13 too. The optimizer's
        # settings are no part of it: they come from the command line.
        state = {"step": step, "optimizer": optimizer.state_dict()["state"], "random": states}
        path = checkpoints.write(
            options.checkpoint_directory,
            step,
            {
                "model.pt": lambda path: torch.save(model.state_dict(), path),
                "training.pt": lambda path: torch.save(state, path),
            },
            os.environ.get("SLURM_JOB_ID", str(os.getpid())),
            report=say,
        )
        say(f"checkpoint={path} step={step} seconds={time.monotonic() - began:.2f}")
        checkpoints.prune(options.checkpoint_directory, options.keep, report=say)
    dist.barrier()


def resume(options: argparse.Namespace, model: nn.Module, optimizer: Any, device: torch.device) -> int:
    """Restore the newest whole checkpoint and return its step; 0 when there is none. Rank 0 chooses for all."""
    choice: list[Any] = [None]
    if dist.get_rank() == 0:
        choice = [checkpoints.newest(options.checkpoint_directory, report=say)]
    dist.broadcast_object_list(choice, src=0)
    if choice[0] is None:
        say(f"No checkpoint in {options.checkpoint_directory}: training starts from the beginning.")
        return 0
    step, path = choice[0]
    model.load_state_dict(torch.load(os.path.join(path, "model.pt"), map_location=device, weights_only=True))
    # The state of the random numbers belongs in main memory; the optimizer moves its own part to the device.
    state = torch.load(os.path.join(path, "training.pt"), map_location="cpu", weights_only=True)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state["optimizer"]})
    if dist.get_rank() < len(state["random"]):  # a run on more ranks than before: the new ones keep their seed
        mine = state["random"][dist.get_rank()]
        torch.set_rng_state(mine["cpu"])
        if device.type == "cuda" and "cuda" in mine:
            torch.cuda.set_rng_state(mine["cuda"], device)
    say(f"resumed={path} step={step}")
    return int(step)


def anyone(flag: bool, device: torch.device) -> bool:
    """Whether any rank says yes: all ranks must leave after the same step."""
    answer = torch.tensor([1.0 if flag else 0.0], device=device)
    dist.all_reduce(answer, op=dist.ReduceOp.MAX)
    return bool(answer.item() > 0)


def train(options: argparse.Namespace, device: torch.device) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    with open(options.text, "rb") as handle:
        text = torch.frombuffer(bytearray(handle.read()), dtype=torch.uint8)
    if len(text) < options.context + 2:
        sys.exit(
            f"{options.text} has {len(text)} bytes; --context {options.context} needs {options.context + 2} or more."
        )

    torch.manual_seed(options.seed)  # the same weights on every rank
    model = LanguageModel(options.width, options.layers, options.heads, options.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    torch.manual_seed(options.seed + 1 + rank)
    random.seed(options.seed + 1 + rank)
    first = resume(options, model, optimizer, device)
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    say(f"ranks={ranks} backend={dist.get_backend()} torch={torch.__version__} device={device.type}")

    step, began = first, time.monotonic()
    for step in range(first + 1, options.steps + 1):
        batch = batch_of(text, options, step, rank).to(device)
        logits = parallel(batch[:, :-1])
        loss = functional.cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step == first + 1 or step % options.log_every == 0 or step == options.steps:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            say(f"step={step} loss={mean.item() / ranks:.4f}")
        stop = anyone(bool(stop_signals), device)
        if stop or step % options.checkpoint_every == 0 or step == options.steps:
            save(options, step, model, optimizer, device)
        if stop:
            break
    say(f"done={'yes' if step >= options.steps else 'no'} step={step} seconds={time.monotonic() - began:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small language model; start it with torchrun.")
    parser.add_argument("--text", required=True, help="the file to learn from")
    parser.add_argument(
        "--checkpoint-directory", required=True, help="one folder per run, on storage that all nodes share"
    )
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="STEPS")
    parser.add_argument(
        "--keep", type=int, default=0, metavar="COUNT", help="newest checkpoints to keep; 0 keeps every one"
    )
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--batch-size", type=int, default=16, help="examples per rank and step")
    parser.add_argument("--context", type=int, default=64, help="bytes the model looks back")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interface", help="network interface between the nodes; found by itself when not given")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with torchrun, as train.sbatch does")
    for number in ("steps", "checkpoint_every", "log_every", "batch_size", "context"):
        if getattr(options, number) < 1:
            parser.error(f"--{number.replace('_', '-')} must be at least 1")

    signal.signal(signal.SIGUSR1, request_stop)
    signal.signal(signal.SIGTERM, request_stop)
    interface = options.interface or checkpoints.interface_towards(os.environ["MASTER_ADDR"])
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        if interface != "lo":
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    try:
        train(options, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # PyTorch's threads for Gloo outlive the process group where DistributedDataParallel was used. One that lets go of
    # its last tensor while Python shuts down aborts the process, after a training that went well. So Python doesn't.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
