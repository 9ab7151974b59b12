"""Hook of MkDocs: README.md is the first page of the site, and what pages link to outside of docs/ comes along.

A page keeps the links that work in the repository; here they are turned into those of the site.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page


ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Adds README.md, and the files of the repository that pages link to."""
    waiting = [ROOT / "README.md", *(Path(file.abs_src_path) for file in files.documentation_pages())]
    known = set(waiting)
    while waiting:
        page = waiting.pop()
        for target in (page, *_linked_files(page)):
            address = site_address(target)
            if files.get_file_from_path(address) is None and target.is_file():
                files.append(File.generated(config, address, abs_src_path=str(target)))
            if target.suffix == ".md" and target not in known:
                known.add(target)
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """The links of a page as they are on the site."""
    source = ROOT / "README.md" if page.file.src_uri == "index.md" else _source(page)

    def of_site(link: re.Match[str]) -> str:
        if "://" in link[2] or link[2].startswith("mailto:"):
            return link[0]
        address = site_address((source.parent / link[2]).resolve())
        return f"{link[1]}{os.path.relpath(address, Path(page.file.src_uri).parent)}{link[3]}"

    parts = CODE.split(markdown)
    return "".join(part if index % 2 else LINK.sub(of_site, part) for index, part in enumerate(parts))


def site_address(path: Path) -> str:
    """Where a file of the repository is on the site."""
    address = path.relative_to(ROOT).as_posix()
    return "index.md" if address == "README.md" else address.removeprefix("docs/")


def _source(page: Page) -> Path:
    return Path(page.file.abs_src_path or ROOT / page.file.src_uri)


def _linked_files(page: Path) -> Iterator[Path]:
    text = "".join(CODE.split(page.read_text(encoding="utf-8"))[::2])
    for _, target, _ in LINK.findall(text):
        path = (page.parent / target).resolve()
        if "://" not in target and path.is_relative_to(ROOT):
            yield path
