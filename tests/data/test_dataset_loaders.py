import h5py
import numpy as np
import pytest

from rl_training.data import load_dataset
from rl_training.errors import DatasetError
from tests.helpers import SHARED, small_arrays


def write_hdf5(path, arrays):
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            file[name] = value
    return path


def same(data, arrays, names=("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")):
    return all(np.array_equal(getattr(data, name), arrays[name]) for name in names)


def test_npz_round_trip(tmp_path):
    arrays = small_arrays()
    arrays["returns_to_go"] = arrays["rewards"]
    np.savez(tmp_path / "d.npz", **arrays)
    data = load_dataset(tmp_path / "d.npz")
    assert same(data, {**arrays})
    assert np.array_equal(data.returns_to_go, arrays["rewards"])


def test_npz_with_short_names(tmp_path):
    arrays = small_arrays()
    np.savez(
        tmp_path / "d.npz",
        obs=arrays["observations"],
        action=arrays["actions"],
        reward=arrays["rewards"][:, None],
        next_obs=arrays["next_observations"],
        done=arrays["terminals"][:, None],
        truncated=arrays["timeouts"][:, None],
    )
    assert same(load_dataset(tmp_path / "d.npz"), arrays)


def test_flat_hdf5_round_trip(tmp_path):
    arrays = small_arrays()
    write_hdf5(tmp_path / "d.h5", {**arrays, "infos": np.zeros(3)})
    assert same(load_dataset(tmp_path / "d.h5"), arrays)
    assert same(load_dataset(tmp_path / "d.h5", format="hdf5"), arrays)


def test_hdf5_without_next_observations_drops_what_is_unknown(tmp_path):
    observations = np.arange(8, dtype=np.float32)[:, None]
    arrays = {
        "observations": observations,
        "actions": np.zeros((8, 1), dtype=np.float32),
        "rewards": np.arange(8, dtype=np.float32),
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0, 0], dtype=bool),
        "timeouts": np.array([0, 0, 0, 0, 0, 1, 0, 0], dtype=bool),
    }
    data = load_dataset(write_hdf5(tmp_path / "d.h5", arrays))
    assert data.rewards.tolist() == [0, 1, 2, 3, 4, 6]  # rows 5 and 7 have no known successor
    assert data.next_observations[:, 0].tolist() == [1, 2, 2, 4, 5, 7]
    assert data.terminals.tolist() == [False, False, True, False, False, False]
    assert data.timeouts.tolist() == [False, False, False, False, True, True]


def test_dones_and_names_of_ends(tmp_path):
    arrays = small_arrays()
    terminals, timeouts = arrays.pop("terminals"), arrays.pop("timeouts")
    dones = terminals | timeouts
    for without in ((), ("next_observations",)):
        rest = {name: value for name, value in arrays.items() if name not in without}
        np.savez(tmp_path / "a.npz", **rest, dones=dones, timeouts=timeouts)
        np.savez(tmp_path / "b.npz", **rest, terminations=terminals, truncations=timeouts)
        np.savez(tmp_path / "c.npz", **rest, terminals=terminals, timeouts=timeouts, dones=dones)
        first, second, third = (load_dataset(tmp_path / f"{name}.npz") for name in "abc")
        assert first.fingerprint == second.fingerprint == third.fingerprint
        assert first.terminals.sum() == terminals.sum()
    np.savez(tmp_path / "d.npz", **arrays)
    unmarked = load_dataset(tmp_path / "d.npz")
    assert not unmarked.terminals.any()
    assert "no true ends are marked" in unmarked.origin


@pytest.mark.parametrize("without", [(), ("next_observations",)])
@pytest.mark.parametrize("change", [{"rewards": np.zeros(3)}, {"rewards": np.zeros(0)}, {"observations": np.float32(1.0)}])
def test_ragged_arrays_are_refused(tmp_path, without, change):
    arrays = {name: value for name, value in {**small_arrays(), **change}.items() if name not in without}
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DatasetError, match="d.npz"):
        load_dataset(tmp_path / "d.npz")


def test_flipped_bits_in_a_compressed_file_are_never_a_traceback(tmp_path):
    np.savez_compressed(tmp_path / "d.npz", **small_arrays())
    data = (tmp_path / "d.npz").read_bytes()
    refused = 0
    for position in range(0, len(data), 37):
        flipped = bytearray(data)
        flipped[position] ^= 16
        (tmp_path / "d.npz").write_bytes(flipped)
        try:
            load_dataset(tmp_path / "d.npz")
        except DatasetError:
            refused += 1
    assert refused > 20


