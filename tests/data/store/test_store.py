"""Our own format: written whole or not at all, verified, mapped, and streamed with the numbers of in-memory training."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest

from rl_training.config.loading import make_config
from rl_training.data import Batch, DatasetWriter, TransitionDataset, load_dataset, save_dataset
from rl_training.data.processing import ProcessedDataset, StreamedDataset, process_dataset
from rl_training.data.row_view import RowView
from rl_training.errors import ConfigError, DatasetError
from rl_training.rng import Draws
from rl_training.runtime.batches.dataset import DatasetBatches
from rl_training.runtime.batches.prefetch import PrefetchedBatches, dataset_batches
from rl_training.runtime.progress import LineReporter
from tests.helpers import Start, assert_same_run, call_cli, environment, fingerprint, run_values, small_arrays, tiny_run
from tests.logs import FIELDS


@pytest.fixture
def data():
    arrays = small_arrays(rows=700, length=35)
    optional = {"next_actions": arrays["actions"][::-1].copy(), "returns_to_go": arrays["rewards"] * 2}
    return TransitionDataset.from_dict({**arrays, **optional}, action_low=[-2, -2], action_high=[2, 2])


def test_round_trip_is_mapped_and_equal(data, tmp_path):
    save_dataset(data, tmp_path / "d")
    stored = load_dataset(tmp_path / "d")
    for name in (*FIELDS, "next_actions", "returns_to_go"):
        assert np.array_equal(getattr(stored, name), getattr(data, name)), name
    assert stored.fingerprint == data.fingerprint == replace(stored, records=None).fingerprint
    assert stored.spaces.action_high.tolist() == [2, 2]
    assert stored.records is not None
    assert not isinstance(stored.observations, np.ndarray)  # nothing is in memory
    plain = np.load(tmp_path / "d" / "rows.npy", allow_pickle=False)  # an ordinary npy file, for everybody else
    assert np.array_equal(plain["rewards"], data.rewards)


def test_npz_output(data, tmp_path):
    save_dataset(data, tmp_path / "d.npz")
    assert load_dataset(tmp_path / "d.npz").fingerprint == data.fingerprint  # bounds and all
    with pytest.raises(ConfigError, match="already exists"):
        save_dataset(data, tmp_path / "d.npz")


def write_parts(path, *parts, overwrite=False):
    with DatasetWriter(path, overwrite=overwrite) as writer:
        for part in parts:
            writer.append(part)


def test_parts_join_at_a_boundary(data, tmp_path):
    write_parts(tmp_path / "d", replace(data, timeouts=np.zeros_like(data.timeouts)), data)
    joined = load_dataset(tmp_path / "d")
    assert len(joined) == 2 * len(data)
    assert joined.episode_ends[len(data) - 1]
    with pytest.raises(DatasetError, match="differ from those before"):
        write_parts(tmp_path / "e", data, replace(data, returns_to_go=None))
    assert not (tmp_path / "e").exists()
    with pytest.raises(DatasetError, match="nothing to write"):
        write_parts(tmp_path / "e")
    assert list(tmp_path.iterdir()) == [tmp_path / "d"]


def test_a_failed_write_leaves_nothing_and_the_old_one(data, tmp_path):
    save_dataset(data, tmp_path / "d")
    before = (tmp_path / "d" / "rows.npy").read_bytes()
    with pytest.raises(AttributeError):
        write_parts(tmp_path / "d", data, None, overwrite=True)
    assert (tmp_path / "d" / "rows.npy").read_bytes() == before
    with pytest.raises(ConfigError, match="already exists; choose another name, or --overwrite"):
        save_dataset(data, tmp_path / "d")
    (tmp_path / "foreign").mkdir()
    with pytest.raises(ConfigError, match="already exists; choose another name"):
        save_dataset(data, tmp_path / "foreign", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "foreign"]


def test_every_flipped_bit_and_every_cut_is_noticed(data, tmp_path):
    save_dataset(data, tmp_path / "d")
    refused = 0
    for name in ("rows.npy", "manifest.json"):
        path = tmp_path / "d" / name
        good = path.read_bytes()
        places = range(0, len(good), max(1, len(good) // 60))
        for place in places:
            flipped = bytearray(good)
            flipped[place] ^= 1 << (place % 8)
            for bad in (bytes(flipped), good[:place]):
                path.write_bytes(bad)
                with pytest.raises(DatasetError, match=r"rows\.npy|manifest\.json|no dataset"):
                    load_dataset(tmp_path / "d", format="rl_training")
                refused += 1
        path.write_bytes(good)
    assert refused > 200
    assert load_dataset(tmp_path / "d").fingerprint == data.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1},
        {"rows": 2**62},
        {"fields": [["observations", "|O", [3]]]},
        {"fields": "x"},
        {"action_low": [0.0]},
        {"observation_names": ["a"]},
        {"observation_names": [["a"], "b", "c"]},
        {"action_names": "ab"},
        {"format": 9},
        {"kind": "rl_training checkpoint"},
    ],
)
def test_manifests_that_lie_are_refused(data, tmp_path, change):
    from rl_training.storage import canonical_json, sha256

    save_dataset(data, tmp_path / "d")
    path = tmp_path / "d" / "manifest.json"
    manifest = json.loads(path.read_text()) | change
    manifest.pop("sha256")
    path.write_bytes(canonical_json({**manifest, "sha256": sha256(canonical_json(manifest))}))
    with pytest.raises(DatasetError):
        load_dataset(tmp_path / "d")


def test_a_link_in_place_of_the_rows_is_refused(data, tmp_path):
    save_dataset(data, tmp_path / "d")
    rows = tmp_path / "d" / "rows.npy"
    rows.rename(tmp_path / "elsewhere")
    rows.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match="is damaged"):
        load_dataset(tmp_path / "d")


def processed(data, kwargs, needs=()):
    config = make_config(run_values("cal_ql", env_id=None, algo_kwargs={"dataset": {"path": "x"}, **kwargs}))
    return process_dataset(RowView(data), config.algo_kwargs, data.spaces, needs=needs)


@pytest.mark.parametrize("stored_next", [True, False])
@pytest.mark.parametrize(("n_step", "needs"), [(1, ()), (1, ("next_actions", "returns_to_go")), (4, ("next_actions",))])
def test_streamed_rows_are_the_rows_in_memory(data, n_step, needs, stored_next, tmp_path):
    """Whitened observations, transformed rewards, next actions, steps, returns: made while reading, equal bit for bit."""
    data = data if stored_next else replace(data, next_actions=None)
    many = TransitionDataset.from_dict({name: np.tile(v, (200, *[1] * (v.ndim - 1))) for name, v in data.fields().items()})
    save_dataset(many, tmp_path / "d")
    stored = load_dataset(tmp_path / "d")
    kwargs = {"n_step": n_step, "normalize_observations": True, "reward": {"normalize": True, "shift": 0.5}}
    memory = processed(many, {**kwargs, "max_dataset_bytes": "1GiB"}, needs)
    streamed = processed(stored, {**kwargs, "max_dataset_bytes": "1MiB"}, needs)
    assert isinstance(memory, ProcessedDataset)
    assert isinstance(streamed, StreamedDataset)
    rows = np.random.Generator(np.random.Philox(0)).integers(0, len(many), 5000)
    assert np.array_equal(streamed.fetch(rows), memory.fetch(rows), equal_nan=True)


RUNS = [
    ("iql", {}),
    ("cal_ql", {}),
    ("td3_bc", {}),
    ("iql", {"validation": {"fraction": 0.25}, "normalize_observations": True, "n_step": 3}),
]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A stored dataset of more than a mebibyte."""
    path = tmp_path_factory.mktemp("large") / "d"
    save_dataset(TransitionDataset.from_dict(small_arrays(rows=30_000, length=50, observation_dim=5)), path)
    return path


