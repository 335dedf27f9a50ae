"""Several processes for one run, as `torchrun` starts them: each trains some of the members, and the first alone writes.

Where there are fewer members than ranks, all ranks have all members, and share every batch instead (`BatchRanks`).

Every rank runs the same loop over the whole population. What the loop decides by (metrics, evaluations, signals, callbacks)
is gathered first, so all ranks decide alike; only a member's parameters are on one rank alone. Messages are JSON, and the
last one of a rank says that it ends and why: then the others end too, instead of waiting for it.

A member has the same bits beside any number of others (`python -m benchmarks.member_bits`), but not alone: for one matrix
the CPU has other products than for a stack of them. So a rank with one member computes a neighbour beside it.
"""

import atexit
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from rl_training.config.run import RunConfig
from rl_training.errors import ConfigError, RankEndedError, RLTrainingError
from rl_training.registry import get_spec

_LONGEST_WAIT = timedelta(minutes=30)  # for a rank that compiles or evaluates while the others wait
_ONE_LINE = 500  # characters of a message

ValueT = TypeVar("ValueT")


class Ranks:
    """The processes of a run, of which this is one: by default the only one, which has all members."""

    def __init__(self, members: int, rank: int = 0, count: int = 1) -> None:
        self.members, self.rank, self.count = members, rank, count
        self._share = share = _shared_out(members, count, rank)
        self.own = share if len(share) > 1 or members == 1 else _two_beside(share.start, members)  # as the learner has them

    @property
    def work(self) -> str:
        """What the ranks share, in words."""
        return f"{self.count} ranks share {self.members} members"

    @property
    def writes(self) -> bool:
        """Whether this process writes the files of the run, calls the callbacks and talks to the user."""
        return self.rank == 0

    def gather(self, values: Sequence[ValueT]) -> list[ValueT]:
        """Return the values of all ranks, however many each has, one after another."""
        if self.count == 1:
            return list(values)
        return [value for message in self._exchange({"values": list(values)}) for value in message["values"]]

    def first(self, value: ValueT) -> ValueT:
        """Return the value of the first rank."""
        return self.gather([value])[0]

    def of_members(self, values: Sequence[ValueT]) -> list[ValueT]:
        """Return the values of all members, given those of the own ones."""
        first = self._share.start - self.own.start
        return self.gather(values[first : first + len(self._share)])

    def columns(self, columns: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
        """Return columns of all members, given those of the own ones under the same names."""
        rows = self.of_members([list(row) for row in zip(*columns.values(), strict=True)])
        return {name: [row[number] for row in rows] for number, name in enumerate(columns)}

    def own_rows(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the own members of tensors that have all members on their first axis."""
        return {name: value[self.own.start : self.own.stop] for name, value in tensors.items()}

    def all_rows(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors with all members on the rank that writes, given the own members of each; on others the same ones."""
        if self.count == 1:
            return dict(tensors)
        self.gather([])  # from here on nobody ends, unless the process does
        with ended_if_it_fails():
            return {name: self._all_rows(value) for name, value in tensors.items()}

    def use_device(self, name: str) -> str:
        """Return the device of this process for that of a config, and make it the current one: a GPU for each rank."""
        if self.count == 1 or name == "cpu" or ":" in name or not torch.cuda.is_available():
            return name
        local, found = int(os.environ.get("LOCAL_RANK", self.rank)), torch.cuda.device_count()
        if local >= found:
            raise ConfigError(
                f"rank {self.rank} has no GPU of its own: {found} are here; start fewer ranks, or use device=cpu"
            )
        torch.cuda.set_device(local)
        return f"cuda:{local}"

    def leave(self, error: BaseException | None) -> None:
        """Say that this rank ends, and why; returns when all others have heard it, and waits for those that end well."""
        text = "" if error is None else " ".join(str(error).split())[:_ONE_LINE] or type(error).__name__
        code = error.exit_code if isinstance(error, RLTrainingError) else int(error is not None)
        with suppress(RankEndedError):
            self._exchange({"ended": text, "code": code})

    def _all_rows(self, own: Tensor) -> Tensor:
        first = self._share.start - self.own.start
        part = own[first : first + len(self._share)].cpu().contiguous()
        if self.rank:
            dist.send(part, 0)
            return own
        parts = [part]
        for rank in range(1, self.count):
            part = torch.empty(len(_shared_out(self.members, self.count, rank)), *own.shape[1:], dtype=own.dtype)
            dist.recv(part, rank)
            parts.append(part)
        return torch.cat(parts)

    def _exchange(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """The messages of all ranks; a RankEndedError if one of them has ended."""
        with ended_if_it_fails():
            found = [json.loads(data) for data in _all_gathered(json.dumps(message).encode(), self.count)]
        for rank, one in enumerate(found):
            if "ended" in one:
                raise RankEndedError(f"rank {rank} ended: {one['ended']}", one["code"], told=not self.writes)
        return found


class BatchRanks(Ranks):
    """Ranks that all have all members, and share every batch; what one of them finds of a member, all find."""

    def __init__(self, members: int, rank: int, count: int) -> None:
        super().__init__(members)
        self.rank, self.count = rank, count

    @property
    def work(self) -> str:
        """What the ranks share, in words."""
        return f"{self.count} ranks share every batch"

    def of_members(self, values: Sequence[ValueT]) -> list[ValueT]:
        """Return the values of all members as the first rank has them, so that all decide alike."""
        return self.first(list(values))

    def all_rows(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors, which all ranks have; a ConfigError if theirs are not the same bits."""
        digest = hashlib.sha256()
        for value in tensors.values():
            digest.update(value.cpu().contiguous().view(torch.uint8).numpy().data)
        if len(set(self.gather([digest.hexdigest()]))) > 1:
            raise ConfigError("the ranks have come to different parameters; start them on processors or GPUs of one kind")
        return dict(tensors)


def _shared_out(members: int, count: int, rank: int) -> range:
    """The members of a rank: as many as others have, or one more for the first ranks."""
    each, more = divmod(members, count)
    first = rank * each + min(rank, more)
    return range(first, first + each + (rank < more))


def _two_beside(member: int, members: int) -> range:
    """A member and a neighbour of it."""
    first = min(member, members - 2)
    return range(first, first + 2)


def _all_gathered(data: bytes, count: int) -> list[bytes]:
    """The bytes of each rank."""
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(count)]
    dist.all_gather(lengths, torch.tensor([len(data)]))
    longest = max(int(length) for length in lengths)
    padded = torch.frombuffer(bytearray(data.ljust(longest, b" ")), dtype=torch.uint8)
    found = [torch.empty_like(padded) for _ in range(count)]
    dist.all_gather(found, padded)
    return [part.numpy().tobytes() for part in found]


@contextmanager
def ended_if_it_fails() -> Iterator[None]:
    """Turn an error of a connection into a one-line RankEndedError."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1][:200]
        raise RankEndedError(
            f"another process of the run is gone ({reason}); go on from the last checkpoint with `rl-training resume`"
        ) from error


@contextmanager
def joined(config: RunConfig[Any]) -> Iterator[Ranks]:
    """Yield the ranks of a run: all processes that `torchrun` started, or this one alone.

    An error of one rank ends the others; the first reports it.
    """
    count = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    members = len(config.member_seeds)
    if count == 1:
        yield Ranks(members)
        return
    _check_split(config, count)
    if not dist.is_initialized():  # it stays for the next run of this process
        dist.init_process_group("gloo", timeout=_LONGEST_WAIT)
        atexit.register(_end_group)
    elif dist.get_backend() != "gloo":
        raise ConfigError(f"this program has set up torch.distributed with {dist.get_backend()}; several ranks need gloo")
    ranks = (BatchRanks if members < count else Ranks)(members, dist.get_rank(), count)
    try:
        if len(set(ranks.gather([config.to_yaml()]))) > 1:
            raise ConfigError("the ranks were started with different configs; give all of them the same command")
        yield ranks
        ranks.leave(None)
    except RankEndedError:
        raise
    except BaseException as error:
        ranks.leave(error)
        if isinstance(error, RLTrainingError):
            error.told = not ranks.writes
        raise


def _end_group() -> None:
    """End the threads of gloo before the interpreter does: those that outlive it abort a finished run."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _check_split(config: RunConfig[Any], count: int) -> None:
    """Refuse a run that cannot be shared by `count` ranks; each finds so by itself, and the first tells it."""
    if (reason := _not_shared(config, count)) is not None:
        error = ConfigError(f"WORLD_SIZE is {count}: several ranks {reason}")
        error.told = int(os.environ["RANK"]) > 0
        raise error


def _not_shared(config: RunConfig[Any], count: int) -> str | None:
    """Why a run cannot be shared by `count` ranks; None if it can."""
    members = len(config.member_seeds)
    if get_spec(config.algo).online or config.finetune is not None:
        return "share the members of an offline run; train online and finetune in one process"
    if members < count:
        return _not_split(config, count)
    if config.select_by == "fqe":
        return "cannot choose by fqe, which one process computes for all policies; use another `select_by`"
    return None


def _not_split(config: RunConfig[Any], count: int) -> str | None:
    """Why the batches of a run cannot be split over `count` ranks; None if they can."""
    members, rows = len(config.member_seeds), config.algo_kwargs.batch_size
    few = f"share every batch of a run with fewer members than ranks ({members})"
    if rows % count:
        return f"{few}, and batch_size = {rows} is not a multiple of {count}; change either, or give more --seeds"
    if config.engine in ("compile", "graph"):
        return f"{few}, step by step; use engine=eager"
    return None
