"""Generated tables for S1: their places, what lies inside them, and what lies outside but looks as if it did not."""

import random
import re
import unicodedata
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote

PLAIN = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,80}(?<!\.)")  # every store must take these
_WORDS = ["warehouse", "wh", "lake", "tenant-1", "t", "t1", "t10", "t1_0", "T1", "a", "a.b", "ns=1", "0", "_", "events"]
# Each has broken a catalog, or a reader of paths, somewhere: wildcards, variables, quotes, encodings, look-alikes.
_ODD = [
    "*", "?", "t*", "*t", "t?", "**", "${*}", "${?}", "${$}", "${aws:username}", "${aws:PrincipalTag/x}", "$", "${",
    "}", "t${*}1", "t$*", "$*{", "{*}", "'", '"', "t'", "it's", "\\", "t\\", "\\'", "\\u002f", "\\x2f", "%", "%2F",
    "%2e%2e", "%252F", "%2A", "%00", "t%31", "t.", "t..", ".", "..", "...", " t", "t ", "t 1", "t\u00a01", "t\t1",
    "t\n1", "t\r1", "t\x001", "t\x7f", "a／b", "a∕b", "a⁄b", "a＊", "？", "＇", "ａ", "а", "е", "ı", "İ", "ﬁ", "é",
    "e\u0301", "ß", "t\u200b", "t\u2060", "\ufefft", "t\u202e", "t\U000e0020", "日", "😀", "größe", "a#b", "a?b",
    "a;b", "a&b", "a+b", "a,b", "a:b", "a@b", "a|b", "a<b", "a~b", "a!b", "(a)", "[a]", "a/b", "/", "a//b", "",
    "') || true || resource.name.startsWith('", "' || '1'=='1", "t\\') || true || ('", 't"],"Resource":["*',
    "*/../x", "t1/../t2", "..%2ft2", "t" * 300, "é" * 120,
]  # fmt: skip
_INSIDE = [
    "metadata/00001-5c1f.metadata.json", "metadata/snap-1.avro", "data/f.parquet", "data/day=2026-11-18/f.parquet",
    "data/größe=1 m/f", "data/it's/f", "data/*/f", "data/?x", "data/${*}/f", "data/a%2Fb/f", "data/a+b&c=d;e/f",
    "data/日/f", "0101/0010/data/f.parquet", "f",
]  # fmt: skip
_INSIDE_PREFIXES = ["", "data/", "data", "metadata/0", "data/day=2026-11-18/"]


@dataclass(frozen=True)
class GeneratedTable:
    """One place in a bucket; `is_plain` if every store has to give a credential for it."""

    bucket: str
    segments: tuple[str, ...]

    @property
    def path(self) -> str:
        return "/".join(self.segments)

    @property
    def is_plain(self) -> bool:
        return all(PLAIN.fullmatch(segment) for segment in self.segments) and len(self.path) <= 300

    def contains(self, key: str) -> bool:
        return key.startswith(f"{self.path}/")


def generate(chance: random.Random, bucket: str) -> GeneratedTable:
    """Returns a table whose place is plain half of the time."""
    size = chance.choice([1, 2, 2, 3, 3, 3, 4, 6])
    segments = [_plain_segment(chance) for _ in range(size)]
    if chance.random() < 0.5:
        for _ in range(chance.choice([1, 1, 2])):
            segments[chance.randrange(size)] = _odd_segment(chance)
    return GeneratedTable(bucket, tuple(segments))


