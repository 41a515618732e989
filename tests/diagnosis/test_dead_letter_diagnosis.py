"""`groups why` and `configs alter` about dead letters: each thing that loses them is found, and has a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kit.broker import BrokerProcess

from ottla.cli.main import main
from ottla.diagnosis.dead_letter_diagnosis import DeadLetterFacts, LetterTopic, diagnose_dead_letters
from ottla.diagnosis.group_diagnosis import Weight

NAME = "errors.deadletterqueue.topic.name"
HEALTHY = DeadLetterFacts("mailer", "dlq.mails", share_version=2, prefix="dlq.", topic=LetterTopic())
MISSING = replace(HEALTHY, topic=None)
COMPACTED = LetterTopic(is_compacted=True)
SMALL = LetterTopic(max_message_bytes=200)

CASES = {
    "the feature": (
        replace(HEALTHY, share_version=1),
        Weight.CAUSE,
        "no dead letters are written: share.version is 1",
        "`ottla features upgrade share.version 2`",
    ),
    "an impossible name": (
        replace(MISSING, name="dlq.mails?"),
        Weight.CAUSE,
        "no topic can have the name in errors.deadletterqueue.topic.name: Topic name is invalid: 'dlq.mails?'",
        "`ottla configs alter --group mailer --set errors.deadletterqueue.topic.name=TOPIC`",
    ),
    "another prefix": (
        replace(HEALTHY, name="mails"),
        Weight.CAUSE,
        "the name mails does not begin with dlq. (errors.deadletterqueue.topic.name.prefix)",
        "or change the key of the broker",
    ),
    "no topic": (
        MISSING,
        Weight.CAUSE,
        "dead letters are lost: there is no topic dlq.mails",
        "`ottla topics create dlq.mails --config errors.deadletterqueue.group.enable=true`",
    ),
    "a topic that the user may not see": (
        replace(MISSING, is_hidden=True),
        Weight.PERHAPS,
        "dlq.mails, the topic for dead letters, cannot be seen by this user",
        "the rights to describe",
    ),
    "a topic for other things": (
        replace(HEALTHY, topic=LetterTopic(takes_letters=False)),
        Weight.CAUSE,
        "dlq.mails does not take them (errors.deadletterqueue.group.enable=false)",
        "`ottla configs alter --topic dlq.mails --set errors.deadletterqueue.group.enable=true`",
    ),
    "a compacted topic": (
        replace(HEALTHY, topic=COMPACTED),
        Weight.CAUSE,
        "dlq.mails is compacted, and they have no key",
        "--set errors.deadletterqueue.copy.record.enable=true`",
    ),
    "a compacted topic for copies": (
        replace(HEALTHY, topic=COMPACTED, copies=True),
        Weight.PERHAPS,
        "dlq.mails is compacted: dead letters of records without a key are lost",
        "`ottla configs alter --topic dlq.mails --set cleanup.policy=delete`",
    ),
    "a limit below any letter": (
        replace(HEALTHY, topic=SMALL, letter_bytes=270),
        Weight.CAUSE,
        "dlq.mails has max.message.bytes=200, and they take about 270 bytes",
        "--set max.message.bytes=1048588`",
    ),
    "a limit below the largest record": (
        replace(HEALTHY, topic=SMALL, letter_bytes=100, copies=True, most_record_bytes=201),
        Weight.PERHAPS,
        "dlq.mails has max.message.bytes=200, and a topic of the group 201: dead letters of large records have no copy",
        "--set max.message.bytes=301`",
    ),
    "offline partitions": (
        replace(HEALTHY, topic=LetterTopic(offline=(1,))),
        Weight.CAUSE,
        "dlq.mails-1 is offline: dead letters wait, and then the group",
        "what the broker logs",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_loses_dead_letters_is_found_and_has_a_remedy(name: str) -> None:
    facts, weight, text, remedy = CASES[name]
    (finding,) = diagnose_dead_letters(facts)
    assert finding.weight is weight
    assert text in finding.text
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (HEALTHY, "dlq.mails takes its dead letters"),
        (replace(HEALTHY, share_version=None, prefix=""), "dlq.mails takes its dead letters"),
        (replace(MISSING, is_created=True), "dlq.mails is created with the first dead letter"),
        (replace(HEALTHY, topic=SMALL, letter_bytes=200, most_record_bytes=999), "dlq.mails takes its dead letters"),
        (
            replace(HEALTHY, topic=SMALL, letter_bytes=99, copies=True, most_record_bytes=200),
            "dlq.mails takes its dead letters",
        ),
    ],
)
def test_a_topic_that_takes_dead_letters_is_in_order(facts: DeadLetterFacts, text: str) -> None:
    assert diagnose_dead_letters(facts) == [(Weight.FINE, text, "")]


@pytest.fixture(scope="module")
def with_letters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with dead letters, a topic `mails` and a share group `mailer` without members."""
    with BrokerProcess(tmp_path_factory.mktemp("letters")) as broker:
        run(broker, "features", "upgrade", "share.version", "2")
        run(broker, "topics", "create", "mails")
        run(broker, "groups", "reset", "mailer", "--share", "--topic", "mails", "--to-latest", "--execute")
        yield broker


