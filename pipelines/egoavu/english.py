"""A little English: narrations in the past tense, with articles, and lists of things.

Law: pure functions of the words given; a narration that does not begin with its
verb is quoted and never bent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from pipelines.egoavu.lexicon import knows_verb

IRREGULAR = dict(
    pair.split(":")
    for pair in (
        "put:put cut:cut set:set shut:shut hit:hit spread:spread read:read take:took get:got make:made "
        "break:broke drink:drank eat:ate tear:tore wring:wrung grind:ground begin:began hold:held "
        "hang:hung sit:sat go:went stand:stood keep:kept sweep:swept dig:dug drive:drove wear:wore "
        "write:wrote draw:drew leave:left bring:brought choose:chose wind:wound sew:sewed saw:sawed "
        "see:saw find:found spin:spun blow:blew unwind:unwound throw:threw light:lit split:split "
        "give:gave feel:felt bend:bent hear:heard beat:beat come:came run:ran let:let do:did mow:mowed "
        "sow:sowed bite:bit shake:shook slide:slid stick:stuck tell:told undo:undid bind:bound "
        "catch:caught build:built buy:bought pay:paid "
    ).split()
)
DOUBLES = re.compile(r"(un|re)?[^aeiou]+[aeiou][bdglmnprt]|unwrap")  # chop, stir, unplug; not open, pour
ASPECTS = frozenset("continue keep start begin stop finish".split())  # "continue chopping onion"
PARTICLES = frozenset("up down off on out over in away back into onto through".split())
PREPOSITIONS = frozenset(
    "in into on onto inside of from with to under over at by near behind beside around between against "
    "through across along above below for".split()
)
NO_ARTICLE = frozenset(
    "the a an this that these those it them one some two three four five six more another both all each "
    "her his their my your its and or if whether what which to for up down off away back again together "
    "half pieces slices time something water's open closed dry clean i ii".split()
) | PREPOSITIONS | PARTICLES  # fmt: skip


MASS = frozenset(
    "water oil milk juice coffee tea rice pasta gas heat salt sugar flour cereal cheese bread butter "
    "soap detergent meat food rubbish garbage trash waste foil paper soup sauce curry honey dough "
    "laundry soil compost sawdust glue cutlery silverware crockery plastic grass wood spaghetti "
    "broccoli bacon ham beef chicken fish salmon tuna garlic ginger liquid powder mixture cream starch "
    "steam wax varnish string wire tape cardboard".split()
)


def past_verb(verb: str) -> str:
    """Simple past of a verb in its base form."""
    if verb in IRREGULAR:
        return IRREGULAR[verb]
    if DOUBLES.fullmatch(verb):
        return f"{verb}{verb[-1]}ed"
    if verb.endswith("e"):
        return f"{verb}d"
    if re.search(r"[^aeiou]y$", verb):
        return f"{verb[:-1]}ied"
    return f"{verb}ed"


def with_articles(text: str) -> str:
    """ "put lid on pot" -> "put the lid on the pot": narrations are telegrams."""
    words = text.split()
    out = words[:1]
    at = 1
    while at < len(words) and words[at] in PARTICLES:
        out.append(words[at])
        at += 1
    if words[0] in ASPECTS and at < len(words) and words[at].endswith("ing"):
        out.append(words[at])
        at += 1
    bare = True  # a noun phrase begins here
    for word in words[at:]:
        plain = word.isalpha() or "-" in word or "'" in word
        if bare and plain and word not in NO_ARTICLE and not word.endswith("ly"):
            out.append("the")
        out.append(word)
        bare = word in PREPOSITIONS - {"of"} or word in PARTICLES or word == "and"
    return " ".join(out)


@lru_cache(maxsize=2**16)
def told(text: str, verb: str) -> str:
    """A narration as something that was done: "chopped the onion"; quoted where no verb comes first."""
    first, _, rest = text.partition(" ")
    if first == "still" and _begins(rest, verb):
        return f"still {told(rest, verb)}"
    if not _begins(text, verb):
        return f'did this: "{text}"'
    return " ".join([past_verb(first), *with_articles(text).split()[1:]])


@lru_cache(maxsize=2**16)
def infinitive(text: str, verb: str) -> str:
    """The narration after "does the wearer": "chop the onion"; quoted where no verb comes first."""
    plain = text.removeprefix("still ")
    return with_articles(plain) if _begins(plain, verb) else f'do this: "{text}"'


def _begins(text: str, verb: str) -> bool:
    """True when a narration begins with its verb, with another verb, or with one that says it goes on."""
    first = text.partition(" ")[0]
    own = first == verb.partition("-")[0]
    return first.isalpha() and (own or first in ASPECTS or knows_verb(first))


def with_a(noun: str) -> str:
    """ "a lamp", "an apron", "flower pots"."""
    head = noun.rsplit(maxsplit=1)[-1]
    if head in MASS or (head.endswith("s") and not head.endswith(("ss", "us"))):
        return noun
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def listed(parts: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