def _plain_segment(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.4:
        return chance.choice(_WORDS)
    if kind < 0.7:
        return str(uuid.UUID(int=chance.getrandbits(128)))
    return "".join(chance.choices("abcXYZ019_-=.", k=chance.randint(1, 12))).strip(".") or "x"


def _odd_segment(chance: random.Random) -> str:
    odd = chance.choice(_ODD)
    kind = chance.random()
    if kind < 0.4:
        return odd
    if kind < 0.8:
        word = chance.choice(_WORDS)
        at = chance.randint(0, len(word))
        return word[:at] + odd + word[at:]
    # Any character of the first planes, a look-alike or not.
    return chance.choice(_WORDS) + chr(chance.choice([chance.randrange(32, 0x250), chance.randrange(0x250, 0xD7FF)]))


def inside_keys(table: GeneratedTable) -> list[str]:
    return [f"{table.path}/{name}" for name in _INSIDE]


def inside_prefixes(table: GeneratedTable) -> list[str]:
    return [f"{table.path}/{prefix}" for prefix in _INSIDE_PREFIXES]


def outside_keys(table: GeneratedTable) -> list[str]:
    """Returns keys of the same bucket that belong to others: neighbours, parents, other readings of the same path."""
    *parent, last = table.segments
    candidates = ["/".join([*parent, sibling, "data/f"]) for sibling in _siblings(last)]
    for number, segment in enumerate(parent):
        before, after = table.segments[:number], table.segments[number + 1 :]
        candidates += ["/".join([*before, sibling, *after, "data/f"]) for sibling in _siblings(segment)]
    candidates += ["/".join([*table.segments[:size], "f"]) for size in range(len(table.segments))]
    path = table.path
    candidates += [
        f"{path}f",
        f"/{path}/f",
        f"x/{path}/f",
        f"{path.replace('/', '//')}/f",
        f"{path[1:]}/f",
        f"{path} /f",
    ]
    candidates += [f"{reading}/data/f" for reading in _readings(path)]
    return [key for key in dict.fromkeys(candidates) if key and not table.contains(key)]


def outside_prefixes(table: GeneratedTable) -> list[str | None]:
    """Returns prefixes whose list names files of others; None lists without one. The path alone finds neighbours."""
    found: dict[str | None, None] = {None: None, "": None, table.path: None, table.path[:-1]: None, "/": None}
    for size in range(1, len(table.segments)):
        found[parent := "/".join(table.segments[:size])] = None
        found[f"{parent}/"] = None
    for key in outside_keys(table)[:20]:
        found[f"{key.rpartition('/')[0]}/"] = None
    return [prefix for prefix in found if prefix is None or not table.contains(prefix)]


def outside_buckets(table: GeneratedTable) -> Iterator[tuple[str, str]]:
    """Yields keys in other buckets, each as (bucket, key)."""
    first, *rest = table.segments
    yield "other-bucket", f"{table.path}/data/f"
    yield f"{table.bucket}0", f"{table.path}/data/f"
    yield table.bucket[:-1], f"{table.path}/data/f"
    yield f"{table.bucket}{first}".lower(), "/".join([*rest, "data/f"])  # Nessie#12703: a slash was missing


def _siblings(name: str) -> list[str]:
    found = [f"{name}0", f"{name}_", f"{name}.", f"{name} ", f"x{name}", name[:-1], name.swapcase(), "other"]
    found += _readings(name)
    return [sibling for sibling in dict.fromkeys(found) if sibling != name]


def _readings(text: str) -> list[str]:
    """Returns what a careless reader takes the text for: decoded, encoded, normalized, with wildcards filled in."""
    found = [unquote(text), unquote(unquote(text)), quote(text, safe="/"), text.strip(), text.rstrip(".")]
    found += [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC")]
    found += [text.replace("*", filled).replace("?", "z") for filled in ("z", "", "y/z")]
    found += [re.sub(r"\$\{([^}]*)\}", filled, text) for filled in ("z", r"\1", "${z}", "${y/z}")]
    found += [re.sub(r"[*?$]", escape, text) for escape in (r"${\g<0>}", "${z}", "${y/z}")]  # read as they are written
    found += [text.replace("\\", ""), text.replace("\\", "/"), text.replace("a", "а").replace("e", "е")]
    return [reading for reading in dict.fromkeys(found) if reading != text]
