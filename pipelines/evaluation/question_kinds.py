"""What kind of question a wording is: for tables of errors and of form, never for training.

Law: a kind is read from the English wording alone, by the rules below; no label, no model and no
list of people takes part, and no training reads them. So "living person" means "asks in the present
tense about a life", not that anybody looked whether the person lives: the rules see the wording,
not the world. A question may be of several kinds or of none.

Kinds, after the paper's table of false positives and negatives:

superlative      "the largest", "most", "best": what holds the record may be overtaken
living_person    a life asked about in the present tense: age, home, marriage, children, wealth, office
dead_person      a death is named, or a life asked about in the past tense
recent_year      a year from `RECENT_FROM` on is named: what is recent is often not over
scheduled_event  what recurs or is planned: elections, cups, seasons, "next", "will be held"

The form of a question is its lead (the word that asks) and its tense. How much of the task form alone
solves is a figure of the report: see `forms.py`.
"""

from __future__ import annotations

import re

KINDS = ("superlative", "living_person", "dead_person", "recent_year", "scheduled_event")
RECENT_FROM = 2015
NO_ENGLISH = "no_english_wording"

_NOT_SUPERLATIVE = (
    "arrest|august|behest|budapest|bucharest|chest|conquest|contest|crest|digest|earnest|everest|forest|"
    "guest|harvest|honest|inquest|interest|invest|jest|lest|manifest|midwest|modest|nest|northwest|pest|"
    "priest|protest|quest|request|rest|southwest|suggest|test|trieste?|unrest|vest|west|wrest|zest"
)
_SUPERLATIVE = re.compile(
    rf"\b(?!(?:{_NOT_SUPERLATIVE})\b)[a-z]{{2,}}est\b|(?<!at )\b(?:most|least|fewest)\b(?! of\b)|\bworst\b"
)
_LIFE = re.compile(
    r"\b(?:how old|age|married|marry|single|dating|wife|husband|spouse|girlfriend|boyfriend|partner|child|"
    r"children|kids|sons?|daughters?|lives?|living|alive|reside|net worth|worth|salary|height|weigh|tall|"
    r"play for|plays for|do(?:es)? .*works?|coach|president|mayor|king|queen|minister|governor|chancellor|"
    r"ceo|head|leader|director|champion|title|position)\b"
)
_NAME = re.compile(r"(?<!^)\b[A-Z][\w'’.-]+ (?:[a-z]{2,3} )?[A-Z][\w'’-]+")
_PRONOUN = re.compile(r"\b(?:who|whom|whose|he|she|his|her)\b")
_DEATH = re.compile(
    r"\b(?:die|dies|died|dying|death|deaths|dead|buried|burial|grave|tomb|killed|assassinated|murdered|"
    r"executed|funeral|perished|pass(?:ed)? away)\b(?! sea\b)"
)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_SCHEDULED = re.compile(
    r"\b(?:olympics?|olympiad|world cup|championships?|eurovision|elections?|referendum|super bowl|"
    r"grand prix|formula (?:1|one)|oscars|grammys?|ceremony|festival|tournament|finals?|"
    r"(?:this|current|next|new|last|upcoming|[a-z]+(?:st|nd|rd|th|ond)) season|season \d+|"
    r"next|upcoming|forthcoming|scheduled|planned|annual|eclipse|inauguration|summit|coronation|premiere|"
    r"release date|be (?:held|released|launched)|come out|will .*take place)\b"
)
_LEADS = (
    ("how_old", r"how old|how many years old|(?:at )?what age|(?:the )?age of"),
    ("how_many", r"how (?:many|much)"),
    ("how_measured", r"how (?:long|tall|far|big|large|high|deep|often|fast|heavy|wide)"),
    ("how", r"how"),
    ("who", r"(?:(?:with|for|to|by|from|of|about) )?(?:who|whom|whose)"),
    ("when", r"(?:since |until )?when"),
    ("where", r"(?:from |to )?where"),
    ("why", r"why"),
    ("which", r"(?:[a-z]+ )?which"),
    ("what", r"(?:[a-z]+ )?what"),
    (
        "yes_no",
        r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|may)(?:n['’]t)?",
    ),
)
_LEAD = [(name, re.compile(rf"(?:{rule})\b")) for name, rule in _LEADS]
_INSIDE = [(name, re.compile(rf"\b(?:{rule})\b")) for name, rule in _LEADS if name != "yes_no"]
_FILLER = re.compile(
    r"^(?:(?:and|but|so|then|well|okay|ok|please|tell me|can you tell me|could you tell me|do you know|"
    r"i wonder|name|say|hey|hi|hello)\b[\s,:]*)+"
)
_FUTURE = re.compile(r"\b(?:will|going to|shall|upcoming)\b|^Will (?![A-Z][a-z]+ (?:is|was)\b)")
_PAST = re.compile(
    r"\b(?:was|were|did|had|became|began|wrote|won|came|took|made|gave|led|met|built|sang|said|left|lost|"
    r"held|got|went|knew|fell|spoke|flew|broke|chose|[a-z]{3,}ed)\b"
)
_NOT_PAST = re.compile(  # participles and adjectives in "-ed": of the present, and of no time
    r"\b(?:(?:is|are|be|been|being|most|least|not) (?:[a-z]+ )?[a-z]+ed|[a-z]+-[a-z]+ed|called|named|located|"
    r"considered|situated|united|used|needed|red|related|limited|based|married|bed|speed|seed|breed|hundred|"
    r"indeed|mixed|advanced)\b"
)


def kinds(english: str) -> list[str]:
    """The kinds of a question by its English wording, in the order of KINDS."""
    text = " ".join(english.split()).replace("’", "'")
    low = text.casefold()
    past = tense(english) == "past"
    about_a_life = _LIFE.search(low) is not None and (
        _NAME.search(text) is not None or _PRONOUN.search(low) is not None
    )
    death = _DEATH.search(low) is not None
    found = {
        "superlative": _SUPERLATIVE.search(low) is not None,
        "living_person": about_a_life and not past and not death,
        "dead_person": death or (about_a_life and past),
        "recent_year": any(int(year) >= RECENT_FROM for year in _YEAR.findall(text)),
        "scheduled_event": _SCHEDULED.search(low) is not None,
    }
    return [kind for kind in KINDS if found[kind]]


def lead(english: str) -> str:
    """The word that asks: how_old, how_many, who, ... yes_no; "other" where none does.

    It opens the wording, or is the first such word in it ("The Pripyat flows into which river?").
    """
    low = _FILLER.sub("", " ".join(english.casefold().split()).lstrip("\"'«“¿ "))
    opening = next((name for name, rule in _LEAD if rule.match(low)), None)
    if opening is not None:
        return opening
    later = [(found.start(), n) for n, (_, rule) in enumerate(_INSIDE) if (found := rule.search(low))]
    return _INSIDE[min(later)[1]][0] if later else "other"


def tense(english: str) -> str:
    """future, past or present, by auxiliaries and verb forms; present where nothing tells."""
    text = " ".join(english.split())
    if _FUTURE.search(text):  # "Will Smith" asks about no future
        return "future"
    return "past" if _PAST.search(_NOT_PAST.sub(" ", text.casefold())) else "present"
