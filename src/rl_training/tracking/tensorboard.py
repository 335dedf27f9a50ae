"""TensorBoard: one event file per member under `<run>/tensorboard`."""

import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from rl_training.tracking.subject import Member, Row, Subject

_OURS = re.compile(r"events\.out\.tfevents\.\d+\..+\.[0-9a-f]{12}")  # time, host, and the id of the run
_HEADER = 2  # records before the first row: the version of the format, the hyper-parameters


class TensorBoardSink:
    """One record per row, so that the number of records tells what an event file holds.

    Values are plain scalars in single precision, which every reader of event files understands. An event file is continued
    after a resume; a record that was cut off is removed first.
    """

    def __init__(self, subject: Subject) -> None:
        root = subject.run_dir / "tensorboard"
        self.where = f"tensorboard --logdir {root}"
        alone = len(subject.members) == 1
        self._streams: dict[int, BinaryIO] = {}
        self._held: dict[int, int] = {}
        for member in subject.members:
            folder = root if alone else root / member.name
            _remove_others(folder, subject.id)
            stream, records = _open(folder, subject.id)
            self._streams[member.number] = stream
            for event in _header(member)[records:]:
                RecordWriter(stream).write(event.SerializeToString())
            self._held[member.number] = max(records - _HEADER, 0)

    def send(self, rows: list[Row]) -> None:
        """Append the rows that the event files lack."""
        for row in rows:
            if row.index >= self._held[row.member]:
                scalars = [Summary.Value(tag=name, simple_value=value) for name, value in row.values.items()]
                event = Event(wall_time=time.time(), step=row.position, summary=Summary(value=scalars))
                RecordWriter(self._streams[row.member]).write(event.SerializeToString())

    def close(self, *, finished: bool) -> None:
        """Close the event files."""
        del finished
        for stream in self._streams.values():
            stream.close()


def _remove_others(folder: Path, run_id: str) -> None:
    """Remove what a run that started over wrote for a member; no other file, since users keep theirs here too."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _OURS.fullmatch(path.name) and not path.name.endswith(f".{run_id}"):
            path.unlink()


def _open(folder: Path, run_id: str) -> tuple[BinaryIO, int]:
    """Return the event file of a run in a folder, open for appending after its last whole record, and how many it has."""
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(folder.glob(f"events.out.tfevents.*.{run_id}"))
    path = found[0] if found else folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{run_id}"
    stream = path.open("a+b", buffering=0)  # a record is one write: readers see it at once, and a kill cuts none
    data = path.read_bytes()
    begins = [*_record_begins(data)]  # of the records, and of what would follow them
    if len(begins) > 1 and not _intact(data[begins[-2] : begins[-1]]):
        begins.pop()
    stream.truncate(begins[-1])
    return stream, len(begins) - 1


def _record_begins(data: bytes) -> Iterator[int]:
    """Yield where records begin, as long as they are whole: length, its checksum, the content, its checksum.

    Checksums are computed in Python, so that of the content is left to the last record, which alone can be damaged by a cut.
    """
    begin = 0
    while begin <= len(data):
        yield begin
        if begin + 12 > len(data):
            return
        size, check = struct.unpack_from("<QI", data, begin)
        if check != masked_crc32c(data[begin : begin + 8]):
            return
        begin += 16 + size


def _intact(record: bytes) -> bool:
    return bool(struct.pack("<I", masked_crc32c(record[12:-4])) == record[-4:])


def _header(member: Member) -> list[Event]:
    """Return the first records of an event file: the version of the format, and what the HParams page shows."""
    hyperparameters = hparams_pb(member.hyperparameters)
    version = Event(wall_time=time.time(), file_version="brain.Event:2")
    return [version, Event(wall_time=time.time(), step=0, summary=hyperparameters)]
