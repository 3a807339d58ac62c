"""The commands and files of the tutorials and guides, run as they are written."""

import pytest
from pages import CHECKED, ROOT, Runner, blocks

DOCS = ROOT / "docs"
FOLDERS = [DOCS / "tutorials", DOCS / "guides"]
PAGES = sorted(
    [DOCS / "get-started.md", DOCS / "install.md", *(page for folder in FOLDERS for page in folder.glob("*.md"))]
)


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
            assert block.marker in CHECKED, f"{where}: mark this block"
