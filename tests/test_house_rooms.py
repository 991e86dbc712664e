"""The rooms: few files in each and every class name once in each top-level folder, also among the tests; in the
product, imports one way only and no ten lines twice.
"""

from __future__ import annotations

from tests.support.house import (
    backward_imports,
    crowded,
    cycles,
    import_graph,
    made_up,
    repeated_lines,
    shared_class_names,
)
from tests.support.sources import files_of_tests, parse, source_files, text_of

MOST_FILES = 15
MOST_EQUAL_LINES = 9
PRODUCT = {path: parse(path) for path in source_files()}


def test_a_room_holds_at_most_fifteen_modules() -> None:
    assert not crowded(source_files(), MOST_FILES)


def test_a_folder_of_tests_holds_at_most_fifteen_test_files() -> None:
    assert not crowded([path for path in files_of_tests() if path.name.startswith("test_")], MOST_FILES)


def test_a_sixteenth_module_is_found() -> None:
    house = made_up(**{f"roles__cli__m{number}": "" for number in range(16)}, roles__cli____init__="")
    assert crowded(house, MOST_FILES) == {"roles/cli": 16}


def test_a_class_name_is_used_once_in_a_top_level_folder() -> None:
    assert not shared_class_names(PRODUCT)
    assert not shared_class_names({path: parse(path) for path in files_of_tests()})


def test_a_class_name_that_is_used_twice_is_found() -> None:
    house = made_up(roles__a="class A: ...", roles__b__c="class A: ...", transport__a="class A: ...")
    assert shared_class_names(house) == {"roles: A": ["roles/a.py", "roles/b/c.py"]}


def test_a_class_name_is_found_inside_a_function_a_class_and_a_condition() -> None:
    house = made_up(
        roles__a="class A:\n    class B: ...",
        roles__b="def f():\n    class A: ...",
        roles__c="if x:\n    class B: ...\nelse:\n    class B: ...",
    )
    assert shared_class_names(house) == {
        "roles: A": ["roles/a.py", "roles/b.py"],
        "roles: B": ["roles/a.py", "roles/c.py", "roles/c.py"],
    }


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert not cycles(import_graph(PRODUCT))


def test_a_cycle_is_found_through_lazy_imports_and_imports_for_types() -> None:
    house = made_up(
        roles__a="from veilsum.roles.b import thing",
        roles__b="def later():\n    import veilsum.roles.c",
        roles__c="if TYPE_CHECKING:\n    from veilsum.roles import a",
        roles__d="from veilsum.roles import a",
        roles____init__="",
    )
    assert cycles(import_graph(house)) == [["veilsum.roles.a", "veilsum.roles.b", "veilsum.roles.c"]]


def test_a_cycle_is_found_through_names_in_strings() -> None:
    house = made_up(
        roles__a='PLACE = "veilsum.roles.b:thing"',
        roles__b='HERE = "veilsum.roles"\nPLACES = {"c": f"{HERE}.c:thing"}',
        roles__c='def later(name):\n    import_module("veilsum.roles." + "d")',
        roles__d='"""Not `veilsum.roles.c`."""\nprint("veilsum.roles.b is not imported")\nimport veilsum.roles.a',
        roles__e="from veilsum.roles import a",
        simulations__rows__a='import_module(f"veilsum.simulations.rows.{name}")',
        simulations__rows__b="from veilsum.simulations.rows.a import find",
        simulations__a='import_module(f"veilsum.simulations.rows.{name}")',
        roles____init__="",
    )
    assert cycles(import_graph(house)) == [
        [f"veilsum.roles.{name}" for name in "abcd"],
        ["veilsum.simulations.rows.a", "veilsum.simulations.rows.b"],
    ]


def test_imports_of_the_protocol_go_from_later_rooms_to_earlier_ones() -> None:
    protocol = {path: tree for path, tree in PRODUCT.items() if path.parts[0] == "protocol"}
    assert not list(backward_imports(protocol))


def test_an_import_of_a_later_room_is_found() -> None:
    house = made_up(
        protocol__errors="from veilsum.protocol.crypto import kdf",
        protocol__crypto__kdf="from veilsum.protocol import errors",
        protocol__wire__codec="def late():\n    from veilsum.protocol.schemes.plain import Plain",
        protocol__schemes__plain="from veilsum.protocol.wire.codec import decode",
    )
    assert list(backward_imports(house)) == [
        "veilsum.protocol.errors imports veilsum.protocol.crypto.kdf",
        "veilsum.protocol.wire.codec imports veilsum.protocol.schemes.plain",
    ]


def test_no_ten_lines_of_the_product_stand_twice() -> None:
    assert not repeated_lines({str(path): text_of(path) for path in source_files()}, MOST_EQUAL_LINES + 1)


def test_ten_lines_that_stand_twice_are_found_whatever_their_indentation_and_comments() -> None:
    once = "\n".join(f"a{number} = {number}" for number in range(10))
    again = "import os\n\nif os:\n" + "\n".join(
        f"    # note\n    a{number} = {number}" for number in range(10)
    )
    assert repeated_lines({"one": once, "two": again}, 10) == ["two:5 repeats one:1"]
    assert repeated_lines({"one": once, "two": again.replace("a5", "b5")}, 10) == []
