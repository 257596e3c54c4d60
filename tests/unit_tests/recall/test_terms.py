"""The tokenizer: what a message can be found by."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from langchain_mastra_memory.recall.terms import Tokenizer, pack_terms, unpack_terms


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer()


def finds(tokenizer: Tokenizer, query: str, text: str) -> bool:
    """Tell whether every term of a query is a term of the text."""
    terms = tokenizer.query(query)
    return bool(terms) and set(terms) <= set(tokenizer.hashes(text))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("hiking", "She hikes every weekend"),
        ("HIKES", "hiking"),
        ("cafe", "a small café"),
        ("Ångström", "angstrom units"),
        ("naïve", "NAIVE"),
        ("Caroline", "Caroline\u2019s birthday"),
        ("carolines", "carolin's friends of carolines"),
        ("天气", "今天北京的天气很好"),
        ("茶", "我喜欢喝茶"),
        ("北京大学", "他在北京大学读书"),
        ("東京", "東京タワーへ行った"),
        ("カタカナ", "ひらがなとカタカナ"),
        ("한국", "저는 한국어를 배웁니다"),
        ("ภาษา", "ฉันเรียนภาษาไทย"),
        ("ໄທ", "ພາສາໄທ"),
        ("မြန်မာ", "မြန်မာစာ"),
        ("ខ្មែរ", "ភាសាខ្មែរ"),
        ("किताबें", "मेरी किताबें"),
        ("книга", "о книгах"),
        ("ΒΙΒΛΙΑ", "τα βιβλία"),
        ("😀", "well done 😀!"),
        ("👩", "a 👩🏽\u200d💻 at work"),
        ("ERR-4042", "it failed with err-4042 again"),
        ("4042", "it failed with ERR-4042 again"),
        ("getUserName", "call getUserName() first"),
        ("user name", "call getUserName() first"),
        ("user_id", "the column user_id is empty"),
        ("example.com", "mail me at ana@example.com"),
        ("ana@example.com", "mail me at ana@example.com."),
        ("v2.0", "we released v2.0"),
        ("3.14", "pi is 3.14"),
        ("3000", "it costs 3,000 euros"),
        ("8 May 2023", "due 2023-05-08"),
        ("2023-05-08", "due 2023-05-08T10:00:00Z"),
        ("May 2023", "2023年5月8日"),
        ("５月", "5月"),
        ("ﬁne", "fine"),
    ],
)
def test_a_word_is_found_in_every_script_and_spelling(tokenizer: Tokenizer, query: str, text: str) -> None:
    assert finds(tokenizer, query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("天安", "今天北京的天气很好"),
        ("京北", "今天北京"),
        ("hike", "the hitch"),
        ("user_id", "the user has an id"),
        ("12", "it is 120"),
        ("ส้ม", "สม"),  # a Thai tone mark belongs to its letter
        ("😀", "😁"),
    ],
)
def test_other_words_are_not_found(tokenizer: Tokenizer, query: str, text: str) -> None:
    assert not finds(tokenizer, query, text)


@pytest.mark.parametrize("text", ["", "   ", "\0", "\ud800", "!?…", "the of and", "\u200d\ufe0f", '" OR 1=1 --', "%_*"])
def test_any_text_is_a_query_and_none_has_syntax(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.query(text) in ([], tokenizer.query("1"), tokenizer.query("1=1"))


def test_a_document_has_its_speaker_and_its_date(tokenizer: Tokenizer) -> None:
    blob = tokenizer.document("We met", speaker="Ana", date=datetime(2023, 5, 8, tzinfo=UTC))
    stored = {int(term) & 0xFFFFFFF0 for term in unpack_terms(blob)[1:]}
    assert set(tokenizer.query("Ana met 8 May 2023")) == stored


def test_a_blob_holds_length_and_counts_and_caps_counts_at_fifteen(tokenizer: Tokenizer) -> None:
    blob = tokenizer.document("zebra " * 40 + "lion")
    numbers = unpack_terms(blob).tolist()
    assert numbers[0] == 41
    assert numbers[1:] == sorted(numbers[1:])
    assert sorted(number & 0xF for number in numbers[1:]) == [1, 15]


def test_terms_with_one_hash_are_counted_together() -> None:
    assert unpack_terms(pack_terms([0x10, 0x20, 0x10])).tolist() == [3, 0x12, 0x21]


def test_a_blob_takes_half_a_byte_for_each_character_at_most(tokenizer: Tokenizer) -> None:
    text = (
        "Yesterday I went to the hiking club with Maria, and we talked about the weather, two routes over the pass, "
        "what to bring along, and a plan for the summer. She would like to see the lakes first; I'd rather begin "
        "with the hut, since it is closed from September on, and the bus does not run on Mondays. We agreed to ask "
        "Jonas, who knows the guide and has been there twice already, before we book anything this week or next."
    )
    assert len(tokenizer.document(text)) <= 0.5 * len(text) + 40


def test_memoised_words_give_the_same_terms(tokenizer: Tokenizer) -> None:
    text = "Zebra getUserName 東京 😀 2023-05-08 the naïve"
    assert Tokenizer().hashes(text) == tokenizer.hashes(text) == tokenizer.hashes(text)


def test_a_key_makes_other_hashes_that_still_agree_with_each_other() -> None:
    plain, keyed = Tokenizer(), Tokenizer(key=b"secret")
    assert not set(plain.hashes("zebra lion")) & set(keyed.hashes("zebra lion"))
    assert finds(keyed, "zebras", "a zebra")
    assert all(value & 0xF == 0 for value in keyed.hashes("zebra lion"))


def test_the_words_of_a_text_are_the_terms_that_are_hashed(tokenizer: Tokenizer) -> None:
    text = "The hikers reached ERR-42 in 東京 on 2023年5月8日, 3,000 m up"
    assert [tokenizer.hash(word) for word in tokenizer.words(text)] == tokenizer.hashes(text)