@pytest.mark.parametrize(("algo", "kwargs"), RUNS)
def test_streamed_training_is_bit_identical(algo, kwargs, large, tmp_path):
    for name, limit in (("memory", "1GiB"), ("streamed", "1MiB")):
        settings = {"dataset": {"path": str(large)}, "max_dataset_bytes": limit, **kwargs}
        tiny_run(tmp_path / name, algo, env_id=None, algo_kwargs=settings)
    assert_same_run(tmp_path / "memory", tmp_path / "streamed")


def test_streamed_population_and_resume_across_the_limit(large, tmp_path):
    """Members stream their own rows, and a resume may stream what the first part had in memory."""

    def run(name, limit, steps=120, **more):
        settings = {"dataset": {"path": str(large)}, "max_dataset_bytes": limit}
        changes = {"seeds": [0, 1], "learning_rate_schedule": "constant", "total_timesteps": steps}
        tiny_run(tmp_path / name, env_id=None, algo_kwargs=settings, **changes, **more)

    run("whole", "1GiB")
    run("parts", "1MiB", steps=50)
    start = Start()
    run("parts", "1GiB", resume=True, reporter=start)
    assert start.first == 50
    tensors, _ = fingerprint(tmp_path / "whole")
    others, _ = fingerprint(tmp_path / "parts")
    assert all(np.array_equal(tensors[name], others[name]) for name in tensors)


