"""Writes the committed panes again, one here and others in docs: `python -m tests.screen.panes`, in `make generate`."""

from tests.screen.panes.captured import DOCUMENT, HOT, PANES, PICTURE, documented, picture

if __name__ == "__main__":
    HOT.write_text(PANES[HOT.stem](), encoding="utf-8")
    DOCUMENT.write_text(documented(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
