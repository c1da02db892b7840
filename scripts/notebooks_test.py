"""What `notebooks.py` must not let pass: python scripts/notebooks_test.py"""

import base64
import copy
import unittest

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from notebooks import VERDICT, differences, problems, settled


def figure(svg):
    return f'<img alt="t" src="data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}">'


SVG = "<svg>" + "<circle/>" * 5 + "<text>448</text></svg>"
FIGURE = figure(SVG)


def shown(**data):
    return new_output("display_data", data={k.replace("_", "/"): v for k, v in data.items()})


def good():
    verdict = new_output("display_data", data={VERDICT: {"verdict": "pass", "claims": [{"claim": "c", "holds": True}]}})
    cells = [
        new_markdown_cell("prose"),
        new_code_cell("chart", outputs=[shown(text_plain="a chart", text_html=FIGURE)]),
        new_markdown_cell("prose"),
        new_code_cell("Claims::new()", outputs=[verdict]),
    ]
    return new_notebook(cells=cells)


class Wrong(unittest.TestCase):
    def setUp(self):
        self.nb = good()

    def found(self, word):
        self.assertIn(word, " ".join(problems(self.nb)))

    def test_nothing(self):
        self.assertEqual(problems(self.nb), [])
        self.assertEqual(differences(self.nb, good()), [])

    def test_panic(self):
        self.nb.cells[1].outputs.append(new_output("stream", name="stderr", text="thread panicked at src/lib.rs:3:1:\nboom"))
        self.found("boom")

    def test_error_of_a_cell(self):
        self.nb.cells[1].outputs = [new_output("error", ename="Error", evalue="no recipe te_curent", traceback=[])]
        self.found("te_curent")

    def test_error_as_a_value(self):
        self.nb.cells[1].outputs = [shown(text_plain="Error: unknown column grp")]
        self.found("grp")

    def test_two_dependencies(self):
        self.nb.cells[1].source = ':dep qassay = { path = ".." }\n:dep csv = "1"'
        self.found("csv")

    def test_standard_error(self):
        self.nb.cells[1].outputs.append(new_output("stream", name="stderr", text="careful"))
        self.found("careful")

    def test_empty_figure(self):
        self.nb.cells[1].outputs[0].data["text/html"] = figure("<svg><rect/><text>0</text></svg>")
        self.found("empty figure")

    def test_figure_of_nan(self):
        self.nb.cells[1].outputs[0].data["text/html"] = figure(SVG.replace("<circle/>", '<circle cx="NaN"/>', 1))
        self.found("empty figure")

    def test_no_verdict(self):
        self.nb.cells[3].outputs = []
        self.found("no verdict")

    def test_failed_verdict(self):
        self.nb.cells[3].outputs[0].data[VERDICT] = {"verdict": "fail", "claims": [{"claim": "it is round", "holds": False}]}
        self.found("it is round")

    def test_no_prose(self):
        del self.nb.cells[2]
        self.found("no prose")

    def test_other_numbers(self):
        for key, other_text in (("text/plain", "b chart"), ("text/html", figure(SVG.replace("448", "449")))):
            other = copy.deepcopy(self.nb)
            other.cells[1].outputs[0].data[key] = other_text
            self.assertEqual(len(differences(self.nb, other)), 1, key)

    def test_fewer_outputs(self):
        other = copy.deepcopy(self.nb)
        other.cells[1].outputs = []
        self.assertEqual(len(differences(self.nb, other)), 1)

    def test_numbers_of_the_machine(self):
        other = copy.deepcopy(self.nb)
        for nb in (self.nb, other):
            nb.cells[1].metadata["tags"] = ["machine"]
        other.cells[1].outputs = []
        self.assertEqual(differences(self.nb, other), [])

    def test_progress_and_builds_leave_nothing(self):
        self.assertIsNone(settled(new_output("stream", name="stderr", text="   Compiling qassay v0.1.0\n" + "█" * 20 + "░" * 20 + " 1 of 2 cases\n")))
        self.assertEqual(settled(new_output("stream", name="stdout", text="\rhalf\rdone\n")).text, "done\n")


if __name__ == "__main__":
    unittest.main()
