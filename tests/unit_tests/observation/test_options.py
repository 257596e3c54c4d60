"""Options of observational memory: defaults as documented, refused where they cannot work."""

from __future__ import annotations

import pytest

from langchain_mastra_memory.errors import ConfigurationError
from langchain_mastra_memory.observation.extractors import ExtractionContext, Extractor
from langchain_mastra_memory.observation.options import (
    ModelByInputTokens,
    Observation,
    ObservationalMemory,
    Reflection,
    Retrieval,
)


def test_defaults_are_those_of_the_documentation():
    limits = ObservationalMemory().limits()
    assert limits.message_tokens == 30_000
    assert limits.buffer_tokens == 6_000
    assert limits.retention == 6_000
    assert limits.block_after == 36_000
    assert (limits.reflect_from, limits.observation_tokens, limits.reflect_block) == (20_000, 40_000, 48_000)


@pytest.mark.parametrize(("activation", "kept"), [(0.8, 6_000), (0.7, 9_000), (1, 0), (4_000, 4_000), (1_000, 1_000)])
def test_an_activation_is_a_share_to_remove_or_tokens_to_keep(activation, kept):
    options = ObservationalMemory(observation=Observation(buffer_activation=activation))
    assert options.limits().retention == kept


@pytest.mark.parametrize(("block", "tokens"), [(1.5, 45_000), (50_000, 50_000), (99, 2_970_000)])
def test_block_after_is_a_multiple_or_tokens(block, tokens):
    assert ObservationalMemory(observation=Observation(block_after=block)).limits().block_after == tokens


def test_a_buffer_is_a_share_or_tokens():
    assert ObservationalMemory(observation=Observation(buffer_tokens=0.25)).limits().buffer_tokens == 7_500
    assert ObservationalMemory(observation=Observation(buffer_tokens=5_000)).limits().buffer_tokens == 5_000


def test_without_buffering_reflection_blocks_too():
    limits = ObservationalMemory(observation=Observation(buffer_tokens=False)).limits()
    assert (limits.buffer_tokens, limits.reflect_from) == (None, None)


def test_resource_scope_turns_buffering_off():
    assert ObservationalMemory(scope="resource").limits().buffer_tokens is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Observation(message_tokens=0), "message_tokens"),
        (lambda: Observation(buffer_tokens=0), "buffer_tokens"),
        (lambda: Observation(message_tokens=400, buffer_tokens=400), "less than message_tokens"),
        (lambda: Observation(buffer_activation=50), "buffer_activation"),
        (lambda: Observation(message_tokens=400, buffer_activation=1000), "buffer_activation"),
        (lambda: Observation(block_after=0.5), "block_after"),
        (lambda: Observation(message_tokens=400, block_after=300), "block_after"),
        (lambda: Observation(previous_observer_tokens=-1), "previous_observer_tokens"),
        (lambda: Observation(max_tokens_per_batch=0), "max_tokens_per_batch"),
        (lambda: Observation(wrong=1), "wrong"),
        (lambda: Reflection(buffer_activation=1.5), "buffer_activation"),
        (lambda: Reflection(observation_tokens=0), "observation_tokens"),
        (lambda: Reflection(block_after=200), "block_after"),
        (lambda: ObservationalMemory(scope="resource", observation=Observation(buffer_tokens=0.2)), "resource"),
        (lambda: ObservationalMemory(share_token_budget=True), "share_token_budget"),
        (lambda: ObservationalMemory(model="a:b", observation=Observation(model="c:d")), "not both"),
        (lambda: ObservationalMemory(activate_after_idle="soon"), "duration"),
        (lambda: ObservationalMemory(activate_after_idle=-1), "positive"),
        (lambda: ObservationalMemory(scope="all"), "scope"),
        (lambda: Observation(extract=[Extractor(name="A b"), Extractor(name="a-B")]), "same extractor slug"),
        (lambda: ModelByInputTokens({}), "at least one"),
        (lambda: ModelByInputTokens({-1: "a:b"}), "positive"),
    ],
)
def test_an_option_that_cannot_work_is_refused_with_its_name(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(
    ("given", "seconds"), [("5m", 300), ("1hr", 3600), ("90 sec", 90), (12.5, 12.5), ("500ms", 0.5), ("2 days", 172800)]
)
def test_durations_are_seconds_or_text(given, seconds):
    assert ObservationalMemory(activate_after_idle=given).activate_after_idle == seconds


def test_auto_and_false_are_kept():
    assert ObservationalMemory(activate_after_idle="auto").activate_after_idle == "auto"
    assert Observation(activate_after_idle=False).activate_after_idle is False


def test_an_input_takes_the_model_of_the_smallest_size_that_holds_it():
    tiers = ModelByInputTokens({40: "b:b", 10: "a:a"})
    assert tiers.thresholds == (10, 40)
    assert (tiers.resolve(10), tiers.resolve(11)) == ("a:a", "b:b")
    with pytest.raises(ConfigurationError, match="41"):
        tiers.resolve(41)


def test_retrieval_is_a_switch_or_options():
    assert ObservationalMemory(retrieval=True).retrieval == Retrieval()
    assert ObservationalMemory(retrieval=False).retrieval is None
    assert ObservationalMemory(retrieval={"vector": True, "scope": "thread"}).retrieval.scope == "thread"


@pytest.mark.parametrize(
    ("name", "slug"),
    [("Mood Now", "mood-now"), ("Größe & Farbe!", "größe-farbe"), ("user_profile", "user-profile"), ("気分", "気分")],
)
def test_slugs_keep_letters_of_every_script(name, slug):
    assert Extractor(name=name).slug == slug


@pytest.mark.parametrize("name", ["Current Task", "Observations", "thread", "!!!", "suggested response"])
def test_reserved_and_empty_slugs_are_refused(name):
    with pytest.raises(ConfigurationError):
        Extractor(name=name)


def test_values_are_kept_anywhere_below_om():
    assert Extractor(name="Mood").path == ("extracted", "mood")
    assert Extractor(name="Mood", metadata_path="custom").path == ("custom",)
    assert Extractor(name="Mood", metadata_path="a.b").path == ("a", "b")
    assert Extractor(name="Mood", metadata_path=False).path is None
    with pytest.raises(ConfigurationError):
        Extractor(name="Mood", metadata_path="a..b")


def test_instructions_and_schema_may_be_functions_of_the_context():
    extractor = Extractor(
        name="Mood",
        instructions=lambda context: f"in {context.phase}",
        schema=lambda context: {"type": "string"} if context.phase == "reflection" else None,
    )
    assert extractor.instructed(ExtractionContext(phase="observation")) == "in observation"
    assert extractor.schema_for(ExtractionContext(phase="observation")) is None
    assert extractor.schema_for(ExtractionContext(phase="reflection")) == {"type": "string"}
