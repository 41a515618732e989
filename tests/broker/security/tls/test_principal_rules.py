"""`ssl.principal.mapping.rules`: names as Apache Kafka 4.1's `SslPrincipalMapper` made them of the same rules."""

from __future__ import annotations

import pytest

from ottla.broker.security.tls.principal_rules import NoRuleApplies, PrincipalRules

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", DUKE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", "duke@serviceusers"),
        ("RULE:^cn=(.*?),.*$/$1/L, RULE:^CN=(.*?),.*$/$1/U, DEFAULT", "DUKE"),
        ("RULE:.*/x/", "xx"),
        ("RULE:^.*$/x/", "x"),
        ("RULE:^CN=(.*?),.*$/$1@$4/", "Duke@$4"),
        ("RULE:^CN=(.*?),.*$/$12/", "Duke2"),
        ("RULE:^CN=([^,]*),.*$/a\\/b\\\\c$1/", "a/b\\cDuke"),
        (" , ,DEFAULT", DUKE),
        ("DEFAULT,", DUKE),
        ("RULE:^CN=(.*?),.*$/$0/", DUKE),
        ("RULE:(.)(.)(.*)/$3$2$1/", "=Duke,OU=ServiceUsers,O=Org,C=USNC"),
        ("RULE:^CN=(.*?),(a)?.*$/$1-$2/", "Duke-"),
        ("  RULE:^CN=(.*?),.*$/ $1 /  ,  DEFAULT  ", " Duke "),
        ("RULE:^CN=(.*?),.*$//", ""),
        ("RULE:^CN=(.*?),.*$/$01/", "Duke"),
        ("RULE:^CN=(.*?),.*$/$1x\\$y/", "Dukex$y"),
    ],
)
def test_the_name_is_kafkas(rules: str, name: str) -> None:
    assert PrincipalRules(rules).name_of(DUKE) == name


@pytest.mark.parametrize("rules", ["", "RULE:^nope$/x/", "RULE:CN=Duke/x/"])
def test_without_a_fitting_rule_there_is_no_name(rules: str) -> None:
    with pytest.raises(NoRuleApplies, match="CN=Duke"):
        PrincipalRules(rules).name_of(DUKE)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("RULE:^CN=(.*?),.*$/$1/X", "'X' is neither DEFAULT nor RULE"),
        ("NOPE", "'NOPE' is neither DEFAULT nor RULE"),
        ("DEFAULTX", "'X' is neither"),
        ("RULE:^a/b", "'RULE:\\^a/b' is neither"),
        ("RULE:^CN=(.*?),.*$/$1/L DEFAULT", "' DEFAULT' is neither"),
        ("RULE:^.*$/$1/", "the pattern has no group 1"),
        ("RULE:^CN=(.*?),.*$/$/", "must be followed by the number of a group"),
        ("RULE:^CN=(.*?),.*$/${n}/", "must be followed by the number of a group"),
        ("RULE:(?=CN).*/x/", "cannot be used \\(RE2\\)"),
        ("RULE:" + "a" * 1025 + "/x/", "has 1025 characters; 1024 are the most"),
        ("RULE:(a{1000}){1000}/x/", "cannot be used \\(RE2\\)"),
        (",".join(["DEFAULT"] * 101), "more than 100 rules"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(rules: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PrincipalRules(rules)


def test_the_longest_pattern_is_taken() -> None:
    assert PrincipalRules("RULE:" + "a" * 1024 + "/x/,DEFAULT").name_of("b") == "b"


def test_a_pattern_that_would_take_java_for_ever_takes_no_time() -> None:
    name = "CN=" + "a" * 50_000 + "!"
    assert PrincipalRules("RULE:^CN=(a+)+$/x/, DEFAULT").name_of(name) == name
