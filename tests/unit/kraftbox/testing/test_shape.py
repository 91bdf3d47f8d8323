import pytest

from kraftbox.testing.shape import (
    Shape,
    WrongSetting,
    heals,
    of_marks,
    of_settings,
    topic_options,
)


def asked(*marks, **settings):
    return of_marks(settings, [((), mark) for mark in marks])


@pytest.mark.parametrize(
    ("shape", "brokers", "controllers", "combined"),
    [
        (asked(), 1, 1, True),
        (asked({"brokers": 1}), 1, 1, True),
        (asked({"brokers": 3}), 3, 3, False),
        (asked({"brokers": 3, "combined": True}), 3, 1, True),
        (asked({"brokers": 1, "controllers": 1}), 1, 1, False),
        (asked({"controllers": 3}), 1, 3, False),
        (asked(brokers=2), 2, 3, False),
        (asked({"brokers": 1}, brokers=2), 1, 1, True),
        (asked({"brokers": 1}, {"brokers": 4}), 4, 3, False),
    ],
)
def test_shape_without_arguments_is_one_node(shape, brokers, controllers, combined):
    assert (shape.brokers, shape.controllers, shape.combined) == (brokers, controllers, combined)


def test_settings_add_up_and_are_texts():
    shape = asked({"configs": {"b": True, "c": 3}}, {"configs": {"c": 4}}, configs={"a": "1"})
    assert shape.options()["configs"] == {"a": "1", "b": "true", "c": "4"}
    assert shape == asked({"configs": {"c": 4, "b": True, "a": 1}})
    assert len({shape, asked({"configs": {"c": 4, "b": True, "a": 1}})}) == 1
    assert asked({"racks": ["x", "y"]}, configs={"a": "1"}).text() == "1b1c-x-y-a=1"


def test_shape_of_pytest_ini_settings():
    assert of_settings("", " ", [], []) == {}
    found = of_settings("2", "1", ["a", "b"], ["x.y = 1=2", "z="])
    assert found == {
        "brokers": 2,
        "controllers": 1,
        "racks": ("a", "b"),
        "configs": {"x.y": "1=2", "z": ""},
    }
    assert of_marks({}, []) == Shape()


@pytest.mark.parametrize("count", ["0", "-1", "x", "100", "1.5", "9" * 5000])
def test_a_number_of_nodes_that_cannot_be(count):
    with pytest.raises(WrongSetting, match=r"kafka_brokers = .*: expected a number from 1 to 99"):
        of_settings(count, "", [], [])


@pytest.mark.parametrize("line", ["", "x", "=x", " = "])
def test_a_line_that_is_no_setting(line):
    with pytest.raises(WrongSetting, match="expected KEY=VALUE"):
        of_settings("", "", [], [line])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ({"broker": 1}, r"@pytest.mark.kafka has no 'broker'; did you mean 'brokers'\?"),
        ({"xyz": 1}, "allowed: brokers, controllers, combined, racks, configs, isolate, heal"),
        ({"brokers": 0}, r"kafka\(brokers=0\): expected a number from 1 to 99"),
        ({"brokers": "3"}, r"kafka\(brokers='3'\): expected a number from 1 to 99"),
        ({"controllers": 100}, "a number from 1 to 99"),
        ({"isolate": 1}, "True or False"),
        ({"heal": "no"}, "True or False"),
        ({"brokers": True}, "a number from 1 to 99"),
        ({"racks": "abc"}, "a list of names"),
        ({"racks": [""]}, "a list of names"),
        ({"combined": 1}, "True or False"),
        ({"configs": ["a=b"]}, "a dict of keys and values"),
    ],
)
def test_a_mark_that_is_wrong(mark, said):
    with pytest.raises(WrongSetting, match=said):
        asked(mark)


def test_arguments_are_named():
    with pytest.raises(WrongSetting, match="arguments must be named"):
        of_marks({}, [((3,), {})])
    with pytest.raises(WrongSetting, match="kafka_topic has no 'partition'; did you mean 'partit"):
        topic_options((), {"partition": 3})
    with pytest.raises(WrongSetting, match=r"such as partitions=3"):
        topic_options((3,), {})
    with pytest.raises(WrongSetting, match=r"kafka_topic\(partitions='3'\): expected a number"):
        topic_options((), {"partitions": "3"})
    with pytest.raises(WrongSetting, match="expected a dict"):
        topic_options((), {"configs": "x=y"})
    assert topic_options((), {"partitions": 3}) == {"partitions": 3}


def test_heal_is_of_the_innermost_mark_and_not_of_the_cluster():
    assert heals([]) and heals([{"heal": False}, {"heal": True}])
    assert not heals([{"heal": False}, {"brokers": 3}])
    assert asked({"heal": False}) == asked()
    assert asked({"isolate": True}).options()["isolate"] is True
    assert asked({"isolate": True}) != asked()
