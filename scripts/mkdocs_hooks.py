"""The book has the format of bundles as a page, made from the file that the crate's documentation and `qassay helper --format` have too."""

from pathlib import Path

from mkdocs.structure.files import File

SOURCE, PAGE = "../data/bundles/README.md", "format.md"


def on_files(files, config):
    files.append(File.generated(config, PAGE, content=(Path(config.docs_dir) / SOURCE).read_text()))


def on_page_markdown(markdown, **_):
    return markdown.replace(f"]({SOURCE})", f"]({PAGE})")
