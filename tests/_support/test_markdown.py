from ksubset._support import markdown


def test_a_table() -> None:
    assert markdown.table(["", "a"], iter([["b", "1"], ["c", "–"]])) == "|  | a |\n| --- | --- |\n| b | 1 |\n| c | – |"
    assert markdown.table(["a"], []) == "| a |\n| --- |"
