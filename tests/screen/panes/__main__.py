"""Writes the committed panes anew, and those in docs: `python -m tests.screen.panes`, in `make generate`."""

from tests.screen.panes.captured import DOCUMENT, FOLDER, PANES, PICTURE, documented, picture

if __name__ == "__main__":
    for name, make in PANES.items():
        (FOLDER / f"{name}.txt").write_text(make(), encoding="utf-8")
    DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
