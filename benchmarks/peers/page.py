"""What `peers.py` writes: the sections of its results, the machine, and the tables of `docs/peers.md`."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass
class Section:
    """A table of the results, with what must be known to read it."""

    title: str
    header: list[str]
    rows: list[list[str]]
    notes: str

    def text(self) -> str:
        lines = ["| " + " | ".join(line) + " |" for line in (self.header, ["---"] * len(self.header), *self.rows)]
        return f"## {self.title}\n\n" + "\n".join(lines) + f"\n\n{self.notes}\n"


def replace_sections(results: str, sections: list[Section], made: str) -> str:
    """The results with these sections in the place of the former ones, each with how it was made; new ones last."""
    first, *others = results.rstrip("\n").split("\n## ")
    texts = {text.partition("\n")[0]: f"## {text}\n" for text in others}
    texts |= {section.title: f"{section.text()}\n{made}\n" for section in sections}
    return "\n".join([f"{first}\n" if not first.endswith("\n") else first, *texts.values()])


def fill_page(page: str, results: str) -> str:
    """The page with its tables as they are in the results, each below a comment that names its section."""
    [made] = re.findall(r"^Made by .*$", results, re.MULTILINE)
    for section in results.split("\n## ")[1:]:
        title, _, rest = section.partition("\n")
        table = "".join(re.findall(r"^\|.*\n", rest, re.MULTILINE))
        comment = f"<!-- {title} -->\n\n"
        page = re.sub(rf"{re.escape(comment)}(?:\|.*\n)*", lambda _, text=comment + table: text, page)
        for again in re.findall(r"^Made again (by .*)$", rest, re.MULTILINE):
            made += f" {title}: made {again}"
    return re.sub(r"(<!-- Made -->\n\n).*", lambda found: found[1] + made, page)


def machine() -> str:
    """The machine, and how busy others keep it."""

    def read() -> tuple[int, int]:
        ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return ticks[3] + ticks[4], sum(ticks[:8])

    idle, total = read()
    time.sleep(5)
    idle_after, total_after = read()
    busy = 1 - (idle_after - idle) / (total_after - total)
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    shared = "**shared with other programs**" if busy > 0.1 else "free"
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {gigabytes:.0f} GB, {torch.get_num_threads()} threads, Python "
        f"{platform.python_version()}; the machine was {shared}: {100 * busy:.0f} % busy before the start"
    )


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"
