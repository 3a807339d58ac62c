"""Hooks of MkDocs: pages from the repository's root, and links to files outside of `docs`.

All pages are written for a checkout, where relative links lead to any file. On the site, links to files that are not pages lead
to `repo_url`; without one, only their text remains.
"""

import os
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]

#: Documents in the root that are pages, too.
PAGES = {
    "BENCHMARKS.md": "about/benchmarks.md",
    "CHANGELOG.md": "about/changelog.md",
    "SECURITY.md": "about/security-policy.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "ARCHITECTURE.md": "about/architecture.md",
}

LINK = re.compile(r"(\[[^\[\]]*\]|\[!\[[^\[\]]*\]\([^()]*\)\])\(([^()\s]+)\)")
FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)


def on_files(files, config):
    """Adds the documents of the root."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Adapts the links of a page."""
    documents = {page: source for source, page in PAGES.items()}
    source = documents.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = FENCE.split(markdown)
    for index in range(0, len(parts), 2):
        parts[index] = LINK.sub(lambda link: adapted(link, source, page.file.src_uri, config), parts[index])
    return "".join(parts)


def adapted(link, source, page, config):
    """Returns a link of a document as the site needs it."""
    text, target = link[1], link[2]
    path, hash_sign, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return link[0]
    file = os.path.normpath(os.path.join(os.path.dirname(source), path))
    if not (ROOT / file).exists():
        # MkDocs reports it.
        return link[0]
    found = PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
    if found and (ROOT / file).is_file():
        return f"{text}({os.path.relpath(found, os.path.dirname(page) or '.')}{hash_sign}{anchor})"
    if not config.repo_url:
        return text[1:-1]
    kind = "tree" if (ROOT / file).is_dir() else "blob"
    return f"{text}({config.repo_url.rstrip('/')}/{kind}/main/{file}{hash_sign}{anchor})"
