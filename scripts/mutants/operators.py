"""The mutants of Rust files: the operators of cargo-mutants, found in the syntax tree."""

import itertools
import os
import re

import tree_sitter
import tree_sitter_rust

LANGUAGE = tree_sitter.Language(tree_sitter_rust.language())
ROOMS = ("format", "quant", "recipe", "op", "compare", "model", "bundle", "baseline", "scenario")
BINARY = {
    **{"==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"]},
    **{"<": ["==", ">", "<="], ">": ["==", "<", ">="], "<=": [">"], ">=": ["<"]},
    **{"+": ["-", "*"], "-": ["+", "/"], "*": ["+", "/"], "/": ["%", "*"], "%": ["/", "+"]},
    **{"<<": [">>"], ">>": ["<<"], "&": ["|", "^"], "|": ["&", "^"], "^": ["|", "&"]},
}
ASSIGNED = ("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^")
UNSIGNED = ("u8", "u16", "u32", "u64", "u128", "usize")
SIGNED = ("i8", "i16", "i32", "i64", "i128", "isize")
COMMENTS = ("line_comment", "block_comment")


def parse(text):
    return tree_sitter.Parser(LANGUAGE).parse(text)


def arguments(kind):
    """The types between < and >."""
    found = next((c for c in kind.named_children if c.type == "type_arguments"), None)
    return [c for c in found.named_children if c.type != "lifetime"] if found else []


def last_name(kind):
    name = kind.child_by_field_name("type") or kind
    if name.type == "scoped_type_identifier":
        name = name.child_by_field_name("name")
    return name.text.decode()


def values(kind):
    """What a function of this return type returns instead."""
    if kind is None or kind.type == "unit_type":
        return ["()"]
    text = kind.text.decode()
    if kind.type in ("primitive_type", "type_identifier"):
        return of_name(text)
    if kind.type in ("never_type", "dynamic_type", "function_type", "pointer_type"):
        return []
    if kind.type == "tuple_type":
        parts = itertools.product(*(values(c) for c in kind.named_children))
        return ["(" + ", ".join(p) + ("," if len(p) == 1 else "") + ")" for p in parts]
    if kind.type == "array_type":
        length = kind.child_by_field_name("length")
        return [f"[{v}; {length.text.decode()}]" for v in values(kind.child_by_field_name("element"))] if length else []
    if kind.type == "reference_type":
        return of_reference(kind)
    if kind.type in ("generic_type", "scoped_type_identifier"):
        return of_generic(last_name(kind), arguments(kind))
    if kind.type == "abstract_type":
        return ["std::iter::empty()"] if text.startswith("impl Iterator") else []
    return ["Default::default()"]


def of_name(name):
    if name == "bool":
        return ["true", "false"]
    if name in UNSIGNED:
        return ["0", "1"]
    if name in SIGNED:
        return ["0", "1", "-1"]
    if name in ("f32", "f64"):
        return ["0.0", "1.0", "-1.0"]
    if name == "String":
        return ["String::new()", 'String::from("xyzzy")']
    return ["Ok(Default::default())"] if name == "Result" else ["Default::default()"]


def of_reference(kind):
    inner = kind.child_by_field_name("type")
    mutable = any(c.type == "mutable_specifier" for c in kind.children)
    if inner.text == b"str" and not mutable:
        return ['""', '"xyzzy"']
    if inner.type == "array_type" and inner.child_by_field_name("length") is None:
        element = inner.child_by_field_name("element")
        return ["Vec::leak(Vec::new())"] + [f"Vec::leak(vec![{v}])" for v in values(element)]
    return [("&mut *" if mutable else "&*") + f"Box::leak(Box::new({v}))" for v in values(inner)]


def of_generic(name, parts):
    std = f"std::collections::{name}"
    if name == "Option" and parts:
        return ["None"] + [f"Some({v})" for v in values(parts[0])]
    if name == "Result":
        return [f"Ok({v})" for v in values(parts[0])] if parts else ["Ok(Default::default())"]
    if name == "Vec" and parts:
        return ["vec![]"] + [f"vec![{v}]" for v in values(parts[0])]
    if name in ("Box", "Arc", "Rc") and parts:
        return [f"{name}::new({v})" for v in values(parts[0])]
    if name == "Cow" and parts:
        inner = ['""', '"xyzzy"'] if parts[0].text == b"str" else ["Default::default()"]
        return [f"std::borrow::Cow::Borrowed({v})" for v in inner]
    if name in ("BTreeMap", "HashMap") and len(parts) == 2:
        pairs = itertools.product(values(parts[0]), values(parts[1]))
        return [f"{std}::new()"] + [f"{std}::from_iter([({k}, {v})])" for k, v in pairs]
    if name in ("BTreeSet", "HashSet", "VecDeque") and parts:
        return [f"{std}::new()"] + [f"{std}::from_iter([{v}])" for v in values(parts[0])]
    return ["Default::default()"]


