"""Topics are added to responses of share groups, and nothing else changes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.wire.errors import ProtocolError
from proxy.wire.share import add_share_topics, share_error_and_topics
from tests.unit.wire.trees import decode, encode, response_type, schema_of, trees

_MODEST = settings(max_examples=20, deadline=None)
SERVED = [(key, version) for key in (78, 79) for version in (1, 2)]


@pytest.mark.parametrize(("api_key", "version"), SERVED)
@_MODEST
@given(data=st.data())
def test_topics_come_first_and_the_rest_stays(api_key, version, data):
    entity = response_type(api_key, version)
    topic = next(field.entity for field in schema_of(entity).fields if field.name == "responses")
    tree = data.draw(trees(entity))
    added = data.draw(st.lists(trees(topic), max_size=3))
    body = encode(entity, tree)
    assert share_error_and_topics(api_key, body, version) == (tree["error_code"], len(tree["responses"]))
    longer = add_share_topics(api_key, body, version, [encode(topic, one) for one in added])
    assert decode(entity, longer) == tree | {"responses": added + tree["responses"]}


@_MODEST
@given(st.binary(max_size=40), st.sampled_from([*SERVED, (78, 3), (79, 0)]))
def test_an_invalid_answer_is_reported(body, served):
    for parse in (share_error_and_topics, lambda *of: add_share_topics(*of, added=[b"topic"])):
        try:
            parse(served[0], body, served[1])
        except ProtocolError:
            continue
        assert served in SERVED
