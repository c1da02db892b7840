"""What the book has beside docs/: the format of bundles, from the file that the crate's documentation and `qassay helper --format` have
too, and the notebooks with their committed outputs, to be read without Jupyter."""

import html
import json
import re
from pathlib import Path

from mkdocs.structure.files import File

SOURCE, PAGE = "../data/bundles/README.md", "format.md"
ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = [*sorted((ROOT / "notebooks").glob("*.ipynb")), ROOT / "notebooks/python/bundle_helper.ipynb"]
PICTURE = "notebooks/lab.png"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Outputs in HTML, put into the page once its Markdown is HTML.
OUTPUTS = []


def on_config(config):
    pages = [f"notebooks/{path.stem}.md" for path in NOTEBOOKS]
    config.nav = [{"Notebooks": [page, *pages]} if page == "notebooks.md" else page for page in config.nav]


def on_files(files, config):
    files.append(File.generated(config, PAGE, content=(Path(config.docs_dir) / SOURCE).read_text()))
    files.append(File.generated(config, PICTURE, content=(ROOT / PICTURE).read_bytes()))
    for path in NOTEBOOKS:
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(json.loads(path.read_text()))))


def on_page_markdown(markdown, **_):
    markdown = markdown.replace(f"]({SOURCE})", f"]({PAGE})").replace(f"](../{PICTURE})", f"]({PICTURE})")
    return re.sub(r"\]\(\.\./notebooks/(?:python/)?(\w+)\.ipynb\)", r"](notebooks/\1.md)", markdown)


def on_page_content(content, **_):
    return re.sub(r"<p>qassay-output-(\d+)</p>", lambda m: OUTPUTS[int(m[1])], content)


def page(notebook):
    """A notebook as Markdown."""
    language = "python" if notebook["metadata"]["kernelspec"]["name"].startswith("python") else "rust"
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = re.sub(r"\]\((?:\.\./)+docs/", "](../", text)
            parts.append(re.sub(r"\]\((?:\.\./|python/)?(\w+)\.ipynb\)", r"](\1.md)", text))
        elif cell["cell_type"] == "code":
            parts += [fenced(text, language), *map(output, cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def output(said):
    """What a cell showed: HTML where it has some, text otherwise."""
    data = said.get("data", {})
    if "text/html" in data:
        OUTPUTS.append(f'<div class="output">{"".join(data["text/html"])}</div>')
        return f"qassay-output-{len(OUTPUTS) - 1}"
    text = COLOURS.sub("", "".join(said.get("text", data.get("text/plain", ""))))
    OUTPUTS.append(f'<div class="output said"><pre>{html.escape(text.rstrip())}</pre></div>')
    return f"qassay-output-{len(OUTPUTS) - 1}"


def fenced(text, language):
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
