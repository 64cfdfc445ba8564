"""Prompts: their length in tokens, the prefixes they share, recorded text, and images."""

from __future__ import annotations

import json
import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.images import image_url, parse_size, png
from loadgen.lexicon import BUILT_IN, tokenizer_lexicon
from loadgen.plan import PlannedRequest
from loadgen.prompts import Prompts
from loadgen.scenario import PromptsSection
from traces.errors import BadInputError


def planned(row_id=0, input_tokens=10, **more) -> PlannedRequest:
    return PlannedRequest(row_id=row_id, due_us=0, input_tokens=input_tokens, output_tokens=1, **more)


def prompts(seed=0, **section) -> Prompts:
    return Prompts(PromptsSection(**section), seed=seed)


BUILT_IN_PROMPTS = prompts()


@given(st.integers(0, 10**9), st.integers(1, 40_000), st.integers(0, 3))
@settings(deadline=None)
def test_a_prompt_has_its_length_and_is_the_same_every_time(row, tokens, seed):
    text = prompts(seed).text(planned(row, tokens))
    assert len(text.split(" ")) - 1 == tokens, "one word behind a space for each token"
    assert len(text) == 4 * tokens
    assert text == prompts(seed).text(planned(row, tokens))


def test_the_built_in_words_are_distinct_and_of_three_letters():
    assert len(set(BUILT_IN.words)) == len(BUILT_IN.words) > 180
    assert {len(word) for word in BUILT_IN.words} == {3}


BLOCK_LISTS = st.lists(st.integers(0, 5), max_size=6)


@given(BLOCK_LISTS, BLOCK_LISTS, st.sampled_from([1, 16, 512]), st.integers(1, 4000), st.integers(1, 4000))
def test_rows_share_the_blocks_that_they_share(one, two, block_tokens, tokens_one, tokens_two):
    first, second = (
        BUILT_IN_PROMPTS.text(planned(row, tokens, prefix_blocks=tuple(blocks), block_tokens=block_tokens)).split()
        for row, tokens, blocks in ((1, tokens_one, one), (2, tokens_two, two))
    )
    assert (len(first), len(second)) == (tokens_one, tokens_two)
    same = 0
    while same < min(len(one), len(two)) and one[same] == two[same]:
        same += 1
    shared = min(same * block_tokens, tokens_one, tokens_two)
    assert first[:shared] == second[:shared]
    rest = slice(shared, shared + 8)
    if len(first[rest]) == len(second[rest]) == 8 and block_tokens >= 8:
        assert first[rest] != second[rest]


def test_what_the_server_adds_is_left_out_of_the_text():
    assert len(prompts(overhead_tokens=7).text(planned(input_tokens=10)).split()) == 3
    assert len(prompts(overhead_tokens=7).text(planned(input_tokens=2)).split()) == 1


