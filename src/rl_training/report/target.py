"""The file that a report is written to: its format, and what it may replace."""

from pathlib import Path
from typing import Final, Literal, get_args

from rl_training.analysis.logged_run import is_left_of_run
from rl_training.errors import ConfigError
from rl_training.experiment.run_record import run_status
from rl_training.report.page.document import MARK
from rl_training.report.pictures import SOFTWARE
from rl_training.report.tables import CSV_START
from rl_training.storage import storage_error

Format = Literal["html", "md", "csv", "png"]
FORMATS: Final = get_args(Format)
_SUFFIXES: Final[dict[str, Format]] = {".html": "html", ".htm": "html", ".md": "md", ".csv": "csv", ".png": "png"}
_SIGNS: Final[dict[Format, str]] = {"html": MARK, "md": MARK, "csv": ",".join(CSV_START), "png": SOFTWARE}
_HEAD = 400  # bytes in which a report shows that it is one


def format_of(out: str | Path | None, chosen: str | None = None) -> Format:
    """Return the format that a name ends in, or that was chosen; a ConfigError where they differ or are not known."""
    if chosen is not None and chosen not in FORMATS:
        raise ConfigError(f"--format {chosen}: must be one of {', '.join(FORMATS)}")
    named = None if out is None else _SUFFIXES.get(Path(out).suffix.lower())
    if chosen is not None:
        if named is not None and named != chosen:
            raise ConfigError(
                f"{out}: ends like {named}, but --format is {chosen}; choose another name, or leave --format out"
            )
        return chosen  # type: ignore[return-value]
    if out is not None and named is None:
        raise ConfigError(f"{out}: does not say what to write; end the name in {', '.join(_SUFFIXES)}, or pass --format")
    return named or "html"


def check_target(path: Path, kind: Format) -> None:
    """Raise a ConfigError unless a report may be written here, in no run: a new file, or in place of an earlier report."""
    place = path.resolve()
    try:
        if run := next((one for one in (place, *place.parents) if run_status(one) is not None or is_left_of_run(one)), None):
            raise ConfigError(f"{path}: lies in the run {run}, which a report never changes; choose another --out")
        if path.is_dir():
            raise ConfigError(f"{path}: is a directory; name a file with --out, such as {path / 'report.html'}")
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise ConfigError(f"{path}: is not a plain file; name another with --out")
        if path.exists():
            with path.open("rb") as stream:
                known = _SIGNS[kind].encode() in stream.read(_HEAD)
            if not known:
                raise ConfigError(f"{path}: was not written by this command; choose another name with --out")
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, 0, error) from error
