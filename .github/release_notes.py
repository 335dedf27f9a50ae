"""Print the changelog section of a release; fail where the tag, the version, the changelog and the citation disagree.

Usage: python .github/release_notes.py v0.1.0
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def release_notes(tag: str) -> str:
    """Return the changelog section of the version that the tag names."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if tag != f"v{version}":
        sys.exit(f"The tag is {tag}, but pyproject.toml has version {version}: the tag must be v{version}.")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    if not re.search(rf"^version: [\"']?{re.escape(version)}[\"']?$", citation, re.MULTILINE):
        sys.exit(f"CITATION.cff does not have version {version}.")
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for section in sections:
        heading, _, body = section.partition("\n")
        if heading.split()[:1] != [version]:
            continue
        if not re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d{{2}}-\d{{2}}", heading.strip()):
            sys.exit(f"CHANGELOG.md: the heading must read `## {version} - YYYY-MM-DD`, not `## {heading.strip()}`.")
        if not body.strip():
            sys.exit(f"CHANGELOG.md: the section of {version} is empty.")
        return body.strip() + "\n"
    sys.exit(f"CHANGELOG.md has no section `## {version} - YYYY-MM-DD`.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(release_notes(sys.argv[1]))
