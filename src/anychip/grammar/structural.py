"""Structural tags: text that holds parts of a fixed form, as SGLang, vLLM and xgrammar write it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from anychip.grammar import structural_fields as fields
from anychip.grammar.ebnf import ebnf_to_lark, literal
from anychip.grammar.errors import GrammarError, step
from anychip.grammar.json_schema import json_source
from anychip.grammar.limits import GrammarLimits
from anychip.grammar.patterns import check_pattern, regex_body
from anychip.grammar.vocabulary import Vocabulary

_ANY = "(?s:.*)"
_MOST_REPEATS = 10_000


def structural_to_lark(
    value: Any, vocabulary: Vocabulary, limits: GrammarLimits, any_whitespace: bool
) -> str:
    """Lark for a structural tag, of either form. GrammarError with the pointer of what is wrong."""
    return TagWriter(vocabulary, limits, any_whitespace).whole(value)


class TagWriter:
    """Writes Lark; for another language, a few of its parts are written anew.

    after, in what follows: the texts one of which must follow the part; ("",) is nothing.
    last: whether nothing but that may follow.
    """

    def __init__(self, vocabulary: Vocabulary, limits: GrammarLimits, any_whitespace: bool) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self._any_whitespace = any_whitespace
        self._lines: list[str] = []
        self._formats: Mapping[str, Callable[..., str]] = {
            "const_string": self._const,
            "json_schema": self._schema,
            "any_text": self._any_text,
            "grammar": self._grammar,
            "regex": self._regex,
            "token": self._token,
            "sequence": self._sequence,
            "or": self._or,
            "tag": self._tag,
            "triggered_tags": self._triggered,
            "tags_with_separator": self._separated,
            "optional": self._repeated,
            "plus": self._repeated,
            "star": self._repeated,
            "repeat": self._repeated,
        }

    def whole(self, value: Any) -> str:
        """The grammar of a structural tag of either form."""
        if not isinstance(value, dict):
            raise GrammarError("a structural tag is an object")
        if "format" in value:
            fields.check_fields(value, frozenset({"type", "format"}), "")
            start = self.format(value["format"], "/format", ("",), last=True)
        else:
            fields.check_fields(value, frozenset({"type", "structures", "triggers"}), "")
            start = self.structures(value)
        return self.source(start)

    def source(self, start: str) -> str:
        """The whole text: the first rule, which is `start`, and those written so far."""
        return "\n".join([f"start: {start}", *self._lines]) + "\n"

    def format(self, value: Any, pointer: str, after: tuple[str, ...], *, last: bool) -> str:
        """What one format comes to, in rules. pointer: where it stands. after: the texts that may
        follow it, one of which is part of the result. last: nothing else comes behind those."""
        kind = fields.kind_of(value, pointer)
        return self._formats[kind](value, pointer, after, last)

    def structures(self, value: dict[str, Any]) -> str:
        """The older form: `structures` with begin, schema and end, and `triggers`."""
        tags = []
        for at, one in enumerate(fields.list_of(value, "structures", "")):
            pointer = step("/structures", at)
            if not isinstance(one, dict):
                raise GrammarError("a structure is an object", pointer)
            fields.check_fields(one, frozenset({"begin", "schema", "end"}), pointer)
            begin = fields.text_of(one, "begin", pointer)
            tags.append((begin, self._structure(one, pointer)))
        triggers = fields.texts_of(value, "triggers", "")
        return self._dispatch(triggers, tags, "/structures", stop=False, at_once=False)

    def _structure(self, one: dict[str, Any], pointer: str) -> str:
        end = fields.text_of(one, "end", pointer)
        if "schema" not in one:
            raise GrammarError("schema is missing", pointer)
        return self._json(one["schema"], step(pointer, "schema")) + self._spelled(end)

    def _const(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        text = fields.text_of(value, "value", pointer)
        return self._one_of(tuple(text + follows for follows in after))

    def _schema(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        if "json_schema" not in value:
            raise GrammarError("json_schema is missing", pointer)
        schema = self._json(value["json_schema"], step(pointer, "json_schema"))
        return schema + self._one_of(after)

    def _json(self, schema: Any, pointer: str) -> str:
        try:
            return f"%json {json_source(schema, self._any_whitespace)}"
        except GrammarError as error:
            raise error.within(pointer) from error

    def _any_text(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        if after == ("",):
            if not last:
                raise GrammarError(
                    "any_text must be at the end, or have a text after it that ends it", pointer
                )
            return self._free()
        return " | ".join(self._text_until(text, pointer) for text in after).join("()")

    def _free(self) -> str:
        return self._terminal(f"/{_ANY}/")

    def _text_until(self, text: str, pointer: str) -> str:
        """Any text up to and with the first `text`, which may hold special tokens."""
        parts = self._parts(text)
        if isinstance(parts[0], str) and len(parts) == 1:
            return self._rule(f"/{_ANY}{regex_text(text)}/", "lazy")
        first = parts[0]
        plain = regex_text(first) if isinstance(first, str) else ""
        rest = parts[1:] if plain else parts
        return self._terminal(f"/{_ANY}{plain}/") + self._joined(rest)

    def _grammar(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        text = fields.text_of(value, "grammar", pointer)
        plain = len(after) == 1 and self._is_text(after[0])
        name = self._name("g")
        try:
            lark = ebnf_to_lark(
                text,
                self._limits.depth,
                start=name,
                mark=f"{name}_",
                after=after[0] if plain else "",
            )
        except GrammarError as error:
            raise error.within(step(pointer, "grammar")) from error
        self._lines.append(lark)
        return name if plain else name + self._one_of(after)

    def _regex(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        pattern = fields.text_of(value, "pattern", pointer)
        check_pattern(pattern, step(pointer, "pattern"))
        if all(map(self._is_text, after)):
            follows = "|".join(map(regex_text, after))
            return self._terminal(f"/(?:{regex_body(pattern)})(?:{follows})/")
        return self._terminal(f"/{regex_body(pattern)}/") + self._one_of(after)

    def _token(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        name = self._token_name(value, pointer)
        return self._one_of(tuple(name + follows for follows in after))

    def _sequence(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        elements = list(enumerate(fields.list_of(value, "elements", pointer)))
        pointer = step(pointer, "elements")
        parts = []
        follows, last_here = after, last
        while elements:
            at, element = elements.pop()
            if elements and isinstance(element, dict) and element.get("type") == "const_string":
                fields.kind_of(element, step(pointer, at))  # belongs to what stands before it
                text = fields.text_of(element, "value", step(pointer, at))
                follows = tuple(text + one for one in follows)
                continue
            parts.append(self.format(element, step(pointer, at), follows, last=last_here))
            follows, last_here = ("",), False
        return " ".join(reversed(parts)).join("()")

    def _or(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        elements = fields.list_of(value, "elements", pointer)
        pointer = step(pointer, "elements")
        parts = (
            self.format(element, step(pointer, at), after, last=last)
            for at, element in enumerate(elements)
        )
        return " | ".join(parts).join("()")

    def _tag(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        begin = self._edge(value, "begin", pointer)[0]
        return self._spelled(begin) + " " + self._tag_rest(value, pointer, after)

    def _tag_rest(self, value: Any, pointer: str, after: tuple[str, ...]) -> str:
        """A tag's content and end."""
        ends = self._edge(value, "end", pointer)
        follows = tuple(end + text for end in ends for text in after)
        if "content" not in value:
            raise GrammarError("content is missing", pointer)
        last = follows == ("",)
        return self.format(value["content"], step(pointer, "content"), follows, last=last)

    def _edge(self, value: Any, name: str, pointer: str) -> tuple[str, ...]:
        """A tag's begin or end: a text, a token, and of ends also a list of texts."""
        found = value.get(name)
        if isinstance(found, dict):
            fields.kind_of(found, step(pointer, name))
            return (self._token_name(found, step(pointer, name)),)
        if name == "end" and isinstance(found, list):
            return fields.texts_of(value, name, pointer)
        return (fields.text_of(value, name, pointer),)

    def _triggered(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        stop = fields.flag_of(value, "stop_after_first", pointer)
        at_once = fields.flag_of(value, "at_least_one", pointer)
        tags = self._tags(value, pointer, after if stop and at_once else ("",))
        triggers = fields.texts_of(value, "triggers", pointer)
        if not (stop and at_once) and (after != ("",) or not last):
            raise GrammarError(
                "triggered_tags must be at the end, unless at_least_one and stop_after_first are "
                "both true",
                pointer,
            )
        return self._dispatch(triggers, tags, step(pointer, "tags"), stop=stop, at_once=at_once)

    def _separated(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        stop = fields.flag_of(value, "stop_after_first", pointer)
        at_least_one = fields.flag_of(value, "at_least_one", pointer)
        separator = fields.text_of(value, "separator", pointer)
        tags = self._tags(value, pointer, ("",))
        tag = self._rule(" | ".join(f"{self._spelled(begin)} {rest}" for begin, rest in tags))
        several = tag if stop else f"{tag} ({self._spelled(separator)} {tag})*"
        return f"({several}){'' if at_least_one else '?'}" + self._one_of(after)

    def _tags(self, value: Any, pointer: str, after: tuple[str, ...]) -> list[tuple[str, str]]:
        """Each tag's begin, and the rule of what follows it."""
        found = []
        for at, tag in enumerate(fields.list_of(value, "tags", pointer)):
            place = step(step(pointer, "tags"), at)
            if fields.kind_of(tag, place) != "tag":
                raise GrammarError("an entry of tags must be of type tag", step(place, "type"))
            begin = self._edge(tag, "begin", place)[0]
            found.append((begin, self._rule(self._tag_rest(tag, place, after))))
        return found

    def _repeated(self, value: Any, pointer: str, after: tuple[str, ...], last: bool) -> str:
        if "content" not in value:
            raise GrammarError("content is missing", pointer)
        inner = self.format(value["content"], step(pointer, "content"), ("",), last=False)
        sign = {"optional": "?", "plus": "+", "star": "*"}.get(value["type"], "")
        if not sign:
            least = fields.count_of(value, "min", pointer, 0, _MOST_REPEATS)
            most = fields.count_of(value, "max", pointer, -1, _MOST_REPEATS)
            if 0 <= most < least or most == 0:
                raise GrammarError("max must be -1, or from 1 on and not below min", pointer)
            sign = f"{{{least},{'' if most < 0 else most}}}"
        return f"({inner}){sign}" + self._one_of(after)

    def _dispatch(
        self,
        triggers: tuple[str, ...],
        tags: list[tuple[str, str]],
        pointer: str,
        *,
        stop: bool,
        at_once: bool,
    ) -> str:
        """Any text up to a trigger, then one of the tags that begin with it, and so on.

        at_once: a tag comes first, without text before it. stop: nothing follows the first tag.
        """
        direct = " | ".join(f"{self._spelled(begin)} {rest}" for begin, rest in tags).join("()")
        if stop and at_once:
            return direct
        ways: dict[str, list[str]] = {trigger: [] for trigger in triggers}
        for at, (begin, rest) in enumerate(tags):
            trigger = next((one for one in triggers if begin.startswith(one)), None)
            if trigger is None:
                raise GrammarError("begin must begin with one of the triggers", step(pointer, at))
            ways[trigger].append(f"{self._spelled(begin[len(trigger) :])} {rest}")
        return self._free_until(ways, stop=stop, first=direct if at_once else "")

    def _free_until(self, ways: Mapping[str, list[str]], *, stop: bool, first: str) -> str:
        """Any text up to a trigger, then one of its ways. first: what comes before all that."""
        texts = [one for one in ways if self._is_text(one)]
        banned = "|".join(map(regex_text, texts))
        without = f" & ~/{_ANY}(?:{banned}){_ANY}/" if texts else ""
        free = self._terminal(f"/{_ANY}/{without}")
        begins = {trigger: self._trigger(trigger, free) for trigger in ways}
        one_tag = self._rule(
            " | ".join(f"{begins[trigger]} {one}" for trigger in ways for one in ways[trigger])
        )
        if stop:
            return f"({one_tag} | {free})"
        return f"{first} ({one_tag})* {free}"

    def _trigger(self, trigger: str, free: str) -> str:
        if self._is_text(trigger):
            return self._rule(f"/{_ANY}{regex_text(trigger)}/", "lazy")
        return free + self._special(trigger)

    def _special(self, trigger: str) -> str:
        """A trigger that is a special token."""
        parts = self._parts(trigger)
        if len(parts) == 1:
            return self._joined(parts)
        raise GrammarError(
            f"the trigger {trigger!r:.60} mixes text and a special token; it must be one of both"
        )

    def _token_name(self, value: Any, pointer: str) -> str:
        token = value.get("token")
        special = self._vocabulary.special
        for name, number in special.items():
            if token in (name, number) and not isinstance(token, bool):
                return name
        raise GrammarError(f"{token!r:.60} is no special token of this model", pointer)

    def _is_text(self, text: str) -> bool:
        return all(isinstance(part, str) for part in self._parts(text))

    def _parts(self, text: str) -> list[str | int]:
        """The text, and the ids of special tokens that it names; "" for nothing at all."""
        parts: list[str | int] = []
        start = at = 0
        while at < len(text):
            name = self._vocabulary.special_at(text, at)
            if name is None:
                at += 1
                continue
            parts += [text[start:at]] if at > start else []
            parts.append(self._vocabulary.special[name])
            start = at = at + len(name)
        return [*parts, text[start:]] if start < len(text) or not parts else parts

    def _spelled(self, text: str) -> str:
        return self._joined(self._parts(text)) if text else ""

    def _one_of(self, texts: tuple[str, ...]) -> str:
        if texts == ("",):
            return ""
        spelled = (self._spelled(text) or '""' for text in texts)
        return " (" + " | ".join(spelled) + ")"

    def _joined(self, parts: list[str | int]) -> str:
        return "".join(
            " " + (literal(part) if isinstance(part, str) else f"<[{part}]>") for part in parts
        )

    def _terminal(self, body: str) -> str:
        name = self._name("t").upper()
        self._lines.append(f"{name}: {body}")
        return name

    def _rule(self, body: str, option: str = "") -> str:
        name = self._name("s")
        self._lines.append(f"{name}{option and f'[{option}]'}: {body}")
        return name

    def _name(self, letter: str) -> str:
        return f"{letter}{len(self._lines)}"


def regex_text(text: str) -> str:
    """A regex, as it may stand between slashes, that matches this text alone."""
    return re.sub(r"[^A-Za-z0-9_ ]", lambda found: f"\\x{{{ord(found[0]):X}}}", text)