def write_tokenizer(path, kind: str) -> None:
    """Train a small tokenizer here: byte-level like GPT's, or with word marks like Llama's."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

    rng = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choice(letters) for _ in range(rng.randint(2, 7))) for _ in range(300)]
    corpus = [" ".join(rng.choice(words) for _ in range(200)) for _ in range(200)]
    if kind == "wordpiece":
        made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.Lowercase()
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[UNK]"])
    else:
        made = tokenizers.Tokenizer(models.BPE())
        by_bytes = kind == "byte-level"
        made.pre_tokenizer = (
            pre_tokenizers.ByteLevel(add_prefix_space=False) if by_bytes else pre_tokenizers.Metaspace()
        )
        made.decoder = decoders.ByteLevel() if by_bytes else decoders.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=["<s>"])
    made.train_from_iterator(corpus, trainer)
    if kind == "metaspace":
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made.enable_truncation(64)  # such a setting in the file must not shorten anything
    made.save(str(path))


@pytest.fixture(scope="module", params=["byte-level", "metaspace", "wordpiece"])
def tokenizer_file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    write_tokenizer(path, request.param)
    return path


def ids_of(path, text: str) -> list[int]:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("tokens", [1, 2, 17, 512, 5000])
def test_with_a_tokenizer_the_length_is_exact(tokenizer_file, tokens):
    made = prompts(tokenizer=str(tokenizer_file))
    for row in range(5):
        assert len(ids_of(tokenizer_file, made.text(planned(row, tokens)))) == tokens


@pytest.mark.parametrize("block_tokens", [16, 512])
def test_with_a_tokenizer_rows_share_exactly_their_common_blocks(tokenizer_file, block_tokens):
    made = prompts(tokenizer=str(tokenizer_file))
    length = 5 * block_tokens + 3
    for common in range(4):
        blocks = [(*range(common), 10 + row, 20 + row) for row in range(2)]
        one, two = (
            ids_of(
                tokenizer_file,
                made.text(planned(row, length, prefix_blocks=blocks[row], block_tokens=block_tokens)),
            )
            for row in range(2)
        )
        assert len(one) == len(two) == length
        shared = common * block_tokens
        assert one[:shared] == two[:shared]
        assert one[shared : shared + 8] != two[shared : shared + 8]


@pytest.mark.parametrize(
    ("content", "word"), [(None, "no such"), ("{}", "not a tokenizer"), ("characters", "too few words")]
)
def test_a_tokenizer_that_cannot_be_used_is_refused(tmp_path, content, word):
    tokenizers = pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    if content == "characters":
        tokenizers.Tokenizer(
            tokenizers.models.WordLevel({letter: i for i, letter in enumerate("abcdefgh ")}, unk_token="a")
        ).save(str(path))
    elif content is not None:
        path.write_text(content)
    with pytest.raises(BadInputError, match=word):
        tokenizer_lexicon(path)


def test_recorded_text_is_sent_only_where_the_folder_is_given(tmp_path):
    (tmp_path / "one.txt").write_text("What is a turbine?")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    line = json.dumps({"messages": messages})
    (tmp_path / "all.jsonl").write_text(f"{{}}\n{line}\n")
    plain = planned(payload_ref="one.txt")
    assert "turbine" not in prompts().text(plain)
    made = prompts(payloads=str(tmp_path))
    assert made.text(plain) == "What is a turbine?"
    assert made.messages(plain) == [{"role": "user", "content": "What is a turbine?"}]
    piece = planned(payload_ref=f"all.jsonl#3+{len(line)}")
    assert made.messages(piece) == messages
    assert made.text(piece) == "Be brief.\nWhy?"
    assert len(made.text(planned(input_tokens=4)).split()) == 4, "a row without one is made up"


@pytest.mark.parametrize(
    ("reference", "word"),
    [
        ("absent", "cannot be read"),
        ("../secret", "leads out"),
        ("/etc/hostname", "leads out"),
        ("a#2+99", "ends early"),
    ],
)
def test_a_recorded_text_that_is_not_there_is_named_and_never_quoted(tmp_path, reference, word):
    folder = tmp_path / "payloads"
    folder.mkdir()
    (folder / "a").write_text("SECRET")
    (tmp_path / "secret").write_text("SECRET")
    with pytest.raises(BadInputError, match=word) as caught:
        prompts(payloads=str(folder)).text(planned(7, payload_ref=reference))
    assert "row 7" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_images_come_in_the_wanted_number_and_size():
    made = prompts(image_size="70x40")
    (message,) = made.messages(planned(3, 5, images=2))
    kinds = [part["type"] for part in message["content"]]
    assert kinds == ["image_url", "image_url", "text"]
    urls = [part["image_url"]["url"] for part in message["content"][:2]]
    assert urls[0] != urls[1]
    assert urls == [part["image_url"]["url"] for part in made.messages(planned(3, 5, images=2))[0]["content"][:2]]
    assert isinstance(prompts().messages(planned(3, 5, images=2))[0]["content"], str)
    assert isinstance(made.messages(planned(3, 5))[0]["content"], str)


@pytest.mark.parametrize("size", [(1, 1), (32, 32), (70, 40), (1024, 768)])
def test_an_image_is_a_valid_png(size):
    """Taken apart by the specification: signature, chunk checksums, and as many bytes as there are pixels."""
    data = png("key", size)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    assert struct.unpack(">II", chunks[b"IHDR"][:8]) == size
    assert len(zlib.decompress(chunks[b"IDAT"])) == (size[0] + 1) * size[1]
    assert len(image_url("key", (512, 512))) < 20_000


@pytest.mark.parametrize("text", ["", "12", "0x3", "ax3", "9000x1", "1x2x3", "-1x5"])
def test_a_bad_image_size_is_an_error(text):
    with pytest.raises(BadInputError, match="image size"):
        parse_size(text)