@pytest.mark.parametrize("place", ["disk", "host"])
def test_fetching_ahead_never_changes_a_batch(place, data, tmp_path):
    """Whatever steps are asked for in whatever pieces, a step's batch is that of rows on the device."""
    import torch

    many = TransitionDataset.from_dict({name: np.tile(v, (200, *[1] * (v.ndim - 1))) for name, v in data.fields().items()})
    save_dataset(many, tmp_path / "d")
    whole = processed(many, {"max_dataset_bytes": "1GiB"})
    elsewhere = processed(load_dataset(tmp_path / "d"), {"max_dataset_bytes": "1MiB"}) if place == "disk" else whole
    place_of = {"seeds": torch.tensor([3, 4]), "batch_size": 16, "device": torch.device("cpu")}
    source = dataset_batches(elsewhere, **place_of, prior=True, device_bytes=whole.rows.nbytes - 1)
    plain = dataset_batches(whole, **place_of, prior=True, device_bytes=whole.rows.nbytes)
    assert (type(source), type(plain)) == (PrefetchedBatches, DatasetBatches)
    for first, count in ((0, 7), (7, 7), (14, 3), (17, 9), (2, 4), (6, 1)):
        for ours, theirs in zip(batches_of(source, first, count), batches_of(plain, first, count), strict=True):
            for field in fields(Batch):
                one, other = getattr(ours, field.name), getattr(theirs, field.name)
                assert (one is None and other is None) or torch.equal(one, other)
    source.close()


def batches_of(source, first, count):
    """The batches of some steps, gathered as the steps take them."""
    draws = Draws.of_steps(source.seeds, first, count)
    source.load(first, count)
    indices, prior = source.indices(lambda stream: draws.bits(stream, (source.batch_size,), 0, count), count)
    rows = source.gather(indices)
    return [source.batch(rows[offset], prior[offset]) for offset in range(count)]


def test_eager_steps_take_over_where_a_graph_would_have_read_a_fixed_buffer(data):
    """A chunk is longer than the buffer of a graph's block: once compiling has failed, all its rows are needed at once."""
    import torch

    rows = processed(data, {"max_dataset_bytes": "1GiB"})
    place = {"seeds": torch.tensor([3]), "batch_size": 4, "device": torch.device("cpu"), "prior": True}
    plain, fixed = dataset_batches(rows, **place), dataset_batches(rows, **place, device_bytes=0)
    fixed.use_fixed_buffer(20)
    for first, count in ((0, 20), (20, 100), (120, 5)):
        for one, other in zip(batches_of(fixed, first, count), batches_of(plain, first, count), strict=True):
            assert torch.equal(one.observations, other.observations)
    fixed.close()


@pytest.mark.parametrize("algo", ["cal_ql", "rlpd"])
def test_a_run_whose_rows_do_not_fit_on_the_device_is_the_same_and_says_so(algo, tmp_path, monkeypatch, capsys):
    tiny_run(tmp_path / "device", algo, reporter=LineReporter())
    assert "stay in the host's memory" not in capsys.readouterr().err
    monkeypatch.setattr("rl_training.runtime.batches.prefetch._room", lambda *_: 0)
    tiny_run(tmp_path / "host", algo, reporter=LineReporter())
    assert "rows stay in the host's memory, since they would take" in capsys.readouterr().err
    assert_same_run(tmp_path / "device", tmp_path / "host")