def test_old_d3rlpy_rewards_are_shifted(tmp_path):
    arrays = {
        "observations": np.arange(7, dtype=np.float32)[:, None],
        "actions": np.arange(7, dtype=np.float32)[:, None] / 10,
        "rewards": np.array([0, 1, 2, 0, 3, 4, 5], dtype=np.float32),
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0], dtype=np.float32),
        "episode_terminals": np.array([0, 0, 1, 0, 0, 0, 1], dtype=np.float32),
    }
    data = load_dataset(write_hdf5(tmp_path / "d.h5", arrays))
    assert data.rewards.tolist() == [1, 2, 3, 4, 5]  # episodes of 3 and 4 rows hold 2 and 3 transitions
    assert data.observations[:, 0].tolist() == [0, 1, 3, 4, 5]
    assert data.next_observations[:, 0].tolist() == [1, 2, 4, 5, 6]
    assert data.terminals.tolist() == [False, True, False, False, False]
    assert data.timeouts.tolist() == [False, False, False, False, True]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the third-party data is not here")
@pytest.mark.parametrize(("name", "mean"), [("pendulum_replay.h5", -183), ("pendulum_random.h5", -1229)])
def test_third_party_pendulum(name, mean):
    data = load_dataset(SHARED / name)
    statistics = data.statistics()
    assert statistics["rows"] == 100_000 - 498
    assert statistics["episodes"] == 498
    assert statistics["true_ends"] == 0
    assert statistics["return_mean"] == pytest.approx(mean, abs=1)
    cosine, sine, speed = data.observations.astype(np.float64).T
    torque = np.clip(data.actions[:, 0], -2, 2)
    reward = -(np.arctan2(sine, cosine) ** 2 + 0.1 * speed**2 + 0.001 * torque**2)
    assert np.abs(reward - data.rewards).max() < 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("rewards"), "`rewards` is missing"),
        (lambda a: a.update(obs_=a.pop("observations")), "`observations` is missing"),
        (lambda a: a["actions"].fill(np.nan), "`actions` is NaN or inf in 60 rows"),
    ],
)
def test_faults_name_the_file_and_the_field(tmp_path, change, message):
    arrays = small_arrays()
    change(arrays)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(write_hdf5(tmp_path / "bad.h5", arrays))
    assert "bad.h5" in str(caught.value)


def test_objects_are_never_unpickled(tmp_path):
    canary = tmp_path / "canary"

    class Bomb:
        def __reduce__(self):
            return (open, (str(canary), "w"))

    arrays = small_arrays()
    np.savez(tmp_path / "d.npz", **{**arrays, "rewards": np.array([Bomb()] * 60, dtype=object)})
    with pytest.raises(DatasetError, match="is a pickle, which may run code"):
        load_dataset(tmp_path / "d.npz")
    assert not canary.exists()


def test_links_and_storage_outside_the_file_are_refused(tmp_path):
    write_hdf5(tmp_path / "other.h5", small_arrays())
    arrays = small_arrays()
    rewards = arrays.pop("rewards")
    for kind in ("external link", "soft link", "external storage", "virtual"):
        path = write_hdf5(tmp_path / f"{kind.replace(' ', '-')}.h5", arrays)
        with h5py.File(path, "a") as file:
            if kind == "external link":
                file["rewards"] = h5py.ExternalLink("other.h5", "/rewards")
            elif kind == "soft link":
                file["rewards"] = h5py.SoftLink("/actions")
            elif kind == "external storage":
                (tmp_path / "raw").write_bytes(rewards.tobytes())
                file.create_dataset("rewards", (60,), "f4", external=[(str(tmp_path / "raw"), 0, 240)])
            else:
                layout = h5py.VirtualLayout((60,), "f4")
                layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "rewards", (60,))
                file.create_virtual_dataset("rewards", layout)
        with pytest.raises(DatasetError, match="link to somewhere else|not a plain array"):
            load_dataset(path)


def test_bombs_are_refused_before_allocation(tmp_path):
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        for name, value in small_arrays().items():
            if name != "rewards":
                file[name] = value
        file.create_dataset("rewards", (10**12,), "f4", chunks=(1000,))
    with pytest.raises(DatasetError, match="more than 80 %"):
        load_dataset(tmp_path / "bomb.h5")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="there is no such file"):
        load_dataset(tmp_path / "absent.npz")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(DatasetError, match="is not in a known format"):
        load_dataset(tmp_path / "text")
    path = write_hdf5(tmp_path / "d.h5", small_arrays())
    with pytest.raises(DatasetError, match="unknown format 'hdf'. Did you mean `hdf5`"):
        load_dataset(path, format="hdf")
    data = path.read_bytes()
    for cut in range(8, len(data), len(data) // 20):
        path.write_bytes(data[:cut])
        with pytest.raises(DatasetError):
            load_dataset(path)
