"""A real object store on the loopback address: data, runs that go on elsewhere, two writers, a store that is gone."""

import os
import subprocess
from contextlib import contextmanager
from http import HTTPStatus
from importlib.util import find_spec

import numpy as np
import pytest
import yaml

from rl_training import faults
from rl_training.data.dataset_loaders import load_dataset
from rl_training.errors import RunBusyError
from rl_training.remote.index import newest_index
from rl_training.remote.mirror import Mirror
from rl_training.remote.runs import local_run
from rl_training.remote.store import Store
from tests.helpers import assert_same_run, command, environment, run_cli, run_values, small_arrays
from tests.remote.test_data import put, same

NEEDED = {"s3": ("moto", "s3fs"), "gs": ("gcp_storage_emulator", "gcsfs")}


@pytest.fixture(scope="module", params=NEEDED)
def bucket(request):
    """The address of a bucket in a store that listens on the loopback address alone."""
    missing = [name for name in NEEDED[request.param] if find_spec(name) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed (make test-remote)")
    with pytest.MonkeyPatch.context() as patch, {"s3": amazon, "gs": google}[request.param](patch) as variables:
        for name, value in variables.items():
            patch.setenv(name, value)
        place = Store(f"{request.param}://bucket")
        if place.kind() is None:
            place._files.mkdir("bucket")
        yield place.address


@contextmanager
def amazon(_patch):
    """A store like S3, and the variables that lead to it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    keys = {"AWS_ACCESS_KEY_ID": "one", "AWS_SECRET_ACCESS_KEY": "two", "AWS_DEFAULT_REGION": "us-east-1"}
    yield {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.get_host_and_port()[1]}"}
    server.stop()


@contextmanager
def google(patch):
    """The same of Google's, which is taught what it lacks: not to write a file that must not exist and does."""
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers import objects
    from gcp_storage_emulator.server import create_server

    write = objects._multipart_upload

    def write_if_allowed(request, response, storage):
        try:
            storage.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
            found = True
        except NotFound:
            found = False
        if found and request.query.get("ifGenerationMatch") == ["0"]:
            response.status = HTTPStatus.PRECONDITION_FAILED
            response.json({"error": {"code": 412, "message": "a condition does not hold"}})
        else:
            write(request, response, storage)

    patch.setattr(objects, "_multipart_upload", write_if_allowed)
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="bucket")
    server.start()
    port = server._api._httpd.server_port
    quick = {"NO_GCE_CHECK": "true", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # no questions to Google's own servers
    yield {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", **quick}
    server.stop()


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(run_values()))
    return tmp_path / "config.yaml"


def test_files_folders_and_globs_are_read_from_the_store(bucket, machine, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in (1, 2):
        np.savez(logs / f"run{number}.npz", **small_arrays(rows=20, seed=number))
    put(logs, f"{bucket}/logs")
    assert same(load_dataset(f"{bucket}/logs"), load_dataset(logs))
    assert same(load_dataset(f"{bucket}/logs/*2.npz"), load_dataset(logs / "run2.npz"))
    assert "20" in run_cli("data", "inspect", f"{bucket}/logs/run1.npz").stdout


@pytest.mark.parametrize("point", ["mirror:file@14", "mirror:before-index@3"])
def test_a_run_killed_while_it_copies_goes_on_on_another_machine_bit_for_bit(point, bucket, machine, config, tmp_path):
    address = f"{bucket}/{point.replace(':', '-').replace('@', '-')}"
    arguments = command("train", config, "--run-dir", address)
    done = subprocess.run(
        arguments, env=environment(**{faults.VARIABLE: point}), capture_output=True, check=False, timeout=100
    )
    assert done.returncode == -9
    assert newest_index(Store(address)).writer["writing"]
    machine("second")
    done = run_cli("resume", address)
    assert f"run: {address}" in done.stdout
    run_cli("train", config, "--run-dir", tmp_path / "whole")
    machine("third")
    assert_same_run(tmp_path / "whole", local_run(address))


def test_the_store_lets_one_of_two_writers_through(bucket, machine):
    place = Store(f"{bucket}/exclusive")
    assert place.create("index/000000001.json", b"{}")
    assert not place.create("index/000000001.json", b"{ }")
    address = f"{bucket}/two"
    one, other = (Mirror(address, print) for _ in range(2))
    one.claim()
    other._copy.remember(1, {})
    other.claim()
    with pytest.raises(RunBusyError, match="has taken over"):
        one.save()


def test_a_store_that_is_gone_is_one_line(bucket, machine, config):
    nowhere = dict.fromkeys(("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"), "http://127.0.0.1:9")
    done = run_cli("train", config, "--run-dir", f"{bucket}/run", code=6, **nowhere)
    assert "the store does not answer as it should" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_bucket_that_does_not_exist_is_named(bucket, machine, config):
    missing = bucket.replace("bucket", "no-such-bucket")
    assert "there is no run here" in run_cli("evaluate", f"{missing}/run", code=4).stderr
    done = run_cli("train", config, "--run-dir", f"{missing}/run", code=6)
    assert "there is no such place in the store" in done.stderr


def test_missing_credentials_are_one_line(bucket, machine, tmp_path):
    if not bucket.startswith("s3:"):
        pytest.skip("Google's store is asked without credentials here")
    nobody = {name: "" for name in os.environ if name.startswith("AWS_") and "KEY" in name}
    done = run_cli("evaluate", f"{bucket}/run", code=6, **nobody, AWS_EC2_METADATA_DISABLED="true", HOME=str(tmp_path))
    assert "credentials" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