def test_a_file_that_changes_during_training_stops_it_with_a_checkpoint(large, tmp_path):
    from rl_training.runtime.callbacks import Callback

    shutil.copytree(large, tmp_path / "d")

    class Touch(Callback):
        def on_log(self, step, rows):
            if step == 50:
                os.utime(tmp_path / "d" / "rows.npy", (1, 1))

    settings = {"dataset": {"path": str(tmp_path / "d")}, "max_dataset_bytes": "1MiB"}
    changes = {"env_id": None, "checkpoint_interval": 1000, "algo_kwargs": settings}
    with pytest.raises(DatasetError, match=r"rows\.npy: was changed while it was in use"):
        tiny_run(tmp_path / "run", callbacks=[Touch()], **changes)
    start = Start()
    tiny_run(tmp_path / "run", resume=True, reporter=start, **changes)
    assert 50 <= start.first < 120  # saved at the step it had reached
    tiny_run(tmp_path / "whole", **changes)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_prior_data_of_an_online_phase_must_fit(tmp_path):
    arrays = small_arrays(rows=60_000, length=50, observation_dim=3, action_dim=1)
    save_dataset(TransitionDataset.from_dict(arrays), tmp_path / "d")
    settings = {"dataset": {"path": str(tmp_path / "d")}, "max_dataset_bytes": "1MiB"}
    with pytest.raises(ConfigError, match="rlpd needs its prior data in memory"):
        tiny_run(tmp_path / "run", "rlpd", algo_kwargs=settings)


def test_files_beyond_the_limit_say_how_to_train_from_them(tmp_path):
    np.savez(tmp_path / "d.npz", **small_arrays(rows=40_000))
    settings = {"dataset": {"path": str(tmp_path / "d.npz")}, "max_dataset_bytes": "1MB"}
    with pytest.raises(ConfigError, match="max_dataset_bytes"):
        tiny_run(tmp_path / "run", env_id=None, algo_kwargs=settings)
    settings["max_dataset_bytes"] = 2**20
    with pytest.raises(DatasetError, match="rl-training data convert"):
        tiny_run(tmp_path / "run", env_id=None, algo_kwargs=settings)


def test_convert_from_the_shell(tmp_path, capsys):
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", **small_arrays(seed=ord(name)))
    call_cli(capsys, "data", "convert", tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "d")
    assert len(load_dataset(tmp_path / "d")) == 120
    call_cli(capsys, "data", "convert", tmp_path / "a.npz", tmp_path / "d", code=2)
    done = call_cli(capsys, "data", "convert", tmp_path / "a.npz", tmp_path / "d", "--overwrite", "--json")
    assert json.loads(done.stdout) == {"written": [{"path": str(tmp_path / "d"), "rows": 60}]}


def test_a_store_with_nan_is_refused(data, tmp_path):
    """A valid hash is no proof of good numbers."""
    bad = replace(data, rewards=np.where(np.arange(len(data)) == 7, np.nan, data.rewards).astype(np.float32))
    save_dataset(bad, tmp_path / "d")
    with pytest.raises(DatasetError, match="`rewards` is NaN or inf in row 7"):
        load_dataset(tmp_path / "d")


def test_parts_written_one_by_one_have_the_fingerprint_of_the_whole(data, tmp_path):
    from rl_training.data.row_view import RowView

    with DatasetWriter(tmp_path / "d") as writer:
        for part in RowView(data).parts(rows=100):
            writer.append(part.copy())
    assert load_dataset(tmp_path / "d").fingerprint == data.fingerprint
    save_dataset(RowView(replace(data, origin="one place")), tmp_path / "named")
    assert load_dataset(tmp_path / "named").origin == "one place"
    unmarked = TransitionDataset.from_dict({**data.fields(), "timeouts": data.timeouts & (np.arange(len(data)) < 600)})
    save_dataset(unmarked, tmp_path / "e")
    assert load_dataset(tmp_path / "e").fingerprint == unmarked.fingerprint


