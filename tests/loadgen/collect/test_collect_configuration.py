"""Container environments can hold secrets: only harmless settings keep their values."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.collect.redaction import REDACTED, kept, redact


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("OPTION_TENSOR_PARALLEL_DEGREE", "1"),
        ("OPTION_MAX_MODEL_LEN", "8192"),
        ("HF_MODEL_ID", "Qwen/Qwen3-8B"),
        ("SM_VLLM_MAX_NUM_SEQS", "64"),
        ("MAX_TOTAL_TOKENS", "4096"),
    ],
)
def test_settings_of_serving_engines_stay(key: str, value: str) -> None:
    assert kept({"Environment": {key: value}}) == {"Environment": {key: value}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("HF_TOKEN", "x"),
        ("HUGGING_FACE_HUB_TOKEN", "x"),
        ("OPTION_HF_TOKEN", "x"),
        ("OPTION_API_KEY", "x"),
        ("SM_VLLM_API_KEY", "x"),
        ("SERVING_PASSWORD", "x"),
        ("DATABASE_URL", "postgres://u:p@h/d"),
        ("ANYTHING", "1"),
        ("HF_MODEL_ID", "hf_abcdefghijklmnop"),
        ("HF_MODEL_ID", "https://u:p@host/x?sig=1"),
        ("OPTION_MODEL_ID", "A" * 40),
    ],
)
def test_all_else_is_redacted(key: str, value: str) -> None:
    assert kept({"Environment": {key: value}}) == {"Environment": {key: REDACTED}}


def test_every_container_is_redacted_and_images_stay() -> None:
    container = {"Image": "1.dkr.ecr/x:1", "Environment": {"HF_TOKEN": "s3cret"}}
    model = {"PrimaryContainer": container, "Containers": [container, {"Image": "y"}]}
    found = kept(model)
    assert b"s3cret" not in msgspec.json.encode(found)
    assert found["Containers"][1] == {"Image": "y"}
    assert found["PrimaryContainer"]["Image"] == "1.dkr.ecr/x:1"
    assert model["PrimaryContainer"] is container


@given(secret=st.text("abcdefghijklmnop0123456789", min_size=12, max_size=30), key=st.text("ABCDEFGHIJ_", min_size=1))
def test_a_value_under_an_unknown_key_never_survives(secret: str, key: str) -> None:
    document = {"Containers": [{"Environment": {f"X_{key}": secret}}]}
    assert secret not in msgspec.json.encode(kept(document)).decode()


def test_messages_lose_keys_tokens_and_accounts() -> None:
    text = (
        "user arn:aws:iam::123456789012:user/me key AKIAIOSFODNN7EXAMPLE sent "
        + "Ab1/" * 12
        + " to endpoint/a/variant/b"
    )
    found = redact(text)
    assert found == "user arn:aws:iam::***:user/me key *** sent *** to endpoint/a/variant/b"
    assert len(redact("a b " * 500)) <= 300
