"""Relative links of all documents lead to files and headings that exist."""

import re
import subprocess

import pytest
from pages import ROOT

LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LIST = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
LISTED = subprocess.run(LIST, cwd=ROOT, capture_output=True, text=True)
DOCUMENTS = [ROOT / name for name in LISTED.stdout.split("\n") if name.endswith(".md")]


def anchors(document):
    """Returns the anchors of a document's headings, as GitHub names them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", document.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        number = 0
        while (unique := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(unique)
    return found


def test_there_are_documents():
    assert len(DOCUMENTS) > 50


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    if not document.exists():
        pytest.skip("is deleted")
    broken = []
    for target in LINK.findall(FENCE.sub("", document.read_text())):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_paths_of_documents_in_sources_exist():
    sources = ["src", "crates", "python", "templates", "packaging", "tests", ".ci"]
    grep = ["git", "grep", "--no-index", "--exclude-standard", "-hoE", r"\bdocs/[a-z/-]+\.md", "--", *sources]
    names = set(subprocess.run(grep, cwd=ROOT, capture_output=True, text=True).stdout.split())
    assert names
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []
