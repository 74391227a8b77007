"""What an EBNF grammar means, by trying every way to read a text: slow, and right by its looks."""

from __future__ import annotations

from anychip.grammar.ebnf_reader import read_ebnf
from anychip.grammar.ebnf_tree import Alt, Chars, Ref, Repeat, Seq, Text


def accepts(grammar: str, text: str) -> bool:
    return len(text) in Reading(read_ebnf(grammar, 60), text).ends("root", 0)


class Reading:
    """Where each rule may end that begins at a place, grown until nothing more is found."""

    def __init__(self, rules, text):
        self.rules, self.text = rules, text
        self.found = {(name, at): set() for name in rules for at in range(len(text) + 1)}
        grown = True
        while grown:
            grown = False
            for (name, at), known in self.found.items():
                more = self.node(rules[name], at) - known
                known |= more
                grown = grown or bool(more)

    def ends(self, name, at):
        return self.found[name, at]

    def node(self, node, at):
        if isinstance(node, Ref):
            return self.ends(node.name, at)
        if isinstance(node, Text | Chars):
            return self.characters(node, at)
        if isinstance(node, Alt):
            return set().union(*(self.node(item, at) for item in node.items))
        if isinstance(node, Seq):
            places = {at}
            for item in node.items:
                places = set().union(*(self.node(item, place) for place in places))
            return places
        assert isinstance(node, Repeat)
        return self.repeat(node, at)

    def characters(self, node, at):
        if isinstance(node, Text):
            return {at + len(node.value)} if self.text.startswith(node.value, at) else set()
        here = ord(self.text[at]) if at < len(self.text) else -1
        return {at + 1} if any(low <= here <= high for low, high in node.ranges) else set()

    def repeat(self, node, at):
        places = {at}
        for _ in range(node.least):
            places = set().union(*(self.node(node.item, place) for place in places))
        ends, count = set(places), node.least
        while places and (node.most is None or count < node.most):
            places = set().union(*(self.node(node.item, place) for place in places)) - ends
            ends |= places
            count += 1
        return ends
