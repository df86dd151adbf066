"""The subjects of commits: `area: what changes for whom`, at most 72 characters.

`python3 tests/structure/commit_subjects.py` checks the commits since this file was added; with `--message FILE`, the
message of a commit that is being made. Needs nothing but Python and git.
"""

import re
import subprocess
import sys
from pathlib import Path

LONGEST = 72
SUBJECT = re.compile(r"[a-z][a-z0-9_./-]*(?:, [a-z0-9_./-]+)*: \S.*[^.\s]")
GENERATED = re.compile(r'Merge |Revert "|fixup! |squash! |amend! ')
"""What git writes by itself."""
ROOT = Path(__file__).resolve().parents[2]


def problem(subject: str) -> str:
    """Return what is wrong with a subject; empty if nothing is."""
    if GENERATED.match(subject):
        return ""
    if len(subject) > LONGEST:
        return f"has {len(subject)} characters; {LONGEST} is the limit, the rest belongs into the body"
    if not SUBJECT.fullmatch(subject):
        return "is not 'area: what changes for whom', such as 'rules: keep GpuHot firing while a GPU is hot'"
    return ""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def subjects_since_rule() -> list[str]:
    """Return the subjects of the commits that build on the one that added this file, but for those of merges."""
    added = git("log", "--diff-filter=A", "--format=%H", "--", str(Path(__file__).relative_to(ROOT))).split()
    if not added:
        return []
    return git("log", "--no-merges", "--ancestry-path", "--format=%s", f"{added[-1]}..HEAD").splitlines()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--message"]:
        lines = Path(arguments[1]).read_text(encoding="utf-8").splitlines()
        subjects = [next((line for line in lines if not line.startswith("#")), "")]
    else:
        subjects = subjects_since_rule()
    problems = [f"{subject!r} {text}" for subject in subjects if (text := problem(subject))]
    print(*(f"commit subject {text}" for text in problems), sep="\n", end="\n" if problems else "", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
