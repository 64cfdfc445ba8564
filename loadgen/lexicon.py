"""Words of exactly one token each, so that a prompt's length can be chosen in tokens without counting any.

Without a tokenizer file there is a built-in list: common English words of three letters, each a single token (with the
space before it) in the tokenizers in use. Measured on random texts of 10 to 8,000 of these words: exact with OpenAI's
cl100k and o200k, Claude's published one, DeepSeek's and Mistral's Tekken, one token too many with Mistral's two
SentencePiece models. A text of n words has 4 n characters, which is also the usual rule of thumb.

With the file of a tokenizer its own vocabulary is searched for such words, and the result is checked on a long text.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any, NamedTuple

from traces.errors import BadInputError

_THREE_LETTERS = (
    "the and for are but not you all any can had her was one our out day get has him his how man new now old see two "
    "way who boy did its let put say she too use big box car cat dog eat end far few fun got job key kid law lot low "
    "map may men met mom oil own pay per red run sea set sit six son sun ten top try yes yet ago air arm art ask bad "
    "bag bar bed bit buy cup cut dad dry due ear egg eye fat fit fly gas guy hat hot ice kit lab lay led leg lie lip "
    "mix nor odd off pan pen pet pie pin pop pot raw row shy sky tax tea tie tip toy van web wet win won age act add "
    "aid aim bus cap dig fan fix gap hop jam jet joy lap log mud net nut pig rug saw tap ton tub via wax zip ads ban "
    "bid cow cry fee fur hip hub ink lid oak pad pit ray rib rod rub sum tab tag tan tow vet"
)
_MOST_WORDS = 4096
_FEWEST_WORDS = 16
_CHECKED_WORDS = 20_000


class Lexicon(NamedTuple):
    """Words of one token each; a text is `lead` and then words with one space between them."""

    words: tuple[str, ...]
    lead: str


BUILT_IN = Lexicon(tuple(_THREE_LETTERS.split()), " ")


def tokenizer_lexicon(path: str | Path) -> Lexicon:
    """Return the words of a tokenizer (a `tokenizer.json` file), checked to be one token each wherever they stand.

    Raises `BadInputError` when the file is not a tokenizer, or one whose tokens do not end at spaces.
    """
    tokenizer = _load(path)
    candidates = _candidates(tokenizer)
    for lead in (" ", ""):
        lexicon = _fitting(tokenizer, candidates, lead)
        if lexicon is not None:
            return lexicon
    raise BadInputError(
        f"{path}: this tokenizer has too few words of one token, so prompts cannot be made exactly; leave "
        "prompts.tokenizer out"
    )


def _load(path: str | Path) -> Any:
    # Its threads would warn about every process that is started later.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BadInputError(
            "prompts.tokenizer needs the package tokenizers; install ramptrace with the extra: ramptrace[tokenizers]"
        ) from None
    if not Path(path).is_file():
        raise BadInputError(f"{path}: no such tokenizer file; it is the tokenizer.json of the model served")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare exceptions
        cause = str(error).partition("\n")[0][:200]
        raise BadInputError(
            f"{path}: not a tokenizer file ({cause}); expected the model's own tokenizer.json"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _candidates(tokenizer: Any) -> list[str]:
    """Return the vocabulary's plain words, in an order that depends on nothing but the vocabulary."""
    plain = {token.lstrip("Ġ▁") for token in tokenizer.get_vocab(with_added_tokens=False)}
    return sorted(word for word in plain if word.isascii() and word.isalpha() and word.islower() and len(word) <= 12)


def _fitting(tokenizer: Any, candidates: list[str], lead: str) -> Lexicon | None:
    """Return the words that are one token each behind this lead; `None` when a long text of them does not come out."""
    rng = random.Random(0)
    pairs = _encode(tokenizer, [f"{lead}{word} {word}" for word in candidates])
    token_of = {word: ids[1] for word, ids in zip(candidates, pairs, strict=True) if len(ids) == 2}
    if len(token_of) < _FEWEST_WORDS:
        return None
    words = sorted(rng.sample(sorted(token_of), min(_MOST_WORDS, len(token_of))))
    text = [rng.choice(words) for _ in range(_CHECKED_WORDS)]
    (found,) = _encode(tokenizer, [lead + " ".join(text)])
    same = len(found) == len(text) and found[1:] == [token_of[word] for word in text[1:]]
    return Lexicon(tuple(words), lead) if same else None


def _encode(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