def run(broker: BrokerProcess, *arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap])
    assert result.exit_code == status, result.output
    return result


def test_a_topic_for_dead_letters_is_checked_when_it_is_named_and_by_why(with_letters: BrokerProcess) -> None:
    named = ("configs", "alter", "--group", "mailer", "--set", f"{NAME}=dlq.mails")
    there_is_none = "dead letters are lost: there is no topic dlq.mails -> "
    for more in ((), ("--dry-run",)):
        assert run(with_letters, *named, *more).stderr.startswith(f"ottla: group mailer: {there_is_none}")
    assert f"! {there_is_none}`ottla topics create dlq.mails" in run(with_letters, "groups", "why", "mailer").stdout

    run(with_letters, "topics", "create", "dlq.mails", "--config", "max.message.bytes=200")
    takes = "errors.deadletterqueue.group.enable"
    assert f"does not take them ({takes}=false)" in run(with_letters, *named).stderr
    run(with_letters, "configs", "alter", "--topic", "dlq.mails", "--set", f"{takes}=true")
    assert run(with_letters, *named).stderr == ""  # nothing is known of the group's topics before it reads
    found = run(with_letters, "groups", "why", "mailer").stdout
    assert "! dead letters are lost: dlq.mails has max.message.bytes=200, and they take about 27" in found

    run(with_letters, "configs", "alter", "--topic", "dlq.mails", "--delete", "max.message.bytes")
    assert "- dlq.mails takes its dead letters" in run(with_letters, "groups", "why", "mailer").stdout


@pytest.mark.parametrize("name", ["a b", "x" * 250, ".."])
def test_an_impossible_topic_for_dead_letters_is_refused(with_letters: BrokerProcess, name: str) -> None:
    refused = run(with_letters, "configs", "alter", "--group", "other", "--set", f"{NAME}={name}", status=1)
    assert refused.stderr.startswith(f"ottla: group other: {NAME}: Topic name is invalid: ")


def test_the_prefix_of_the_broker_counts(tmp_path: Path) -> None:
    key = "errors.deadletterqueue.topic.name.prefix"
    with BrokerProcess(tmp_path, {key: "letters-"}) as broker:
        run(broker, "features", "upgrade", "share.version", "2")
        said = run(broker, "configs", "alter", "--group", "mailer", "--set", f"{NAME}=dlq.mails").stderr
        assert "the name dlq.mails does not begin with letters- " in said
        creates = "errors.deadletterqueue.auto.create.topics.enable=true"
        run(broker, "configs", "alter", "--all-brokers", "--set", creates)
        assert run(broker, "configs", "alter", "--group", "mailer", "--set", f"{NAME}=letters-x").stderr == ""
