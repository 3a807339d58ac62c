"""Makes the site with Zensical: `python docs/.site/build.py build` writes it to `target/site/html`, `... serve` shows it.

All pages are written for a checkout, where relative links lead to any file. For the site, they are copied to
`target/site/docs`, with documents of the repository's root as further pages. There, links to files that are not pages lead to
`repo_url`; without one, only their text remains.
"""

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent
ROOT = DOCS.parent
SOURCE = ROOT / "target/site"

#: Documents in the root that are pages, too.
PAGES = {
    "BENCHMARKS.md": "about/benchmarks.md",
    "CHANGELOG.md": "about/changelog.md",
    ".github/SECURITY.md": "about/security-policy.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "ARCHITECTURE.md": "about/architecture.md",
}

LINK = re.compile(r"(\[[^\[\]]*\]|\[!\[[^\[\]]*\]\([^()]*\)\])\(([^()\s]+)\)")
FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)


def prepare():
    """Copies the pages and what they show to `SOURCE`, and returns the paths of the pages below it."""
    config = tomllib.loads((HERE / "zensical.toml").read_text())["project"]
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE / "docs", ignore=shutil.ignore_patterns(".*", "requirements.txt"))
    shutil.copy(HERE / "zensical.toml", SOURCE)
    pages = {page.relative_to(SOURCE).as_posix() for page in (SOURCE / "docs").rglob("*.md")}
    sources = {page.removeprefix("docs/"): page for page in pages} | {page: source for source, page in PAGES.items()}
    for page, source in sources.items():
        change = partial(adapted, source=source, page=page, repo_url=config.get("repo_url"))
        parts = FENCE.split((ROOT / source).read_text())
        for index in range(0, len(parts), 2):
            parts[index] = LINK.sub(change, parts[index])
        target = SOURCE / "docs" / page
        target.parent.mkdir(exist_ok=True)
        target.write_text("".join(parts))
    missing = sources.keys() - named(config["nav"])
    if missing:
        sys.exit(f"docs/.site/zensical.toml: pages are not in `nav`: {', '.join(sorted(missing))}")


def named(entries):
    """Returns the pages that a part of the navigation names."""
    if isinstance(entries, str):
        return {entries}
    parts = entries.values() if isinstance(entries, dict) else entries
    return set().union(*map(named, parts))


def adapted(link, source, page, repo_url):
    """Returns a link of a document as the site needs it."""
    text, target = link[1], link[2]
    path, hash_sign, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return link[0]
    file = os.path.normpath(os.path.join(os.path.dirname(source), path))
    if not (ROOT / file).exists():
        # Zensical reports it.
        return link[0]
    found = PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
    if found and (ROOT / file).is_file():
        return f"{text}({os.path.relpath(found, os.path.dirname(page) or '.')}{hash_sign}{anchor})"
    if not repo_url:
        return text[1:-1]
    kind = "tree" if (ROOT / file).is_dir() else "blob"
    return f"{text}({repo_url.rstrip('/')}/{kind}/main/{file}{hash_sign}{anchor})"


if __name__ == "__main__":
    if sys.argv[1:] not in (["build"], ["serve"]):
        sys.exit(__doc__)
    prepare()
    strict = ["--strict", "--clean"] if sys.argv[1] == "build" else []
    command = [Path(sys.executable).with_name("zensical"), sys.argv[1], *strict]
    sys.exit(subprocess.run(command, cwd=SOURCE).returncode)
