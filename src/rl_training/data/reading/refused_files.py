"""Files that are refused by their kind: not data, not read, or able to run code when opened."""

import zipfile

from rl_training.data.reading.base import Candidate

_PICKLE = "is a pickle, which may run code when opened; export it as npz, CSV or Parquet"
_IMAGE = "is an image; images are not supported, only flat vectors of numbers"
_EXCEL = "is an Excel workbook; save it as CSV"
_SUFFIXES = {**dict.fromkeys((".pkl", ".pickle", ".pt", ".pth", ".joblib"), _PICKLE)}
_MAGIC: dict[bytes, str] = {
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), _PICKLE),
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*"), _IMAGE),
    b"\xd0\xcf\x11\xe0": _EXCEL,
    b"\x1f\x8b": "is a gzip file; unpack it first",
    b"\xfd7zXZ": "is an xz file; unpack it first",
    **dict.fromkeys((b"MATLAB 5.0 MAT", b"MATLAB 7.3 MAT"), "is a MATLAB file; write it as CSV with writetable"),
    b"SQLite format": "is an SQLite database; export a table as CSV",
    b"ARROW1": "is an Arrow or Feather file; save it as Parquet",
}
_IN_ZIP = {
    "xl/workbook.xml": _EXCEL,
    ".pkl": _PICKLE,
    ".csv": "is a zip of CSV files; unpack it and name the folder",
    ".json": "is a zip of JSON files; write the log as CSV or Parquet",
    **dict.fromkeys((".png", ".jpg", ".jpeg"), "is a zip of images; images are not supported, only flat vectors of numbers"),
}


def file_fault(candidate: Candidate) -> str:
    """Return why a file is refused by its kind, in words that follow its name; empty if it is not."""
    head = candidate.head
    if candidate.path.suffix.lower() in _SUFFIXES and candidate.path.is_file():
        return _SUFFIXES[candidate.path.suffix.lower()]
    for mark, fault in _MAGIC.items():
        if head.startswith(mark):
            return fault
    if head.startswith(b"\x93NUMPY"):
        return _PICKLE if b"'|O'" in head[:200] else "is one array alone; save all fields together with numpy.savez"
    if head.startswith(b"PK\x03\x04"):
        return _zip_fault(candidate)
    if head.lstrip()[:2] in (b'{"', b"[{", b"{\n", b"{ ") or head.lstrip().startswith((b"[[", b"[\n")):
        return "is JSON, which is not read; write the log as CSV or Parquet, one row per time step"
    return ""


def _zip_fault(candidate: Candidate) -> str:
    try:
        with zipfile.ZipFile(candidate.path) as archive:
            names = [info.filename.lower() for info in archive.infolist()[:1000]]
    except (OSError, zipfile.BadZipFile, NotImplementedError):  # reported by the reader
        return ""
    if any(name.endswith(".npy") for name in names):
        return ""
    return next((fault for end, fault in _IN_ZIP.items() if any(name.endswith(end) for name in names)), "")
