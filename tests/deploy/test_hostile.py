"""Exports that someone changed with care, manifest included: refused in one line, nothing executed, no memory eaten."""

import io
import json
import os
import zipfile

import numpy as np
import pytest

from rl_training import CheckpointError, export_policy, load_export
from rl_training.storage import canonical_json, read_manifest, sha256, write_manifest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
FLOAT = onnx.TensorProto.FLOAT


@pytest.fixture
def run(finished):
    return finished("iql", seeds=[0, 1]).run_dir


@pytest.fixture
def exported(run, tmp_path):
    return export_policy(run, tmp_path / "out").path


@pytest.fixture
def graph(run, tmp_path):
    return export_policy(run, tmp_path / "graph", format="onnx").path


def refused(path, match):
    with pytest.raises(CheckpointError, match=match) as caught:
        load_export(path)
    assert "\n" not in str(caught.value)


def with_manifest(exported, change):
    manifest = read_manifest(exported, "rl_training export", 1)
    change(manifest)
    (exported / "manifest.json").unlink()
    write_manifest(exported, manifest)


def rewritten(exported, name, content):
    """Replace a file and make the manifest agree, as someone would who means harm."""
    (exported / name).write_bytes(content)
    with_manifest(exported, lambda m: m["files"].update({name: {"bytes": len(content), "sha256": sha256(content)}}))


def arrays(exported, save=np.savez, **changes):
    data = io.BytesIO()
    save(data, **{**np.load(exported / "policy.npz"), **changes})
    rewritten(exported, "policy.npz", data.getvalue())


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("files"),
        lambda m: m.update(files=[1]),
        lambda m: m["files"].update({"card.md": 3}),
        lambda m: m["files"]["card.md"].update(bytes="9"),
        lambda m: m["files"]["card.md"].update(bytes=-1),
    ],
)
def test_a_manifest_of_another_shape(exported, change):
    with_manifest(exported, change)
    refused(exported, "does not list files")


def test_a_path_in_the_manifest_is_not_followed(exported):
    with_manifest(exported, lambda m: m["files"].update({"../../etc/passwd": m["files"].pop("card.md")}))
    refused(exported, "manifest lists")


def test_huge_files_links_and_pipes_are_not_read(exported, tmp_path):
    (exported / "card.md").rename(tmp_path / "aside")
    with (exported / "card.md").open("wb") as stream:
        stream.truncate(2**34)  # sparse
    with_manifest(exported, lambda m: m["files"].update({"card.md": {"bytes": 2**34, "sha256": ""}}))
    refused(exported, "at most")
    with_manifest(exported, lambda m: m["files"].update({"card.md": {"bytes": 9, "sha256": ""}}))
    for make in (lambda path: path.symlink_to(tmp_path / "aside"), os.mkfifo):
        (exported / "card.md").unlink()
        make(exported / "card.md")
        refused(exported, "not a plain file")


CARDS = {
    "the names": lambda card: card["interface"]["observations"].reverse(),
    "the ranges": lambda card: card["interface"]["actions"][0].update(high=9.0),
    "the inputs": lambda card: card["interface"]["inputs"].append("last_action"),
    "does not describe": lambda card: card.update(format="pickle"),
    "a torch export has": lambda card: card.update(format="torch"),
    "interface|describe": lambda card: card.update(interface=[]),
}


@pytest.mark.parametrize("told", CARDS)
def test_a_card_that_does_not_fit_its_policy(exported, told):
    card = json.loads((exported / "card.json").read_text())
    CARDS[told](card)
    rewritten(exported, "card.json", canonical_json(card))
    refused(exported, told)


def test_the_file_of_another_export(run, exported, graph, tmp_path):
    for kind, mine, name in (("numpy", exported, "policy.npz"), ("onnx", graph, "policy.onnx")):
        other = export_policy(run, tmp_path / kind, format=kind, max_change="0.5/step").path
        rewritten(mine, name, (other / name).read_bytes())
        refused(mine, "of the card")


@pytest.mark.parametrize(
    ("told", "changes"),
    [
        ("stated size", {"mean": np.array([Bomb()], dtype=object)}),
        ("few parts", {"actor.layers": np.int64(10**18)}),
        ("few parts", {"critics": np.int64(10**18)}),
        ("can be computed", {"candidates": np.zeros((10**7, 0), dtype=np.float32)}),
        ("finite", {"actor.0.bias": np.full(16, np.nan, dtype=np.float32)}),
        ("layers that fit", {"actor.0.bias": np.zeros(9, dtype=np.float32)}),
        ("legal mean", {"mean": np.array(["a", "b", "c"])}),
    ],
)
def test_arrays_that_are_no_policy(exported, told, changes):
    arrays(exported, **changes)
    refused(exported, told)


def test_archives_that_grow(exported):
    arrays(exported, np.savez_compressed, extra=np.zeros(2**20))
    refused(exported, "plain arrays")


def test_an_array_that_claims_to_be_huge(exported):
    content = io.BytesIO((exported / "policy.npz").read_bytes())
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("huge.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    rewritten(exported, "policy.npz", content.getvalue())
    refused(exported, "stated size")


def test_code_beside_the_numbers_is_not_run(exported):
    rewritten(exported, "policy.py", b"raise SystemExit('executed')")
    assert load_export(exported).predict([1.0, 0.0, 0.0]).shape == (1,)


def replaced(graph, nodes, constants):
    """The inputs, outputs and names of a good graph, with other operations."""
    model = onnx.load_model(str(graph / "policy.onnx"))
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(constants)
    rewritten(graph, "policy.onnx", model.SerializeToString())


def constant(name, value):
    return onnx.numpy_helper.from_array(np.asarray(value), name)


def test_a_graph_that_would_eat_memory(graph):
    node = onnx.helper.make_node
    column, row = np.zeros((60000, 1), dtype=np.float32), np.zeros((1, 60000), dtype=np.float32)
    ends = [constant(name, np.int64([at, at])) for name, at in (("from", 0), ("to", 1))]
    nodes = [node("Add", ["column", "row"], ["z"]), node("Slice", ["z", "from", "to"], ["q"])]
    weight = constant("w", np.zeros((3, 1), dtype=np.float32))
    nodes += [node("MatMul", ["observation", "w"], ["p"]), node("Add", ["p", "q"], ["action"])]
    replaced(graph, nodes, [constant("column", column), constant("row", row), *ends, weight])
    refused(graph, "can be computed")


@pytest.mark.parametrize("kind", ["Loop", "ConstantOfShape", "If", "Evil"])
def test_operations_that_no_policy_has(graph, kind):
    replaced(graph, [onnx.helper.make_node(kind, ["observation"], ["action"])], [])
    refused(graph, "only operations of a policy")


def test_numbers_outside_the_file(graph):
    weight = constant("w", np.zeros((3, 1), dtype=np.float32))
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../../../../etc/passwd"
    replaced(graph, [onnx.helper.make_node("MatMul", ["observation", "w"], ["action"])], [weight])
    refused(graph, "its numbers inside")


@pytest.mark.parametrize("content", [b"", b"not a graph", b"\x08\x08"])
def test_what_is_no_graph(graph, content):
    rewritten(graph, "policy.onnx", content)
    refused(graph, "not a policy")


def test_torch_files_are_never_opened(run, tmp_path):
    made = export_policy(run, tmp_path / "torch", format="torch").path
    rewritten(made, "policy.pt2", b'cos\nsystem\n(S"false"\ntR.')
    assert load_export(made).card["format"] == "torch"  # its hash is right; nothing more is done with it
