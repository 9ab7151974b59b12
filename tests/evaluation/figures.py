"""What the tests of figures share."""

import re
import xml.etree.ElementTree as ElementTree

from PIL import Image


def check_figure(folder, name, *texts):
    """A figure exists as an image with content and as an SVG, in which matplotlib notes the texts that it draws."""
    with Image.open(folder / f"{name}.png") as image:
        image.load()
        assert min(image.size) > 300
        assert len(image.convert("RGB").getcolors(maxcolors=10**6)) > 20
    root = ElementTree.parse(folder / f"{name}.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    drawn = re.findall(r"<!-- (.*?) -->", (folder / f"{name}.svg").read_text(), re.DOTALL)
    for text in texts:
        assert text in drawn, (name, text, drawn)