def is_test(node):
    """Whether an item stands under an attribute of tests."""
    before = node.prev_sibling
    while before is not None and before.type in ("attribute_item", *COMMENTS):
        if before.type == "attribute_item" and re.search(r"cfg\(test\)|cfg\(all\(test|#\[test\]", before.text.decode()):
            return True
        before = before.prev_sibling
    return False


def sources(src):
    """The text of every file of the rooms that is no file of tests, by its path under `src`."""
    files = {}
    for folder, _, names in itertools.chain.from_iterable(os.walk(os.path.join(src, room)) for room in ROOMS):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".rs")):
            files[os.path.relpath(path, src)] = open(path, "rb").read()
    tests = set()
    for path, text in files.items():
        base = os.path.dirname(path) if os.path.basename(path) == "mod.rs" else path[:-3]
        left = [parse(text).root_node]
        while left:
            node = left.pop()
            if node.type == "mod_item" and node.child_by_field_name("body") is None and is_test(node):
                tests.add(os.path.join(base, node.child_by_field_name("name").text.decode()))
            left += node.children
    return {p: files[p] for p in sorted(files) if not any(p == t + ".rs" or p.startswith(t + "/") for t in tests)}


class Finder:
    """All mutants of a file."""

    SKIPPED = ("macro_invocation", "macro_definition", "attribute_item")
    ITEMS = ("mod_item", "function_item", "impl_item", "use_declaration", "struct_item", "const_item", "static_item")
    CONST = ("const_item", "static_item", "enum_item", "type_arguments", "const_block")

    def __init__(self, path, text):
        self.path, self.root, self.mutants = path, parse(text).root_node, []
        self.walk(self.root, "", False)

    def add(self, node, kind, old, new, where, const):
        place = {"file": self.path, "line": node.start_point[0] + 1, "start": node.start_byte, "end": node.end_byte, "node": node.type}
        self.mutants.append(place | {"kind": kind, "old": old, "new": new, "where": where, "const": const})

    def walk(self, node, where, const):
        if node.type in self.SKIPPED or node.type in self.ITEMS and is_test(node):
            return
        const = const or node.type in self.CONST
        if node.type == "impl_item":
            kind, trait = node.child_by_field_name("type").text.decode(), node.child_by_field_name("trait")
            where = f"<impl {trait.text.decode()} for {kind}>" if trait else kind
        elif node.type == "function_item":
            modifiers = next((c.text.decode().split() for c in node.children if c.type == "function_modifiers"), [])
            if "unsafe" in modifiers:
                return
            const = const or "const" in modifiers
            where = self.function(node, where, const)
        elif node.type == "binary_expression":
            old = node.child_by_field_name("operator").type
            for new in BINARY.get(old, []):
                self.add(node, "binary", old, new, where, const)
        elif node.type == "compound_assignment_expr":
            old = node.child_by_field_name("operator").type
            for new in BINARY[old[:-1]] if old[:-1] in ASSIGNED else []:
                self.add(node, "assign", old, new + "=", where, const)
        elif node.type == "unary_expression" and node.children[0].type in ("!", "-"):
            self.add(node, "unary", node.children[0].type, "", where, const)
        elif node.type == "match_expression":
            self.arms(node, where, const)
        for child in node.children:
            self.walk(child, where, const)

    def function(self, node, where, const):
        name = node.child_by_field_name("name").text.decode()
        here = f"{where}::{name}" if where else name
        body = node.child_by_field_name("body")
        inner = " ".join(c.text.decode() for c in body.named_children if c.type not in COMMENTS)
        if inner and not ("Default for" in where and name == "default"):
            for new in values(node.child_by_field_name("return_type")):
                if new != inner:
                    self.add(body, "function", name, new, here, const)
        return here

    def arms(self, node, where, const):
        arms = [c for c in node.child_by_field_name("body").named_children if c.type == "match_arm"]
        patterns = [a.child_by_field_name("pattern") for a in arms]
        wild = any(p.text == b"_" for p in patterns)
        for pattern in patterns:
            guard = pattern.child_by_field_name("condition")
            if wild and pattern.text != b"_":
                self.add(pattern, "arm", pattern.text.decode()[:60], "", where, const)
            if guard is not None and guard.type not in ("let_chain", "let_condition"):
                for new in ("true", "false"):
                    self.add(pattern, "guard", guard.text.decode()[:60], new, where, const)
