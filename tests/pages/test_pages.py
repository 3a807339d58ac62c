"""The commands and files of the tutorials and guides, run as they are written."""

import pytest
from pages import CHECKED, ROOT, Runner, blocks

DOCS = ROOT / "docs"
FOLDERS = [DOCS / "tutorials", DOCS / "guides"]
SINGLE = ["compare", "get-started", "hardening", "infer", "install", "kafka", "openai"]
PAGES = sorted(
    [*(DOCS / f"{name}.md" for name in SINGLE), *(page for folder in FOLDERS for page in folder.glob("*.md"))]
)
#: Pages whose blocks are run by `tests/docs`, `tests/image` and `python/tests/test_docs.py`.
OTHERS = sorted(set(DOCS.glob("*.md")) - set(PAGES) - {DOCS / "python.md"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_commands_print_the_documented_output(page, tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()
    Runner(page, folder).check()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_blocks_are_marked(page):
    for block in blocks(page):
        where = f"{page}:{block.line}"
        if block.marker == "unchecked:":
            assert block.argument, f"{where}: give a reason"
        else:
            is_data = block.language in ("json", "text", "csv") and page.parent == DOCS
            assert block.marker in CHECKED or is_data, f"{where}: mark this block"


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.stem)
def test_page_commands_are_marked(page):
    for block in blocks(page):
        if block.language in ("sh", "python"):
            assert block.marker, f"{page}:{block.line}: mark this block"
