"""Prints what a backend holds of a run, read with its own library, as JSON: for each run there [[metric, step, value], ...].

`python -m tests.tracking.readback NAME RUN_DIR`, in the directory and environment in which the run was trained: libraries
read their environment variables once in a process.
"""

import json
import sys
from pathlib import Path


def tensorboard(run_dir, run_id):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for folder in sorted({path.parent for path in (run_dir / "tensorboard").rglob("events.out.tfevents.*")}):
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
        names = events.Tags()["scalars"]
        found[folder.name] = [[name, event.step, event.value] for name in names for event in events.Scalars(name)]
    return found


def mlflow(run_dir, run_id):
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    (experiment,) = [one for one in client.search_experiments() if one.name.startswith("rl-training")]
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        key = run.data.tags["rl_training.id"]
        if key.startswith(run_id) and "/" in key:
            histories = [client.get_metric_history(run.info.run_id, name) for name in run.data.metrics]
            found[run.info.run_name] = [[m.key, m.step, m.value] for history in histories for m in history]
    return found


def wandb(run_dir, run_id):
    from rl_training.tracking.wandb import history

    found, steps = {}, {}
    for path in sorted(Path("wandb").glob(f"offline-run-*-{run_id}-*/*.wandb")):
        for step, texts in history(path):
            values = {name: json.loads(text) for name, text in texts.items()}
            rows = found.setdefault(path.stem, [])
            rows += [[name, values["position"], v] for name, v in values.items() if name != "position" and name[0] != "_"]
            steps.setdefault(path.stem, []).append(step)
    assert all(numbers == list(range(len(numbers))) for numbers in steps.values()), steps
    return found


def trackio(run_dir, run_id):
    from trackio import Api, fragments
    from trackio.sqlite_storage import SQLiteStorage

    fragments.import_inbox_dir()  # as the dashboard does

    (project,) = SQLiteStorage.get_projects()
    found = {}
    for run in Api().runs(project):
        if run.name.endswith(run_id[:6]):
            logs = SQLiteStorage.get_logs(project, run.name, run_id=run.id)
            names = {name for log in logs for name in log} - {"step", "timestamp"}
            found[run.name] = [[name, log["step"], log[name]] for log in logs for name in names & set(log)]
    return found


if __name__ == "__main__":
    reader, folder = globals()[sys.argv[1]], Path(sys.argv[2])
    first = (folder / "tracking.jsonl").read_text().splitlines()[0]
    print(json.dumps(reader(folder, json.loads(first)["id"])))
