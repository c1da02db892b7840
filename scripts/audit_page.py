"""Joins audits into one page: audit_page.py OUT.html DATE NAME=audit.json …, each written by `pytest --qassay-audit --qassay-audit-report`.

At most so many assertions of each are listed, worst first; the counts are of all.
"""

import json
import re
import sys

import qassay
from qassay._audit import Found, page

MOST = 60


def main(out: str, date: str, *parts: str) -> None:
    bodies = []
    for part in parts:
        name, _, path = part.partition("=")
        with open(path, encoding="utf-8") as f:
            held = json.load(f)
        # null is infinity: any.
        rows = [{k: float("inf") if v is None else v for k, v in row.items()} for row in held["assertions"]]
        found = [Found(**row) for row in rows]
        text = page(held["tests"], found, name)
        if len(found) > MOST:
            head, mark, tail = text.partition("<tbody>")
            kept = re.findall(r"<tr>.*?</tr>", tail, re.S)[:MOST]
            text = head + mark + "".join(kept) + f"</tbody></table></div><p>{len(found) - MOST} more assertions, which let less pass, are not shown.</p></body></html>\n"
        bodies.append(text)
    style = bodies[0].partition("<style>")[2].partition("</style>")[0]
    inner = "".join(b.partition("<body>")[2].partition("</body>")[0].replace("h1>", "h2>") for b in bodies)
    ran = f"<p class=ran>{date}, qassay {qassay.__version__}: pytest --qassay-audit --qassay-audit-report audit.json, on each suite</p>"
    with open(out, "w", encoding="utf-8") as f:
        f.write(f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
                f"<title>qassay audit</title><style>{style}</style></head><body><h1>What the assertions of published suites let pass</h1>{ran}{inner}</body></html>\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