def test_bounds_given_for_a_mapped_dataset_leave_it_mapped(data, tmp_path):
    save_dataset(data, tmp_path / "d")
    wide = load_dataset(tmp_path / "d", action_low=[-9, -9], action_high=[9, 9])
    assert wide.records is not None
    assert wide.spaces.action_high.tolist() == [9, 9]
    assert wide.fingerprint != data.fingerprint
    assert wide.fingerprint == replace(data, action_low=wide.action_low, action_high=wide.action_high).fingerprint
    near = [load_dataset(tmp_path / "d", action_low=[-1, -1], action_high=[1, high]).fingerprint for high in (1.0, 1.0000001)]
    assert near[0] != near[1]
    with pytest.raises(DatasetError, match="max_dataset_bytes"):
        load_dataset(tmp_path / "d", ends="timeouts", max_bytes=1000)


@pytest.mark.parametrize("name", ["d", "d.npz", "*"])
def test_what_a_killed_writer_left_is_removed_and_nothing_else(data, tmp_path, monkeypatch, name):
    def dies(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rl_training.storage.shutil.rmtree", lambda *_, **__: None)  # a killed process removes nothing
        patched.setattr("rl_training.storage.os.getpid", lambda: 999999999)
        patched.setattr("rl_training.data.store.directory.write_manifest", dies)
        patched.setattr("numpy.savez", dies)
        with pytest.raises(KeyboardInterrupt):
            save_dataset(data, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir() if ".tmp-" in path.name] == [f"{name}.tmp-999999999"]
    others = ("d.tmp-20240131", "*.tmp-20240131", "e.tmp-999999998")
    for other in others:
        (tmp_path / other).mkdir()
        (tmp_path / other / "rows.npy").write_bytes(b"of the user")
    save_dataset(data, tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {name, *others}


@pytest.mark.parametrize("name", ["d.h5", "d.csv", "d.parquet"])
def test_names_of_other_formats_are_refused(data, tmp_path, name):
    with pytest.raises(ConfigError, match="written as a directory or as .npz"):
        save_dataset(data, tmp_path / name)


TRUNCATED = """
import sys, os
import numpy as np
from pathlib import Path
from rl_training.data import load_dataset
from rl_training.errors import DatasetError
data = load_dataset(sys.argv[1])
os.truncate(Path(sys.argv[1]) / "rows.npy", 4096)
for read in (
    lambda: data.observations[:],
    lambda: data.rewards[np.arange(0, len(data), 7)],
    lambda: data.records.fetch(np.arange(9_000, 9_100)),
    lambda: data.terminals | data.timeouts,
    lambda: data.episode_returns(),
):
    object.__setattr__(data.records, "stamp", (4096, os.stat(data.records.path).st_mtime_ns))  # truncated after the check
    try:
        read()
    except DatasetError as error:
        print(error)
"""


def test_a_file_truncated_at_any_moment_never_ends_the_process(tmp_path):
    """Truncated between the check and the read, too: mapped memory would end the process with SIGBUS."""
    save_dataset(TransitionDataset.from_dict(small_arrays(rows=20_000)), tmp_path / "d")
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATED, str(tmp_path / "d")], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("was changed while it was in use") == 5


def test_rows_are_the_same_however_they_are_asked_for(data, tmp_path):
    stored = load_dataset(save_dataset(data, tmp_path / "d"))
    draw = np.random.Generator(np.random.Philox(0))
    some = draw.integers(0, len(data), 300)
    for name, values in data.fields().items():
        found = getattr(stored, name)
        flags = values.reshape(len(data), -1)[:, 0] > 0
        for rows in (slice(3, 40), slice(None, None, 7), some, some.reshape(3, 100), flags, 5, -1):
            assert np.array_equal(found[rows], values[rows]), (name, rows)
        assert (found.shape, found.dtype, found.nbytes) == (values.shape, values.dtype, values.nbytes)
        assert np.array_equal(found, values)
        assert len(list(found)) == len(values)
        with pytest.raises(IndexError):
            found[len(values)]
    stored.records._gather_call = None  # as where the system has no such call
    assert np.array_equal(stored.records.fetch(some)["rewards"], data.rewards[some])
